"""Programs by name: what a person may name, what a log may name, and files as modules."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plait import Session, replay, resume
from plait.errors import InvalidValue, NeedsWorkflow, PlaitError
from plait.event import kinds as k
from plait.journal.writer import direct_writer
from plait.program import load, recorded_program
from plait.session.ports import Act, Draft
from plait.session.value import position_of
from plait.workflow import Workflow, target_of
from tests.support import child_environment, run_forked

pytestmark = pytest.mark.long  # `make quick` leaves these out

WORKFLOW = """
from plait import Workflow
import helper_beside
class W(Workflow):
    word = "one"
    def forward(self, session):
        import later_beside
        return session.fact("word", helper_beside.WORD + later_beside.WORD + self.word)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "statistics.py").write_text(WORKFLOW)
    (tmp_path / "helper_beside.py").write_text("WORD = 'a'\n")
    (tmp_path / "later_beside.py").write_text("WORD = 'b'\n")
    return tmp_path


# ── files ────────────────────────────────────────────────────────────────────────────────────


def test_a_file_replaces_no_module_and_is_one_object(folder: Path) -> None:
    path, modules = list(sys.path), set(sys.modules)
    first = load(f"{folder / 'statistics.py'}:W")
    assert sys.modules["statistics"] is statistics and sys.path == path
    assert first(Session("x")).facts["word"] == "abone"
    module = sys.modules[type(first).__module__]
    more = set(sys.modules) - modules
    for _ in range(1000):
        assert type(load(f"{folder / 'statistics.py'}:W")) is type(first)
    assert (
        sys.path == path
        and set(sys.modules) - modules == more
        and sys.modules[type(first).__module__] is module
    )
    gc.collect()
    assert [each for each in gc.get_objects() if type(each) is type(first)] == [first]


def test_a_changed_file_is_loaded_anew(folder: Path) -> None:
    file = folder / "statistics.py"
    first = load(f"{file}:W")
    there = file.stat()
    file.write_text(WORKFLOW.replace("one", "two"))  # as long as before, in the same moment
    os.utime(file, ns=(there.st_atime_ns, there.st_mtime_ns))
    second = load(f"{file}:W")
    assert (first(Session("x")).facts["word"], second(Session("x")).facts["word"]) == (
        "abone",
        "abtwo",
    )
    file.write_text("1/0\n")
    with pytest.raises(ZeroDivisionError):
        load(f"{file}:W")
    file.write_text(WORKFLOW.replace("one", "two"))
    assert type(load(f"{file}:W")) is type(second)


def test_two_files_of_one_name_are_two_modules(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "statistics.py").write_text(WORKFLOW.replace("one", "two"))
    one, two = (
        load(f"{folder / 'statistics.py'}:W"),
        load(f"{folder / 'other' / 'statistics.py'}:W"),
    )
    assert (one(Session("x")).facts["word"], two(Session("x")).facts["word"]) == ("abone", "abtwo")


def test_a_file_beside_does_not_stand_in_for_the_standard_library(folder: Path) -> None:
    (folder / "colorsys.py").write_text("raise RuntimeError('not me')\n")
    (folder / "flow.py").write_text("import colorsys\n" + WORKFLOW)
    sys.modules.pop("colorsys", None)
    assert load(f"{folder / 'flow.py'}:W")(Session("x")).facts["word"] == "abone"


def test_types_are_found_in_a_file_that_is_loaded(folder: Path) -> None:
    (folder / "typed.py").write_text(
        "from __future__ import annotations\nimport dataclasses, typing, msgspec\nfrom plait import"
        " Workflow, tool\n@dataclasses.dataclass\nclass Item:\n    of: list[Other]\nclass"
        " Other(msgspec.Struct):\n    name: str\n    items: list[Item] | None = None\n@tool\ndef"
        " look(item: Item) -> str:\n    'Look.'\n    return item.of[0].name\nclass W(Workflow):\n  "
        "  def forward(self, session):\n        typing.get_type_hints(Item)\n        return"
        " session.use(look, item=Item([Other('x')]))\n"
    )
    assert load(f"{folder / 'typed.py'}:W")(Session("x")).result == "x"


def test_a_workflow_from_a_file_is_taken_up_in_another_process(folder: Path) -> None:
    asks = WORKFLOW.replace(
        "return session.fact", "session = session.ask('Which?')\n        return session.fact"
    )
    (folder / "statistics.py").write_text(asks)
    plait = [sys.executable, "-c", "from plait.cli import main; main()"]
    env = child_environment(PLAIT_STORE=str(folder / "store"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return run_forked([*plait, *words], env=env, cwd=folder)

    assert run("run", "statistics.py:W", "-i", "x").returncode == 4
    (session,) = Session.list(store=folder / "store")
    assert session.runs[-1].workflow == "statistics:W"
    assert run("answer", session.inbox.waiting[0].event[:12], "yes").returncode == 0
    done = run("resume", session.short)
    assert done.returncode == 0 and session.reload().facts["word"] == "abone", done.stderr
    assert run("replay", session.short).returncode == 0


def test_a_copy_of_a_workflow_is_not_what_its_file_names(folder: Path) -> None:
    import copy

    first = load(f"{folder / 'statistics.py'}:W")
    assert (
        target_of(first)["name"] == "W"
        and target_of(copy.copy(first)) == target_of(copy.deepcopy(first)) == {}
    )


# ── what a log names ─────────────────────────────────────────────────────────────────────────

LOUD = """
from pathlib import Path
Path({mark!r}).touch()
import subprocess
from plait import Workflow, Agent
import plait as p
from plait.combinators import Sequential as Row

def make(): return Fine()
def hurt(): Path({mark!r}).write_text("called")
class Plain: pass
class Thread(__import__("threading").Thread): pass
class Fine(Workflow):
    def forward(self, session): return session
    class Inner(Workflow): pass
class Finer(Fine): pass
class Finest(p.Workflow): pass
class Rows(Row):
    def __init__(self): super().__init__(Fine())
if True:
    class Within(Finer): pass
try:
    Alias = Finest
except ImportError:
    pass
fine = Fine()
plain = Plain()
made = make()
call = subprocess.call
lam = lambda: hurt()
exec("class Hidden(Workflow): pass")
"""


def started(workflow: str, environment: dict[str, str]) -> Session:
    """A session with a run that its log says is of this program."""
    session = Session("x")
    body = k.RunStarted(workflow, environment=environment)
    spot = msgspec.structs.replace(position_of(session), run="01890000-0000-7000-8000-000000000000")
    direct_writer().write(spot, [Draft(body, Act("human:ann", "program"))])
    return session.reload()


@pytest.mark.parametrize(
    "workflow",
    [
        "os:system",
        "os:abort",
        "subprocess:Popen",
        "subprocess:call",
        "builtins:exec",
        "sys:exit",
        "antigravity:fly",
        "this:d",
        "code:InteractiveConsole",
        "pathlib:Path",
        "plait:resume",
        "plait.session:Session",
        "plait.tools:shell",
        "nowhere_at_all:W",
        "plait.workflow:Workflow.__init__",
        "os.path:join",
        "os:system.__call__",
        ":x",
        "x:",
        "",
        "../x:W",
    ],
)
def test_a_log_has_nothing_called_but_a_workflow(workflow: str) -> None:
    before = set(sys.modules)
    for environment in (
        {},
        {"file": workflow.partition(":")[0], "name": workflow.partition(":")[2]},
    ):
        session = started(workflow, environment)
        for act in (resume, replay):
            with pytest.raises(NeedsWorkflow):
                act(session)
    loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
    assert not loaded & {"antigravity", "this", "code", "nowhere_at_all"}


BAD = [
    "make",
    "hurt",
    "Plain",
    "plain",
    "call",
    "lam",
    "Hidden",
    "Missing",
    "Path",
    "subprocess",
    "Fine.forward",
    "Thread",
    "Fine.Missing",
]
GOOD = ["Fine", "Finer", "Finest", "Rows", "Within", "Alias", "fine", "Fine.Inner"]


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("by", ["file", "module"])
def test_what_a_log_names_is_looked_at_before_it_is_imported(
    name: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, module = tmp_path / "imported", f"loud_{by}_{BAD.index(name)}"
    (tmp_path / f"{module}.py").write_text(LOUD.format(mark=str(mark)))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    environment = {"file": str(tmp_path / f"{module}.py"), "name": name} if by == "file" else {}
    with pytest.raises(NeedsWorkflow):
        resume(started(f"{module}:{name}", environment))
    assert not mark.exists() and module not in sys.modules


@pytest.mark.parametrize("name", ["gone", 5_000 * "x"])  # the system refuses to look for the second
def test_a_file_that_is_not_here_is_named(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.py"
    with pytest.raises(NeedsWorkflow, match="no file .* can be read here") as refused:
        resume(started("gone:Flow", {"file": str(file), "name": "Flow"}))
    assert str(file) in str(refused.value) and "resume(session, Flow(…))" in str(refused.value)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("by", ["file", "module"])
def test_a_workflow_that_a_log_names_is_found(
    name: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"good_{by}_{GOOD.index(name)}"
    (tmp_path / f"{module}.py").write_text(
        LOUD.format(mark=str(tmp_path / "mark")).replace("exec(", "str(")
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    environment = {"file": str(tmp_path / f"{module}.py"), "name": name} if by == "file" else {}
    assert isinstance(recorded_program("s", f"{module}:{name}", environment), Workflow)


def test_a_workflow_is_found_through_packages_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "deep_pkg"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('imported').touch()\nfrom .base"
        " import *\n"
    )
    (package / "base.py").write_text(
        "from plait import *\nclass Base(Workflow):\n    def forward(self, session): return"
        " session\nclass Plain: pass\n"
    )
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "flows.py").write_text(
        "from ..base import Base as Root\nfrom .. import Base\nfrom deep_pkg import base\nimport"
        " deep_pkg.base as other\nclass A(Root): pass\nclass B(Base): pass\nclass C(base.Base):"
        " pass\nclass D(other.Base): pass\nclass E(base.Plain): pass\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(NeedsWorkflow):
        recorded_program("s", "deep_pkg.inner.flows:E", {})
    assert not (package / "imported").exists()
    for name in "ABCD":
        for module in [each for each in sys.modules if each.startswith("deep_pkg")]:
            del sys.modules[module]
        assert type(recorded_program("s", f"deep_pkg.inner.flows:{name}", {})).__name__ == name


def test_a_file_that_others_may_write_is_not_run_because_a_log_says_so(folder: Path) -> None:
    file = folder / "statistics.py"
    file.chmod(0o666)
    with pytest.raises(NeedsWorkflow, match="everybody may write it"):
        recorded_program("s", "statistics:W", {"file": str(file), "name": "W"})
    file.chmod(0o600)
    assert recorded_program("s", "statistics:W", {"file": str(file), "name": "W"}).forward
    load(f"{file}:W")  # a person may say so


def test_a_person_names_a_function_that_makes_one(folder: Path) -> None:
    file = folder / "made.py"
    file.write_text(WORKFLOW + "def make():\n    return W()\n")
    program = load(f"{file}:make")
    session = program(Session("x"))
    assert session.facts["word"] == "abone"
    with pytest.raises(NeedsWorkflow, match="function"):
        replay(session)
    assert replay(session, load(f"{file}:make")).head == session.head
    wrong: list[Any] = ["made.py", ":W", f"{folder / 'none.py'}:W", f"{file}:Missing"]
    for target in wrong:
        with pytest.raises((InvalidValue, PlaitError)):
            load(target)
