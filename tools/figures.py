"""Measures how easily the code is read: the figures that a house test keeps from growing.

    python tools/figures.py                       # the figures of this checkout
    python tools/figures.py --list participles    # the places that one figure counts
    python tools/figures.py --tighten             # write the better figures to the ratchet

Sizes and names are read from the source; the functions that one call passes are counted while it
runs. `tests/house/ratchets.json` holds the limits: `tests/house/test_words.py` fails if a figure is
above its limit. `--tighten` lowers limits and never raises one.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import json
import re
import sys
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "plait"
RATCHETS = ROOT / "tests" / "house" / "ratchets.json"

# The names by which code asked whether something is on record before there was a journal.
ASKS_FOR_RECORD = re.compile(
    r"\b(on_record|was_on_record|follows|goes_on|joined|next_of|ends_here|before_branch|is_inherited"
    r"|branched_off|went_on_without|take_delivery|check_all_taken)\(|\brun\.(take|peek|ended)\("
    r"|\brecording\.(strict|reopened)\b|\brecording is (not )?None"
    r"|\brun\.journal\.recording\b|\bhas_recording\b"
)
QUESTION_WORDS = re.compile(
    r"\b(who|whom|whose|what|whatever|whoever|somebody|nobody|anybody|everybody)\b", re.I
)
BEGINS_WITH_QUESTION = re.compile(r"(who|what|whether|where|when|how|which|why|whoever)\b", re.I)
IRREGULAR = frozenset(
    "told made taken given kept found left met known seen said held built sent gone cut put done"
    " shown written begun chosen spoken drawn thrown hidden read lost won bound paid sold heard"
    " understood brought thought bought caught taught laid lent meant spent stood run set let hit"
    " grown flown torn worn".split()
)
DARK_NAMES = frozenset("told settled made taken given".split())
CONTAINERS = frozenset(
    "dict list set defaultdict deque Counter OrderedDict WeakKeyDictionary WeakValueDictionary"
    " WeakSet local count SimpleQueue Queue".split()
)


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """The facts of one module. Its tree is not kept: with all trees in memory, every collection of
    garbage takes as long as parsing them.
    """

    name: str  # its path below the package
    text: str
    classes: list[tuple[str, int]]  # with the number of methods
    functions: list[str]
    docstrings: list[tuple[str, int]]  # with the line of the owner
    state: list[str]  # names that functions change


@functools.cache
def modules() -> tuple[Module, ...]:
    return tuple(map(read_module, sorted(SOURCE.rglob("*.py"))))


def read_module(path: Path) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    module = Module(name_of(path), text, [], [], [], containers_in(tree))
    for node in (tree, *statements_in(tree)):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(part, Function) for part in node.body)
            module.classes.append((node.name, methods))
        elif isinstance(node, Function):
            module.functions.append(node.name)
        elif isinstance(node, ast.Global):
            module.state.extend(node.names)
        if isinstance(node, ast.Module | ast.ClassDef | Function) and (
            docstring := ast.get_docstring(node)
        ):
            module.docstrings.append((docstring, getattr(node, "lineno", 1)))
    return module


def statements_in(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, ast.expr):  # no statement stands inside an expression
            yield from statements_in(child)


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


# ── sizes ────────────────────────────────────────────────────────────────────────────────────


def class_sizes() -> list[tuple[int, str]]:
    """Return the number of methods of each class; those of plait.testing are left out."""
    found = [
        (methods, name)
        for module in modules()
        if not module.name.startswith("testing/")
        for name, methods in module.classes
    ]
    return sorted(found, reverse=True)


def module_sizes() -> list[tuple[int, str]]:
    return sorted(((module.text.count("\n"), module.name) for module in modules()), reverse=True)


def session_members() -> list[str]:
    from plait import Session

    # names of other libraries are answered with an AttributeError
    return [name for name in dir(Session) if not name.startswith("_") and hasattr(Session, name)]


# ── names ────────────────────────────────────────────────────────────────────────────────────


def class_names() -> set[str]:
    return {name.lstrip("_") for module in modules() for name, _ in module.classes}


def shared_class_names() -> dict[str, list[str]]:
    where: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        for name, _ in module.classes:
            where[name.lstrip("_")].append(module.name)
    return {name: paths for name, paths in sorted(where.items()) if len(set(paths)) > 1}


def functions() -> list[tuple[str, str]]:
    return [
        (name, module.name)
        for module in modules()
        for name in module.functions
        if not name.startswith("__")
    ]


def is_bare_participle(name: str) -> bool:
    word = name.strip("_")
    return "_" not in word and (word in IRREGULAR or (word.endswith("ed") and len(word) > 4))


def participles() -> list[tuple[str, str]]:
    return [(name, where) for name, where in functions() if is_bare_participle(name)]


def dark_names() -> list[tuple[str, str]]:
    return [(name, where) for name, where in functions() if name.strip("_") in DARK_NAMES]


# ── prose ────────────────────────────────────────────────────────────────────────────────────


def docstrings() -> list[tuple[str, str]]:
    return [
        (text, f"{module.name}:{line}") for module in modules() for text, line in module.docstrings
    ]


def comments() -> list[str]:
    found: list[str] = []
    for module in modules():
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            if token.type == tokenize.COMMENT and not re.match(
                r"#\s*(pyright|noqa|type)\b", token.string
            ):
                found.append(token.string.lstrip("# "))
    return found


def prose_rate() -> float:
    prose = " ".join([*[text for text, _ in docstrings()], *comments()])
    return 1000 * len(QUESTION_WORDS.findall(prose)) / max(1, len(re.findall(r"[A-Za-z']+", prose)))


def questioning_docstrings() -> list[tuple[str, str]]:
    return [
        (text.partition("\n")[0], where)
        for text, where in docstrings()
        if BEGINS_WITH_QUESTION.match(text)
    ]


# ── seams ────────────────────────────────────────────────────────────────────────────────────


def lines_that_ask() -> list[tuple[str, str]]:
    rooms = (
        "journal/",
        "testing/",
        "tools/patch.py",
        "model/",
        "sandbox/",
        "runtime/path.py",
        "runtime/record.py",
    )
    return [
        (line.strip(), f"{module.name}:{number}")
        for module in modules()
        if not module.name.startswith(rooms)
        for number, line in enumerate(module.text.splitlines(), 1)
        if ASKS_FOR_RECORD.search(line) and not line.lstrip().startswith(("#", "def ", '"""'))
    ]


def private_ignores() -> list[tuple[str, str]]:
    return [
        (line.strip(), f"{module.name}:{number}")
        for module in modules()
        for number, line in enumerate(module.text.splitlines(), 1)
        if "reportPrivateUsage" in line
    ]


def mutable_state() -> list[tuple[str, str]]:
    """Return the module-level names that functions change: containers in lower case, and names
    declared global. `__all__` is left out: it is only read.
    """
    return sorted({(name, module.name) for module in modules() for name in module.state})


def containers_in(tree: ast.Module) -> list[str]:
    found: list[str] = []
    for node in tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if (
            isinstance(target, ast.Name)
            and target.id not in ("__all__", target.id.upper())
            and _is_container(value)
        ):
            found.append(target.id)
    return found


def _is_container(value: ast.expr | None) -> bool:
    if isinstance(value, (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)):
        return True
    if not isinstance(value, ast.Call):
        return False
    called = value.func
    called = called.value if isinstance(called, ast.Subscript) else called
    name = (
        called.attr
        if isinstance(called, ast.Attribute)
        else called.id
        if isinstance(called, ast.Name)
        else ""
    )
    return name in CONTAINERS


# ── one call ─────────────────────────────────────────────────────────────────────────────────


def one_call() -> tuple[int, int]:
    """Return how many functions of ours one call of a workflow with one tool
    passes, and how deep.
    """
    from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, open_store, tool

    @tool(effect="pure")
    def nothing(n: int) -> int:
        """Do nothing."""
        return n

    def script(session: Session) -> Any:
        return "Done." if session.effects else ToolCall("nothing", n=1)

    class One(Workflow):
        """Has an agent that uses one tool."""

        def __init__(self) -> None:
            self.agent = Agent("Act.", model=ScriptedModel(script), tools=[nothing])

        def forward(self, session: Session) -> Session:
            return self.agent(session)

    store, passed, depths = open_store("memory:figures"), Counter[str](), Counter[int]()
    One()(Session("warm up", store=store))
    session = Session("begin", store=store)
    depth = threading.local()

    def note(frame: Any, event: str, argument: Any) -> None:
        if not frame.f_code.co_filename.startswith(str(SOURCE)) or frame.f_code.co_name.startswith(
            "<"
        ):
            return
        at: int = getattr(depth, "at", 0) + (
            1 if event == "call" else -1 if event == "return" else 0
        )
        depth.at = at
        if event == "call":
            passed[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1
            depths[at] += 1

    sys.setprofile(note)
    try:
        One()(session)
    finally:
        sys.setprofile(None)
    return len(passed), max(depths)


# ── the table ────────────────────────────────────────────────────────────────────────────────


def share(part: int, whole: int) -> float:
    return round(100 * part / whole, 1)


FIGURES: dict[str, Callable[[], float]] = {
    "methods of the largest class": lambda: class_sizes()[0][0],
    "lines outside journal/ that ask whether something is recorded": lambda: len(lines_that_ask()),
    "ignores of private use": lambda: len(private_ignores()),
    "class names in two modules or more": lambda: len(shared_class_names()),
    "functions named by a bare participle, %": lambda: share(len(participles()), len(functions())),
    "functions called told, settled, made, taken or given": lambda: len(dark_names()),
    "who/what/somebody per 1,000 words of prose": lambda: round(prose_rate(), 1),
    "docstrings that begin with a question word, %": lambda: share(
        len(questioning_docstrings()), len(docstrings())
    ),
    "module-level mutable state": lambda: len(mutable_state()),
    "lines of the longest module": lambda: module_sizes()[0][0],
    "public members of Session": lambda: len(session_members()),
}
"""The figures that follow from the source alone. The ratchet limits each of them."""

LISTS: dict[str, Callable[[], list[str]]] = {
    "classes": lambda: [f"{size:5} {name}" for size, name in class_sizes()[:20]],
    "asks": lambda: [f"{where}: {line}" for line, where in lines_that_ask()],
    "private": lambda: [f"{where}: {line}" for line, where in private_ignores()],
    "shared": lambda: [
        f"{name}: {', '.join(paths)}" for name, paths in shared_class_names().items()
    ],
    "participles": lambda: [f"{where}: {name}" for name, where in participles()],
    "dark": lambda: [f"{where}: {name}" for name, where in dark_names()],
    "questions": lambda: [f"{where}: {line}" for line, where in questioning_docstrings()],
    "state": lambda: [f"{where}: {name}" for name, where in mutable_state()],
    "modules": lambda: [f"{size:5} {name}" for size, name in module_sizes()[:40]],
    "members": session_members,
}


class Ratchets(TypedDict):
    """The limits in `tests/house/ratchets.json`. Each may only get smaller."""

    figures: dict[str, float]
    shared_class_names: list[str]
    old_class_names: list[str]  # given up by docs/WORDS.md, and not renamed yet


def read_ratchets() -> Ratchets:
    return json.loads(RATCHETS.read_text())


def tighten_ratchets(old: Ratchets) -> Ratchets:
    """Return the limits lowered to the figures of this checkout; no limit is raised."""
    return {
        "figures": {
            name: min(figure(), old["figures"].get(name, float("inf")))
            for name, figure in FIGURES.items()
        },
        "shared_class_names": sorted(set(old["shared_class_names"]) & set(shared_class_names())),
        "old_class_names": sorted(set(old["old_class_names"]) & class_names()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", choices=LISTS, help="the places that one figure counts")
    parser.add_argument("--tighten", action="store_true", help="lower the limits of the ratchet")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(LISTS[chosen.list]()))
        return
    if chosen.tighten:
        RATCHETS.write_text(json.dumps(tighten_ratchets(read_ratchets()), indent=2) + "\n")
    limits = read_ratchets()["figures"]
    for name, figure in FIGURES.items():
        print(f"{name:64} {figure():>6}   limit {limits.get(name, '-')}")
    passed, depth = one_call()
    print(f"{'functions passed by one call with one tool':64} {passed:>6}")
    print(f"{'depth of that call':64} {depth:>6}")


if __name__ == "__main__":
    main()
