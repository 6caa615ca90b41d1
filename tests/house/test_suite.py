"""The tests' own house: a helper is written once, and found in `tests/support`."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.left_to_ci import LEFT_TO_CI
from tests.support import ROOT

TESTS = ROOT / "tests"
APART = {
    "guests/autogen_team.py",
    "guests/langgraph_team.py",
    "guests/mini_swe_agent.py",
    "sandbox/remote/standin_execd.py",
}
"""Programs for the Python of a guest or of a small image, which cannot import `tests`."""
STATEMENTS_MIN, LINES_MIN = 3, 5
"""A helper of this size is a copy under any name; a smaller one only under the same name."""

Helper = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class _Plain(ast.NodeTransformer):
    """Takes from a helper all that a copy may say in other words: its names, annotations and
    docstrings.
    """

    def __init__(self, helper: Helper) -> None:
        self._names = {helper.name: "helper"}
        # what a class is, not how it says it
        fields = [node.target for node in helper.body if isinstance(node, ast.AnnAssign)]
        for node in ast.walk(helper):
            if node in fields:
                continue
            if isinstance(node, ast.arg):
                self._number(node.arg)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                self._number(node.id if isinstance(node, ast.Name) else node.attr)

    def _number(self, name: str) -> None:
        self._names.setdefault(name, f"name{len(self._names)}")

    def visit(self, node: ast.AST) -> Any:
        for field in ("name", "arg", "id", "attr"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                setattr(node, field, self._names.get(name, name))
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, Helper):
            node.body = _without_docstring(node.body)
        return self.generic_visit(node)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    has_docstring = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    return body[1:] if has_docstring else body


def _helpers(source: str) -> Iterator[Helper]:
    """Functions, fixtures and classes at the top of a module that are not tests."""
    for node in ast.parse(source).body:
        if isinstance(node, Helper) and not node.name.startswith(("test_", "Test")):
            yield node


def _is_large(helper: Helper) -> bool:
    statements = sum(isinstance(node, ast.stmt) for node in ast.walk(helper)) - 1
    if statements >= STATEMENTS_MIN:
        return True
    return len(ast.unparse(ast.fix_missing_locations(helper)).splitlines()) >= LINES_MIN


def copied_helpers(sources: dict[str, str]) -> list[str]:
    """The helpers that stand in two modules or more, each with all its places."""
    places: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for module, source in sources.items():
        for helper in _helpers(source):
            name = helper.name
            plain = _Plain(helper).visit(helper)
            if plain.body:
                key = "" if _is_large(plain) else name
                places[key, ast.dump(plain)][module] = name
    copies = [found for found in places.values() if len(found) > 1]
    return sorted(
        ", ".join(f"{name} in {module}" for module, name in found.items()) for found in copies
    )


def test_no_helper_is_written_twice() -> None:
    sources = {
        str(path.relative_to(TESTS)): path.read_text() for path in sorted(TESTS.rglob("*.py"))
    }
    copies = copied_helpers(
        {module: source for module, source in sources.items() if module not in APART}
    )
    assert copies == [], "move these to tests/support, or to a module of their room: " + "; ".join(
        copies
    )


ONE = '''
class Clock(Live):
    """Ahead."""
    def __init__(self, seconds: float) -> None:
        self.ahead = seconds
    def now(self) -> int:
        return super().now() + self.ahead
'''


KINDS = "def kinds(session):\n    return [event.kind for event in session.events]"


@pytest.mark.parametrize(
    ("one", "other", "is_copy"),
    [
        (
            ONE,
            ONE.replace("Clock", "Later")
            .replace("ahead", "_more")
            .replace("seconds", "s")
            .replace("Ahead", "Of tomorrow"),
            True,
        ),
        (ONE, ONE.replace("+", "-"), False),
        (
            KINDS,
            KINDS.replace("event ", "each ")
            .replace("event.", "each.")
            .replace("(session)", "(session: Session) -> list[str]"),
            True,
        ),
        (KINDS, KINDS.replace("def kinds", "def names"), False),
        (
            "class Wrong(Exception):\n    '''So.'''",
            "class Wrong(Exception):\n    '''Otherwise.'''",
            False,
        ),
        (KINDS.replace("kinds", "test_kinds"), KINDS.replace("kinds", "test_kinds"), False),
    ],
)
def test_a_copy_is_found_though_its_names_differ(one: str, other: str, is_copy: bool) -> None:
    assert bool(copied_helpers({"one": one, "other": other})) is is_copy


@pytest.mark.parametrize(
    "path", sorted(Path(support.__file__).parent.glob("[a-z]*.py")), ids=lambda path: path.stem
)
def test_what_a_module_of_support_defines_can_be_imported_from_support(path: Path) -> None:
    defined = {
        helper.name for helper in _helpers(path.read_text()) if not helper.name.startswith("_")
    }
    assert defined <= set(support.__all__)
    assert all(ast.get_docstring(helper) for helper in _helpers(path.read_text()))


@pytest.mark.parametrize("file", LEFT_TO_CI)
def test_tests_that_are_left_to_ci_exist(file: str) -> None:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    found = set[str]()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            # tests of a contract stand in its class
            found |= {name for name in LEFT_TO_CI[file] if name.startswith(f"{node.name}::")}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    assert set(LEFT_TO_CI[file]) <= found
