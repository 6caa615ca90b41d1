"""Measures how easily the code is read: the figures that a house test keeps from growing.

    python tools/figures.py            # of this checkout
    python tools/figures.py --list participles

Sizes and names are read from the source; what one call passes through is counted while it runs.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "plait"

# The names by which code asked whether something is on record before there was a journal.
ASKS_FOR_RECORD = re.compile(
    r"\b(on_record|was_on_record|follows|goes_on|joined|next_of|ends_here|before_branch|is_inherited"
    r"|branched_off|went_on_without|take_delivery|check_all_taken)\(|\brecord\.strict\b"
    r"|\brun\.(take|peek|ended)\(|\brecord is (not )?None"
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
CONTAINERS = frozenset(
    "dict list set defaultdict deque Counter OrderedDict WeakKeyDictionary WeakValueDictionary"
    " WeakSet local count SimpleQueue Queue".split()
)


def modules(*, contracts: bool = True) -> Iterator[tuple[Path, str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if not contracts and path.is_relative_to(SOURCE / "testing"):
            continue
        text = path.read_text()
        yield path, text, ast.parse(text)


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


# ── sizes ────────────────────────────────────────────────────────────────────────────────────


def class_sizes() -> list[tuple[int, str]]:
    found = [
        (
            sum(isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) for part in node.body),
            node.name,
        )
        for _, _, tree in modules(contracts=False)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    return sorted(found, reverse=True)


def module_sizes() -> list[tuple[int, str]]:
    return sorted(((text.count("\n"), name_of(path)) for path, text, _ in modules()), reverse=True)


def session_members() -> list[str]:
    from plait import Session

    return [name for name in dir(Session) if not name.startswith("_")]


# ── names ────────────────────────────────────────────────────────────────────────────────────


def shared_class_names() -> dict[str, list[str]]:
    where: dict[str, list[str]] = defaultdict(list)
    for path, _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                where[node.name.lstrip("_")].append(name_of(path))
    return {name: paths for name, paths in sorted(where.items()) if len(set(paths)) > 1}


def functions() -> list[tuple[str, str]]:
    return [
        (node.name, name_of(path))
        for path, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and not node.name.startswith("__")
    ]


def is_bare_participle(name: str) -> bool:
    word = name.strip("_")
    return "_" not in word and (word in IRREGULAR or (word.endswith("ed") and len(word) > 4))


def participles() -> list[tuple[str, str]]:
    return [(name, where) for name, where in functions() if is_bare_participle(name)]


# ── prose ────────────────────────────────────────────────────────────────────────────────────


def docstrings() -> list[tuple[str, str]]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        (text, f"{name_of(path)}:{getattr(node, 'lineno', 1)}")
        for path, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
    ]


def comments() -> list[str]:
    found: list[str] = []
    for _, text, _ in modules():
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
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
        (line.strip(), f"{name_of(path)}:{number}")
        for path, text, _ in modules()
        if not name_of(path).startswith(rooms)
        for number, line in enumerate(text.splitlines(), 1)
        if ASKS_FOR_RECORD.search(line) and not line.lstrip().startswith(("#", "def ", '"""'))
    ]


def private_ignores() -> list[tuple[str, str]]:
    return [
        (line.strip(), f"{name_of(path)}:{number}")
        for path, text, _ in modules()
        for number, line in enumerate(text.splitlines(), 1)
        if "reportPrivateUsage" in line
    ]


def mutable_state() -> list[tuple[str, str]]:
    """Names of modules that functions change: containers in lower case, and what is declared
    global.
    """
    found: set[tuple[str, str]] = set()
    for path, _, tree in modules():
        for node in tree.body:
            target = node.target if isinstance(node, ast.AnnAssign) else None
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if (
                isinstance(target, ast.Name)
                and target.id != target.id.upper()
                and _is_container(value)
            ):
                found.add((target.id, name_of(path)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Global):
                found.update((each, name_of(path)) for each in node.names)
    return sorted(found)


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


def figures() -> dict[str, object]:
    every = functions()
    words = docstrings()
    passed, depth = one_call()
    return {
        "methods of the largest classes": ", ".join(
            f"{size} {name}" for size, name in class_sizes()[:3]
        ),
        "lines outside journal/ that ask whether something is recorded": len(lines_that_ask()),
        "ignores of private use": len(private_ignores()),
        "class names in two modules or more": len(shared_class_names()),
        "functions named by a bare participle, %": round(100 * len(participles()) / len(every), 1),
        "who/what/somebody per 1,000 words of prose": round(prose_rate(), 1),
        "docstrings that begin with a question word, %": round(
            100 * len(questioning_docstrings()) / len(words), 1
        ),
        "module-level mutable state": len(mutable_state()),
        "longest modules, lines": ", ".join(f"{size} {name}" for size, name in module_sizes()[:3]),
        "functions passed by one call with one tool": passed,
        "depth of that call": depth,
        "public members of Session": len(session_members()),
    }


LISTS = {
    "classes": lambda: [f"{size:5} {name}" for size, name in class_sizes()[:20]],
    "asks": lambda: [f"{where}: {line}" for line, where in lines_that_ask()],
    "private": lambda: [f"{where}: {line}" for line, where in private_ignores()],
    "shared": lambda: [
        f"{name}: {', '.join(paths)}" for name, paths in shared_class_names().items()
    ],
    "participles": lambda: [f"{where}: {name}" for name, where in participles()],
    "questions": lambda: [f"{where}: {line}" for line, where in questioning_docstrings()],
    "state": lambda: [f"{where}: {name}" for name, where in mutable_state()],
    "modules": lambda: [f"{size:5} {name}" for size, name in module_sizes()[:40]],
    "members": session_members,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", choices=LISTS, help="what one figure counts")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(LISTS[chosen.list]()))
        return
    for name, figure in figures().items():
        print(f"{name:64} {figure}")


if __name__ == "__main__":
    main()
