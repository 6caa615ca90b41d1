"""The reach of a version: imports in functions, types of parameters, and values that have a say
in how they are read.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.program import load
from tests.support import child_environment

pytestmark = pytest.mark.long  # `make quick` leaves these out

HEAD = """
import functools, json, msgspec, weakref, contextvars, threading, pydantic, copyreg, attrs
from dataclasses import dataclass, field
from plait import tool
from plait.policy import Ask, Policy
"""
TOOL = "@tool\ndef wire({0}) -> str:\n    'Wire.'\n    {1}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    _forget(tmp_path, before)


def _forget(folder: Path, before: set[str]) -> None:
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
    importlib.invalidate_caches()


def _version(folder: Path, files: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    """The version of the tool in `reach.py`, or the digest of the policy, and what it does not
    cover.
    """
    before = set(sys.modules)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    importlib.invalidate_caches()
    module = importlib.import_module("reach")
    found = module.wire.fingerprint if hasattr(module, "wire") else module.policy.fingerprint
    _forget(folder, before)
    return found


PACKAGE = {
    "pkg/__init__.py": "",
    "pkg/inner/__init__.py": "",
    "pkg/inner/leaf.py": "def way(): return 'sepa'\n",
}


@pytest.mark.parametrize(
    ("statement", "more"),
    [
        ("from pkg.inner import leaf; return leaf.way()", {}),
        ("import pkg.inner.leaf; return pkg.inner.leaf.way()", {}),
        ("import pkg.inner.leaf as leaf; return leaf.way()", {}),
        ("from near import way; return way()", {"near.py": "from pkg.inner.leaf import way\n"}),
        (
            "import near; return near.go()",
            {"near.py": "def go():\n    from pkg.inner import leaf\n    return leaf.way()\n"},
        ),
        (
            "from pkg import go; return go()",
            {"pkg/__init__.py": "from .inner.leaf import way as go\n"},
        ),
        (
            "from pkg import go; return go()",
            {
                "pkg/__init__.py": "from .mid import *\n",
                "pkg/mid.py": "from .inner.leaf import way as go\n",
            },
        ),
        (
            "from pkg.other import x",
            {"pkg/other.py": "x = ''\n", "pkg/__init__.py": "from .inner import leaf\n"},
        ),
        (
            "from space import near; return near.way()",
            {"space/near.py": "from pkg.inner.leaf import way\n"},
        ),
        ("import importlib; return importlib.import_module('pkg.inner.leaf').way()", {}),
        ("return __import__('near').way()", {"near.py": "from pkg.inner.leaf import way\n"}),
        (
            "return (lambda: __import__('near').way())()",
            {"near.py": "import pkg.inner.leaf as leaf\ndef way(): return leaf.way()\n"},
        ),
    ],
)
def test_imports_in_a_function_count_through_packages_and_other_modules(
    folder: Path, statement: str, more: dict[str, str]
) -> None:
    files = {**PACKAGE, **more, "reach.py": HEAD + TOOL.format("amount: int", statement)}
    before = _version(folder, files)
    assert _version(folder, files) == before and before[1] == ()
    assert (
        _version(folder, {**files, "pkg/inner/leaf.py": "def way(): return 'swift'\n"})[0]
        != before[0]
    )


def test_relative_imports_in_a_function_count(folder: Path) -> None:
    text = HEAD + TOOL.format(
        "amount: int", "from . import near; from .inner.leaf import way; return near.way()"
    )
    files = {
        **PACKAGE,
        "pkg/near.py": "from .inner.leaf import way\n",
        "pkg/flow.py": text,
        "reach.py": "from pkg.flow import wire\n",
    }
    before = _version(folder, files)
    assert (
        _version(
            folder, {**files, "pkg/near.py": "from .inner.leaf import way as other\nway = other\n"}
        )[0]
        != before[0]
    )
    assert (
        _version(folder, {**files, "pkg/near.py": PACKAGE["pkg/inner/leaf.py"] + "\n# more\n"})[0]
        != before[0]
    )
    assert (
        _version(folder, {**files, "pkg/inner/leaf.py": "def way(): return 'swift'\n"})[0]
        != before[0]
    )


def test_a_module_of_the_program_in_a_closure_counts(folder: Path) -> None:
    text = (
        "import near\ndef make(held):\n    @tool\n    def wire(amount: int) -> str:\n       "
        " 'Wire.'\n        return held.way()\n"
    )
    files = {
        "near.py": "def way(): return 'sepa'\n",
        "reach.py": HEAD + text + "    return wire\nwire = make(near)\n",
    }
    before = _version(folder, files)
    assert (
        before[1] == ()
        and _version(folder, {**files, "near.py": "def way(): return 'swift'\n"})[0] != before[0]
    )
    listed = {**files, "reach.py": files["reach.py"].replace("make(near)", "make([near])")}
    assert _version(folder, listed)[1]


def test_an_import_beside_a_file_that_was_loaded_counts(tmp_path: Path) -> None:
    found = list[str]()
    for word in ("sepa", "swift"):
        (tmp_path / "beside_reach.py").write_text(f"def way(): return {word!r}\n")
        text = HEAD + TOOL.format("amount: int", "import beside_reach; return beside_reach.way()")
        (tmp_path / "flow.py").write_text(
            text + "from plait import Workflow\nclass Flow(Workflow):\n    tools = [wire]\n"
        )
        flow = load(f"{tmp_path / 'flow.py'}:Flow")
        found.append(vars(type(flow))["tools"][0].version)
    assert found[0] != found[1]


def test_imports_in_circles_end(folder: Path) -> None:
    files = {
        "a.py": "import b\n",
        "b.py": "import a\nX = 1\n",
        "reach.py": HEAD + TOOL.format("amount: int", "import a; return ''"),
    }
    assert _version(folder, files)[0] != _version(folder, {**files, "b.py": "import a\nX = 2\n"})[0]


def test_an_import_of_what_has_no_source_is_not_covered(folder: Path) -> None:
    files = {
        "compiled.py": "X = 1\n",
        "reach.py": HEAD + TOOL.format("amount: int", "import compiled; return ''"),
    }
    assert _version(folder, files)[1] == ()
    (folder / "compiled.py").unlink()
    (folder / "compiled.pyc").write_bytes(b"")
    (unknown,) = _version(folder, {"reach.py": files["reach.py"]})[1]
    assert "compiled" in unknown


CHANGES = {
    "__post_init__ of a dataclass": (
        "@dataclass\nclass Pay:\n    amount: int\n    def __post_init__(self): self.amount *= 1\n"
        + TOOL.format("pay: Pay", "return ''"),
        ("*= 1", "*= 2"),
    ),
    "a method of a parameter's type": (
        "@dataclass\nclass Pay:\n    amount: int\n    def total(self): return 1\n"
        + TOOL.format("pay: Pay", "return pay.total()"),
        ("return 1", "return 2"),
    ),
    "a default factory of a dataclass": (
        "def first(): return [1]\n@dataclass\nclass Pay:\n    amounts: list[int] ="
        " field(default_factory=first)\n" + TOOL.format("pay: Pay", "return ''"),
        ("[1]", "[2]"),
    ),
    "__post_init__ of a struct": (
        "class Pay(msgspec.Struct):\n    amount: int\n    def __post_init__(self): self.amount"
        " *= 1\n" + TOOL.format("pay: Pay", "return ''"),
        ("*= 1", "*= 2"),
    ),
    "a default factory of a struct": (
        "def first(): return [1]\nclass Pay(msgspec.Struct):\n    amounts: list[int] ="
        " msgspec.field(default_factory=first)\n" + TOOL.format("pay: Pay", "return ''"),
        ("[1]", "[2]"),
    ),
    "a default of a struct that is called": (
        "class Pay(msgspec.Struct):\n    amount: int = 1\n"
        + TOOL.format("amount: int", "return str(Pay())"),
        ("= 1", "= 2"),
    ),
    "a default of a struct in a policy": (
        (
            "class Pay(msgspec.Struct):\n    amount: int = 1\npolicy = Policy(Ask(when=lambda call:"
            " Pay().amount > 1))\n"
        ),
        ("= 1\n", "= 2\n"),
    ),
    "a default of an inherited struct": (
        "class Base(msgspec.Struct):\n    amount: int = 1\nclass Pay(Base): pass\n"
        + TOOL.format("amount: int", "return str(Pay())"),
        ("= 1", "= 2"),
    ),
    "a validator of a pydantic model": (
        "class Pay(pydantic.BaseModel):\n    amount: int\n    @pydantic.field_validator('amount')\n"
        "    @classmethod\n    def check(cls, value): return value * 1\n"
        + TOOL.format("pay: Pay", "return ''"),
        ("* 1", "* 2"),
    ),
    "how a validator of a pydantic model is used": (
        "class Pay(pydantic.BaseModel):\n    amount: int\n    other: int = 3\n   "
        " @pydantic.field_validator('amount', mode='after')\n    @classmethod\n    def check(cls,"
        " value): return value * 1\n" + TOOL.format("pay: Pay", "return ''"),
        ("'after'", "'before'"),
    ),
    "a function in a field of a pydantic model": (
        "from typing import Annotated\ndef twice(value): return value * 1\nclass"
        " Pay(pydantic.BaseModel):\n    amount: Annotated[int, pydantic.AfterValidator(twice)]\n"
        + TOOL.format("pay: Pay", "return ''"),
        ("* 1", "* 2"),
    ),
    "a default factory of a pydantic model": (
        "def first(): return 1\nclass Pay(pydantic.BaseModel):\n    amount: int ="
        " pydantic.Field(default_factory=first)\n" + TOOL.format("pay: Pay", "return ''"),
        ("return 1", "return 2"),
    ),
    "a private attribute of a pydantic model": (
        "class Pay(pydantic.BaseModel):\n    _rate: int = pydantic.PrivateAttr(default=1)\n    def"
        " go(self): return self._rate\n" + TOOL.format("amount: int", "return Pay().go()"),
        ("=1", "=2"),
    ),
    "a pydantic model in a policy": (
        (
            "class Pay(pydantic.BaseModel):\n    amount: int = 1\npolicy = Policy(Ask(when=lambda"
            " call: Pay().amount > 1))\n"
        ),
        ("= 1\n", "= 2\n"),
    ),
    "a converter of attrs": (
        "def times(value): return value * 1\n@attrs.define\nclass Pay:\n    amount: int ="
        " attrs.field(converter=times)\n" + TOOL.format("amount: int", "return str(Pay(amount))"),
        ("* 1", "* 2"),
    ),
    "a type in a field of a parameter's type": (
        "@dataclass\nclass Item:\n    amount: int\n    def __post_init__(self): self.amount *= 1\n"
        "@dataclass\nclass Pay:\n    items: dict[str, list[Item] | None]\n"
        + TOOL.format("pay: Pay", "return ''"),
        ("*= 1", "*= 2"),
    ),
    "a type in a collection": (
        "@dataclass\nclass Item:\n    amount: int\n    def __post_init__(self): self.amount *= 1\n"
        + TOOL.format("pay: list[Item] | None = None", "return ''"),
        ("*= 1", "*= 2"),
    ),
    "the base of a parameter's type": (
        "class Base:\n    def __post_init__(self): self.amount *= 1\n@dataclass\nclass Pay(Base):\n"
        "    amount: int\n" + TOOL.format("pay: Pay", "return ''"),
        ("*= 1", "*= 2"),
    ),
    "a wrapper around a function of the standard library": (
        "def route(x): return 1\n@functools.wraps(json.loads)\ndef load(*a, **k): return route(a)\n"
        + TOOL.format("amount: int", "return str(load(amount))"),
        ("return 1", "return 2"),
    ),
    "a tool that is a wrapper around a function of the standard library": (
        (
            "def route(x): return 1\ndef wire(amount: int) -> str:\n    'Wire.'\n    return"
            " route(amount)\nfunctools.update_wrapper(wire, json.dumps, ('__module__',"
            " '__qualname__'), ())\ndel wire.__wrapped__\nwire = tool(wire)\n"
        ),
        ("return 1", "return 2"),
    ),
    "a class with the name of one of the standard library": (
        "@functools.wraps(json.JSONDecoder, assigned=('__module__', '__qualname__', '__name__'),"
        " updated=())\nclass Decoder:\n    def go(self): return 1\n"
        + TOOL.format("amount: int", "return str(Decoder().go())"),
        ("return 1", "return 2"),
    ),
    "a function in an object that wraps it": (
        "class Logged:\n    def __init__(self, function): functools.update_wrapper(self, function);"
        " self.count = 0\n    def __call__(self, *a): return self.__wrapped__(*a)\n@Logged\ndef"
        " send(amount): return 1\n" + TOOL.format("amount: int", "return send(amount)"),
        ("return 1", "return 2"),
    ),
    "a function behind a cached property": (
        "class Pay:\n    @functools.cached_property\n    def total(self): return 1\n"
        + TOOL.format("amount: int", "return Pay().total"),
        ("return 1", "return 2"),
    ),
    "a function behind a partial method": (
        "class Pay:\n    def of(self, n): return n\n    total = functools.partialmethod(of, 1)\n"
        + TOOL.format("amount: int", "return Pay().total()"),
        ("of, 1", "of, 2"),
    ),
    "a function behind a descriptor of one's own": (
        "class Once:\n    def __init__(self, f): self.f = f\n    def __get__(self, it, cls=None):"
        " return self.f(it)\nclass Pay:\n    @Once\n    def total(self): return 1\n"
        + TOOL.format("amount: int", "return Pay().total"),
        ("return 1", "return 2"),
    ),
    "a type in a typed dict": (
        "import typing\n@dataclass\nclass Item:\n    amount: int\n    def __post_init__(self):"
        " self.amount *= 1\nclass Pay(typing.TypedDict):\n    items: list[Item]\n"
        + TOOL.format("pay: Pay", "return ''"),
        ("*= 1", "*= 2"),
    ),
    "a metaclass": (
        "class Meta(type):\n    def __call__(cls, *a): return 1\nclass Pay(metaclass=Meta): pass\n"
        + TOOL.format("amount: int", "return str(Pay(amount))"),
        ("return 1", "return 2"),
    ),
    "a metaclass that has an answer to any name": (
        "class Meta(type):\n    def __getattr__(cls, name): return 1\nclass Pay(metaclass=Meta):"
        " pass\n" + TOOL.format("amount: int", "return str(Pay.rate)"),
        ("return 1", "return 2"),
    ),
    "the object of a weak reference": (
        (
            "class Box:\n    def __init__(self, t): self.t = t\nbox = Box('a')\ndef make(ref):\n   "
            " @tool\n    def wire(amount: int) -> str:\n        'Wire.'\n        return ref().to\n "
            "   return wire\nwire = make(weakref.ref(box))\n"
        ),
        ("'a'", "'b'"),
    ),
    "the object of a weak proxy": (
        (
            "class Box:\n    def __init__(self, t): self.t = t\nbox = Box('a')\ndef make(ref):\n   "
            " @tool\n    def wire(amount: int) -> str:\n        'Wire.'\n        return ref.to\n   "
            " return wire\nwire = make(weakref.proxy(box))\n"
        ),
        ("'a'", "'b'"),
    ),
    "a rule of one's own": (
        (
            "class Own(Ask):\n    def decide(self, call): return super().decide(call) if 1 else"
            " None\npolicy = Policy(Own())\n"
        ),
        ("if 1", "if call"),
    ),
}
HIDES = {
    "__getstate__": (
        "class Box:\n    def __init__(self, t): self.t = t\n    def __getstate__(self): return"
        " {}\nbox = Box('a')\n"
    ),
    "__getstate__ with slots": (
        "class Box:\n    __slots__ = ('t',)\n    def __init__(self, t): self.t = t\n"
        "    def __getstate__(self): return ()\nbox = Box('a')\n"
    ),
    "__reduce__": (
        "class Box:\n    def __init__(self, t): self.t = t\n    def __reduce__(self): return"
        " 'box'\nbox = Box('a')\n"
    ),
    "__reduce_ex__": (
        "class Box:\n    def __init__(self, t): self.t = t\n    def __reduce_ex__(self, n): return"
        " Box, ()\nbox = Box('a')\n"
    ),
    "__reduce__ of a base": (
        "class Base:\n    def __reduce__(self): return Box, ()\nclass Box(Base): pass\nbox ="
        " Box()\nbox.to = 'a'\n"
    ),
    "a registered reducer": (
        "class Box(list): pass\ncopyreg.pickle(Box, lambda box: (Box, ()))\nbox = Box(['a'])\n"
    ),
    "__getstate__ of the object": (
        "class Box: pass\nbox = Box()\nbox.to, box.__getstate__ = 'a', lambda: {}\n"
    ),
    "__getnewargs__": "class Box(str):\n    def __getnewargs__(self): return ()\nbox = Box('a')\n",
    "__reduce__ of a list": (
        "class Box(list):\n    def __reduce__(self): return Box, ()\nbox = Box(['a'])\n"
    ),
    "__iter__ of a list": (
        "class Box(list):\n    def __iter__(self): return iter(())\nbox = Box(['a'])\n"
    ),
    "items of a dict": "class Box(dict):\n    def items(self): return ()\nbox = Box(to='a')\n",
    "__reduce__ of an exception": (
        "class Box(Exception):\n    def __reduce__(self): return Box, ()\nbox = Box('a')\n"
    ),
}
CLOSED = """
def make(box):
    @tool
    def wire(amount: int) -> str:
        "Wire."
        return str(box)
    return wire
wire = make(box)
"""
HIDDEN = {
    f"an object that hides its state by {name}": (text + CLOSED, ("'a'", "'b'"))
    for name, text in HIDES.items()
}


@pytest.mark.parametrize("name", [*CHANGES, *HIDDEN])
def test_a_change_in_what_runs_is_another_version(folder: Path, name: str) -> None:
    text, (old, new) = (CHANGES | HIDDEN)[name]
    assert text.count(old) == 1
    before = _version(folder, {"reach.py": HEAD + text})
    assert _version(folder, {"reach.py": HEAD + text}) == before and before[1] == ()
    assert _version(folder, {"reach.py": HEAD + text.replace(old, new)})[0] != before[0]


VALUES = {  # whether all of it is covered, and the same in every process
    "Pay": True,
    "Pay(amount=3)": True,
    "[Pay(amount=3), {'a': Pay}]": True,
    "Generic[int](item=3)": True,
    "Plain(1)": True,
    "Meta('x', (), {})": True,
    "weakref.ref(Pay)": True,
    "threading.Event()": True,
    "functools.singledispatch(len)": True,
    "threading.current_thread()": False,
    "environ": False,
    "[environ]": False,
    "random.Random()": False,
    "contextvars.ContextVar('x', default=1)": False,
    "contextvars.copy_context()": False,
    "threading.local()": False,
    "weakref.WeakSet([Pay])": False,
    "weakref.WeakKeyDictionary({Pay: 1})": False,
    "pydantic.TypeAdapter(Pay)": False,
    "concurrent.futures.ThreadPoolExecutor()": False,
    "asyncio.new_event_loop()": False,
    "tempfile.TemporaryDirectory()": False,
    "Hidden(1.5)": False,
}
STABLE = """
import asyncio, concurrent.futures, datetime, functools, random, sys, tempfile, threading, typing, weakref, contextvars, pydantic
from dataclasses import dataclass
from os import environ
from plait import tool
from plait.policy import Ask, Policy
T = typing.TypeVar("T")
class Item(pydantic.BaseModel):
    tags: set[str] = {"a", "b", "c"}
class Pay(pydantic.BaseModel):
    model_config = {"frozen": True}
    amount: int = pydantic.Field(default=1, ge=0)
    item: Item | None = None
    when: datetime.date = datetime.date(2020, 1, 1)
    @pydantic.field_validator("amount")
    @classmethod
    def check(cls, value): return value
    @pydantic.computed_field
    @property
    def twice(self) -> int: return self.amount * 2
class Generic(pydantic.BaseModel, typing.Generic[T]):
    item: T
@pydantic.dataclasses.dataclass
class Plain:
    amount: int
class Meta(type): pass
class Hidden(datetime.timedelta):
    def __reduce__(self): return Hidden, ()
def make(closed):
    def look() -> str:
        "Look."
        return str(closed)
    return [tool(look).fingerprint, Policy(Ask(when=lambda call: closed)).fingerprint]
for value in VALUES:
    held = eval(value)
    found = [*make(held), Policy(Ask(when=lambda call: held)).fingerprint]
    print(*[each.digest if each.unknown == () else "unknown" for each in found])
"""  # noqa: E501


def test_a_value_is_the_same_in_every_process_or_is_said_to_be_unknown(tmp_path: Path) -> None:
    outputs: list[list[str]] = []
    for seed, folder in (("1", "a"), ("77", "b")):
        file = tmp_path / folder / "stable.py"
        file.parent.mkdir()
        file.write_text(STABLE.replace("VALUES", repr(list(VALUES))))
        env = child_environment(PYTHONHASHSEED=seed, SOME_VARIABLE=folder)
        done = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())
    for (value, covered), first, second in zip(VALUES.items(), *outputs, strict=True):
        assert first == second, value
        assert ("unknown" not in first) is covered and (
            covered or set(first.split()) == {"unknown"}
        ), value


def test_a_helper_by_singledispatch_stays_covered_once_it_was_called(folder: Path) -> None:
    text = (
        "@functools.singledispatch\ndef send(x): return 1\n@send.register\ndef _(x: int):"
        " return 2\n"
    )
    text += TOOL.format("amount: int", "return str(send(amount))")
    before = _version(folder, {"reach.py": HEAD + text})
    called = _version(folder, {"reach.py": HEAD + text + "send(3)\n"})
    assert before == called and before[1] == ()


def test_a_file_that_has_the_name_of_a_module_of_the_library_is_the_programs_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "flow.py").write_text(
        HEAD
        + "import sched\n"
        + TOOL.format("amount: int", "return sched.way()")
        + "print(wire.version)\n"
    )
    found = list[str]()
    for word in ("sepa", "swift"):
        (tmp_path / "sched.py").write_text(f"def way(): return {word!r}\n")
        env = child_environment(PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run(
            [sys.executable, "flow.py"], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert found[0] != found[1]
