"""Bindings: finds the values that a name in a module may have, from its source. Nothing is
imported, and nothing is called.

The statements of a module are followed in order. A name stands for all that it may be bound to in
the end: the branches of an `if`, a `try` or a `match` count alike, and so do names bound by `for`,
`with`, `except`, `match`, `:=`, `global` or `globals()`. It is a Workflow if each of these is a
class that derives from one, or a call of such a class, or a call of a function that returns one.
None does not count: it stands for a value that comes later.
"""

from __future__ import annotations

from pathlib import Path

from plait.bindings.sources import ProgramSources
from plait.bindings.values import NoWorkflow


def find_objection(file: Path, module: str, folders: tuple[str, ...], names: list[str]) -> str:
    """Return the reason why the value of this name in a file is no Workflow.

    "": it is one, as far as its source says. Errors of reading the file are passed on.
    """
    try:
        found = ProgramSources(folders).module(file, module).values_of(names)
    except NoWorkflow as refusal:
        return str(refusal)
    wrong = next((each for each in found if each.what not in ("class", "object")), None)
    shown = ".".join(names)
    if wrong is not None:
        return f"the {wrong.what} {shown} is no Workflow, which is all that a log can have called"
    return "" if found else f"{shown} is no Workflow, as far as its source says"
