"""The house rules that a machine can check."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pytest

import plait
from plait import errors
from plait.model.providers import PROVIDERS
from plait.model.settings import parse_settings, table_of_settings
from tests.support import python

ROOT = Path(__file__).parents[2]
VENDORS = {
    "openai",
    "anthropic",
    "mcp",
    "e2b",
    "starlette",
    "uvicorn",
    "psycopg",
    "psycopg_binary",
    "obstore",
    "opentelemetry",
    "ray",
    "pydantic",
    "playwright",
    "rich",
    "pytest",
    "hypothesis",
}


def test_what_is_visible_is_what_is_promised() -> None:
    # also what is loaded when it is asked for
    assert all(getattr(plait, name) is not None for name in plait.__all__)
    visible = {
        name
        for name, value in vars(plait).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert visible - {"annotations"} == set(plait.__all__) <= set(dir(plait))
    assert re.match(r"\d+\.\d+", plait.__version__)
    with pytest.raises(AttributeError):
        plait.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_no_module_takes_the_place_of_a_function_that_is_loaded_later() -> None:
    """Importing a module of `plait` puts it on the package under its name. `tool` is loaded with
    the package, which puts the function there afterwards.
    """
    code = "import plait; print(*[name for name in plait.__all__ if name in vars(plait)])"
    at_once = set(python(code).stdout.split())
    modules = {each.name for each in iter_modules(plait.__path__)}
    assert not modules & (set(plait.__all__) - at_once)


@pytest.mark.parametrize(
    "code",
    [
        "import plait",
        "import plait.testing",
        "from plait.cli import main; main(['--help'], standalone_mode=False)",
    ],
)
def test_no_vendor_is_loaded(code: str) -> None:
    loaded = python(f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)").stderr.split()
    assert "plait" in loaded
    assert VENDORS & set(loaded) == set()


def test_the_error_tree_is_as_drawn() -> None:
    """The picture at the top of plait/errors is the class hierarchy."""
    assert errors.__doc__ is not None
    drawn: dict[str, str] = {}
    branch: list[str] = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"( {4}[│├└─ ]*?)([A-Z]\w+)", line)
        if found and (line.strip().startswith(("├", "└", "│")) or found[2] == "PlaitError"):
            depth = (len(found[1]) - 4) // 4
            branch[depth:] = [found[2]]
            drawn[found[2]] = branch[depth - 1] if depth else "Exception"
    real = {
        name: cls.__bases__[0].__name__
        for name, cls in vars(errors).items()
        if inspect.isclass(cls) and cls.__module__ == errors.__name__
    }
    assert drawn == real


def test_every_target_of_the_makefile_can_be_planned() -> None:
    for target in ("demo", "quick", "test", "cover", "check", "bench", "torture"):
        done = subprocess.run(
            ["make", "-n", target],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"]},
        )
        assert done.returncode == 0, done.stderr


def test_ci_runs_what_a_contributor_types() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "make check" in script
    assert "make test" in script


def test_nothing_reaches_the_network() -> None:
    import socket

    with pytest.raises(RuntimeError, match="a test tried"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    with pytest.raises(RuntimeError, match="a test tried"):
        socket.getaddrinfo("example.org", 80)


# ── settings ─────────────────────────────────────────────────────────────────────────────────

SETTINGS = ROOT / "docs" / "settings.md"
# variables that tests of sandboxes set for themselves
_OF_TESTS = {"PLAIT_CONTRACT_CANARY"}


def test_the_page_of_settings_lists_every_variable() -> None:
    source = ROOT / "src" / "plait"
    texts = [path.read_text() for path in source.rglob("*.py")]
    used = {name for text in texts for name in re.findall(r"\bPLAIT_[A-Z_]+\b", text)}
    listed = set(re.findall(r"\bPLAIT_[A-Z_]+\b", SETTINGS.read_text()))
    assert listed == used - _OF_TESTS
    named = {
        name
        for row in PROVIDERS.values()
        for name in (row.address_variable, row.key_variable, row.version_variable)
        if name
    }
    assert all(f"`{name}`" in SETTINGS.read_text() for name in named)
    assert all(f'`"{name}:' in SETTINGS.read_text() for name in PROVIDERS)


def test_the_page_of_settings_lists_every_key_of_the_file() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (\S+) \|", SETTINGS.read_text(), re.MULTILINE))
    wanted = {
        key: f"`{variable}`" if variable else "–" for key, variable in table_of_settings().items()
    }
    assert {key: rows.get(key) for key in wanted} == wanted
    assert {key for key in rows if "models." in key} == {key for key in wanted if "models." in key}
    [example] = re.findall(r"```text\n(# plait.toml\n.*?)```", SETTINGS.read_text(), re.DOTALL)
    assert set(parse_settings(example, "plait.toml").models) == {
        "openai:gpt-5",
        "openrouter",
        "house",
    }
