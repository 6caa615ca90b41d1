"""The modules that a log may name: one is imported only if its source says that the name is a
Workflow, however it is bound.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.errors import NeedsWorkflow
from plait.program import load, recorded_program
from plait.workflow import Workflow

HEAD = """
from pathlib import Path
Path(__file__).with_suffix(".mark").touch()
import contextlib, copy, functools, subprocess, sys, typing
from dataclasses import dataclass
from plait import Agent, Workflow
from plait.combinators import Parallel, Sequential

class Plain: pass
class Fine(Workflow):
    def forward(self, session): return session
    class Inner(Workflow): pass
    @classmethod
    def build(cls, *names): return cls()
    @staticmethod
    def other(): return Plain()
    def twice(self): return Sequential(self, self)
    def again(self): return self
class Finer(Fine): pass
fine = Fine()
def hurt(): raise SystemExit(3)
def make(): return Fine()
def make_plain(): return Plain()
def same(value): return value
def swap(cls): return hurt
def keep(cls):
    cls.kept = True
    return cls
def keeping(word):
    def inner(cls): return cls
    return inner
def swapping(word):
    def inner(cls): return Plain
    return inner
FLOWS = {"a": Fine}
@contextlib.contextmanager
def around(): yield hurt
"""

BAD = [
    "flow = make_plain()",
    "flow = hurt",
    "flow = Plain()",
    "flow = subprocess.Popen",
    "flow = subprocess.run(['true'])",
    "flow = lambda: Fine()",
    "flow = fine(3)",
    "flow = Fine()(3)",
    "flow = make",
    "flow = functools.partial(Fine)",
    "flow = FLOWS['a']()",
    "flow = [Fine()]",
    "flow = [Fine()][0]",
    "flow = Fine.other()",
    "flow = Fine().missing",
    "flow = Fine.forward",
    "flow = same(hurt)",
    "flow = same(Plain())",
    "flow = (lambda: hurt)()",
    "flow = getattr(subprocess, 'call')",
    "flow = __import__('subprocess').call",
    "flow = type('flow', (), {})",
    "flow = None",
    "flow = Fine() or hurt",
    "flow = hurt if FLOWS else Fine()",
    "flow: Workflow = hurt",
    "flow, other = hurt, Fine()",
    "flow, *others = [hurt, Fine()]",
    "flow, other = make()",
    "other = flow = hurt",
    "flow = Fine()\nflow = hurt",
    "flow = Fine()\nflow += 1",
    "flow = Fine()\nwith around() as flow: pass",
    "flow = Fine()\nwith around() as (flow, other): pass",
    "with around():\n    flow = hurt",
    "flow = Fine()\nfor flow in [hurt]: pass",
    "flow = Fine()\nfor a, (b, flow) in []: pass",
    "for flow in [hurt]: break",
    "flow = Fine()\nwhile FLOWS:\n    flow = hurt\n    break",
    "flow = Fine()\n(flow := hurt)",
    "flow = Fine()\nif (flow := hurt): pass",
    "flow = Fine()\n[flow := each for each in [hurt]]",
    "print(flow := hurt)",
    "flow = Fine()\nimport subprocess as flow",
    "flow = Fine()\nfrom subprocess import call as flow",
    "import subprocess as flow",
    "try:\n    flow = hurt\nexcept Exception:\n    flow = Fine()",
    "try:\n    flow = Fine()\nexcept Exception:\n    flow = hurt",
    "try:\n    raise ValueError\nexcept ValueError as flow:\n    pass",
    "try:\n    pass\nfinally:\n    flow = hurt",
    "try:\n    import nothing_there as flow\nexcept ImportError:\n    flow = hurt",
    "if FLOWS:\n    flow = hurt\nelse:\n    flow = Fine()",
    "if FLOWS:\n    flow = Fine()\nelif Plain:\n    flow = hurt",
    "flow = Fine()\nmatch [hurt]:\n    case [flow]: pass",
    "match hurt:\n    case flow: pass",
    "flow = Fine()\nmatch {'a': 1}:\n    case {**flow}: pass",
    "match [hurt]:\n    case [*flow]: pass",
    "match hurt:\n    case (str() | int()) as flow: pass\n    case _: flow = hurt",
    "globals()['flow'] = Fine()",
    "flow = Fine()\nglobals()['flow'] = hurt",
    "flow = Fine()\nglobals().update(flow=hurt)",
    "flow = Fine()\nglobals().update({'flow': hurt})",
    "flow = Fine()\nvars()['flow'] = hurt",
    "flow = Fine()\nfor name in ['flow']: globals()[name] = hurt",
    "flow = Fine()\nsetattr(sys.modules[__name__], 'flow', hurt)",
    "flow = Fine()\nsys.modules[__name__].__dict__['flow'] = hurt",
    "flow = Fine()\nsys.modules[__name__].flow = hurt",
    "flow = Fine()\nvars(sys.modules[__name__])['flow'] = hurt",
    "flow = Fine()\ndef rebind(): globals()['flow'] = hurt\nrebind()",
    "flow = Fine()\nclass Rebinds:\n    global flow\n    flow = hurt",
    "flow = Fine()\nclass Rebinds:\n    exec('flow = hurt', globals())",
    "flow = Fine()\nexec('flow = hurt')",
    "flow = Fine()\ndel flow",
    "flow = Fine()\ndef rebind():\n    global flow\n    flow = hurt\nrebind()",
    "@same\ndef flow(): return Fine()",
    "@functools.cache\ndef flow(): return Fine()",
    "async def flow(): return Fine()",
    "async def build(): return Fine()\nflow = build()",
    "def build(): yield Fine()\nflow = build()",
    "@swap\nclass flow(Workflow): pass",
    "@swapping(1)\nclass flow(Workflow): pass",
    "@subprocess.Popen\nclass flow(Workflow): pass",
    "@(lambda cls: hurt)\nclass flow(Workflow): pass",
    "class flow(Plain): pass",
    "class flow(make_plain()): pass",
    "class flow(Workflow): pass\nclass flow: pass",
    "def build():\n    if FLOWS: return Fine()\n    return hurt\nflow = build()",
    "def build() -> Workflow: return hurt\nflow = build()",
    "def build(): pass\nflow = build()",
    "def build(): return build()\nflow = build()",
    "def build(x): return x\nflow = build()",
    "def build():\n    with around() as made: return made\nflow = build()",
    "@swap\ndef build(): return Fine()\nflow = build()",
    "if __name__ == '__main__':\n    flow = Fine()",
    "if typing.TYPE_CHECKING:\n    flow = Fine()",
    "from binding_helper import flow",
    "from binding_helper import *",
    "flow = Fine()\nfrom binding_helper import *",
    "from binding_helper import make_hurt\nflow = make_hurt()",
    "import binding_helper\nflow = binding_helper.flow",
    "import binding_helper as other\nflow = other.make_hurt()",
    "import binding_helper\nother = binding_helper\nflow = other.flow",
]
GOOD = [
    "flow = Fine()",
    "flow = Finer()",
    "flow = fine",
    "flow = Sequential(Fine(), Finer())",
    "flow = Parallel(a=Fine())",
    "flow = Agent('Do it.')",
    "flow = make()",
    "flow = Fine.build()",
    "flow = Finer.build('a')",
    "flow = Fine().to(model='scripted')",
    "flow = Fine().again()",
    "flow = Fine().twice()",
    "flow = same(Fine())",
    "flow = same(same)(Fine())",
    "flow = Fine() if FLOWS else Finer()",
    "flow: Workflow = Fine()",
    "other, flow = hurt, Fine()",
    "flow = hurt\nflow = Fine()",
    "flow = None\nif FLOWS:\n    flow = Fine()",
    "with open(__file__):\n    flow = Fine()",
    "try:\n    import nothing_there\nexcept ImportError:\n    flow = Fine()",
    (
        "try:\n    from nothing_there import Base\nexcept ImportError:\n    Base = Workflow\nclass"
        " flow(Base): pass"
    ),
    "for each in [1, 2]:\n    flow = Fine()",
    "match 3:\n    case 3: flow = Fine()\n    case _: flow = Finer()",
    "if (flow := Fine()): pass",
    "class flow(Fine): pass",
    "class flow(Plain, Workflow): pass",
    "class flow(Workflow): pass\nclass flow(flow): pass",
    "@dataclass\nclass flow(Workflow):\n    name: str = ''",
    "@typing.final\n@keep\nclass flow(Workflow): pass",
    "@keeping('a')\nclass flow(Workflow): pass",
    (
        "T = typing.TypeVar('T')\nclass Base(Workflow, typing.Generic[T]): pass\nclass"
        " flow(Base[int]): pass"
    ),
    "def base(): return Fine\nclass flow(base()): pass",
    (
        "def build(name):\n    steps = [Fine() for _ in range(2)]\n    built = Sequential(*steps)\n"
        "    return built\nflow = build('a')"
    ),
    "def build(name='a'):\n    if name: return Fine()\n    return make()\nflow = build()",
    "def build() -> Workflow: return FLOWS['a']()\nflow = build()",
    "def build() -> 'Fine': return FLOWS['a']()\nflow = build()",
    "def build():\n    class Local(Workflow): pass\n    return Local()\nflow = build()",
    "def build():\n    from binding_helper import Other\n    return Other()\nflow = build()",
    "@functools.lru_cache\ndef build(): return Late()\nclass Late(Workflow): pass\nflow = build()",
    "from binding_helper import Other as flow",
    "from binding_helper import *\nflow = Other()",
    "from binding_helper import make_other\nflow = make_other()",
    "import binding_helper as other\nflow = other.Other()",
    "import binding_helper\nother = binding_helper\nflow = other.Other()",
    "flow = Fine()\nif __name__ == '__main__':\n    flow = hurt()",
    "vars(Fine)['flow' if not FLOWS else 'build']\nfine.__dict__['name'] = 1\nflow = Fine()",
    "def cache(name):\n    globals()[name] = hurt\nflow = Fine()",
]
HELPER = """
from plait import Workflow
class Other(Workflow): pass
def flow(): raise SystemExit(3)
def make_hurt(): return flow
def make_other(): return Other()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def _file(folder: Path, text: str) -> Path:
    (folder / "binding_helper.py").write_text(
        HELPER if " import *\nflow = Other" not in text else HELPER.replace("def flow", "def _flow")
    )
    (folder / "program.py").write_text(HEAD + text + "\n")
    return folder / "program.py"


@pytest.mark.parametrize("text", BAD)
def test_a_name_that_is_no_workflow_is_refused_before_its_module_is_imported(
    folder: Path, text: str
) -> None:
    file = _file(folder, text)
    compile(file.read_text(), str(file), "exec")
    with pytest.raises(NeedsWorkflow):
        recorded_program("s", "program:flow", {"file": str(file), "name": "flow"})
    assert not file.with_suffix(".mark").exists()


@pytest.mark.parametrize("text", GOOD)
def test_a_name_that_is_a_workflow_is_found_however_it_is_bound(folder: Path, text: str) -> None:
    file = _file(folder, text)
    assert isinstance(
        recorded_program("s", "program:flow", {"file": str(file), "name": "flow"}), Workflow
    )
    assert isinstance(load(f"{file}:flow"), Workflow)


@pytest.mark.parametrize(
    "text",
    [
        "Fine.Inner = hurt",
        "setattr(Fine, 'Inner', hurt)",
        "del Fine.Inner\nFine.Inner: object = hurt",
    ],
)
def test_a_name_in_a_class_may_be_bound_again(folder: Path, text: str) -> None:
    file = _file(folder, text)
    with pytest.raises(NeedsWorkflow):
        recorded_program("s", "program:Fine.Inner", {"file": str(file), "name": "Fine.Inner"})
    assert not file.with_suffix(".mark").exists()
    assert isinstance(
        recorded_program("s", "program:Fine", {"file": str(file), "name": "Fine"}), Workflow
    )


def test_a_factory_that_hides_what_it_makes_says_what_to_write(folder: Path) -> None:
    file = _file(folder, "def build(): return FLOWS['a']()\nflow = build()")
    with pytest.raises(NeedsWorkflow, match="def build.* -> Workflow"):
        recorded_program("s", "program:flow", {"file": str(file), "name": "flow"})


@pytest.mark.parametrize(
    "text",
    [
        "from other_half import *",
        "from other_half import flow",
        "import other_half\nflow = other_half.flow",
    ],
)
def test_modules_that_import_each_other_are_read_to_an_end(folder: Path, text: str) -> None:
    (folder / "other_half.py").write_text("from program import *\nfrom program import flow\n")
    with pytest.raises(NeedsWorkflow):
        recorded_program("s", "program:flow", {"file": str(_file(folder, text)), "name": "flow"})
