"""The entry of the command line. It answers `--help` and `--version` by itself, without loading
Plait.
"""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    if not _answer(sys.argv[1:]):
        from plait.cli import main as plait

        plait(prog_name="plait")


def _answer(words: list[str]) -> bool:
    """Print the help or the version, if that is all that is asked for. False: it is not, or the
    output cannot be written, which the command line has words for.
    """
    if words not in (["--help"], ["-h"], ["--version"]) or "_PLAIT_COMPLETE" in os.environ:
        return False
    if words == ["--version"]:
        from importlib import metadata

        text = f"plait {metadata.version('plait')}"
    else:
        from plait_shell.groups import top_help

        text = top_help()
    try:
        print(text, flush=True)
    except (OSError, ValueError, AttributeError):  # closed, full, or no stream at all
        return False
    return True
