"""Programs: the workflow that a person names, or that the log of a run names, and its arguments.

A person may name a class, an object, or a function that makes one: `load`. A log is not a person,
and may come from elsewhere: `recorded_program` calls nothing but a Workflow, and imports a module
only after its source was read and has that name as one (`plait.bindings`). Importing a module runs
it from its first line to its last: a file that one would not run, one should not resume.

A file is a module under a private name, so that it replaces no other module, and is executed anew
only when it has changed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import linecache
import os
import stat
import sys
import sysconfig
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from plait.bindings import find_objection
from plait.errors import InvalidValue, NeedsWorkflow, PlaitError
from plait.fingerprint import source_file
from plait.ids import digest
from plait.journal.recorded_run import RecordedRun, first_run
from plait.runtime.start import MAIN, check_forward
from plait.runtime.tracebacks import raised_text
from plait.secrets import stand_ins
from plait.session import Session
from plait.session.ports import store_at
from plait.tool import Tool
from plait.workflow import Workflow, name_target, original, target_of

_AGENT = "plait.agent:Agent"
_GUARD = 'if __name__ == "__main__":'
PRIVATE = "@"  # between the name of a file and the digest of its path, in the name of its module


@runtime_checkable
class Instructed(Protocol):
    """A workflow that lets its caller, and the record of its runs, say what it is to do."""

    def instruct(self, text: str) -> None: ...


def load(target: str) -> Workflow:
    """Return the workflow at FILE:NAME or MODULE:NAME: a class, an object, or a function that makes
    one.
    """
    found = load_value(target, "workflow")
    if isinstance(found, Tool):  # calling it would run it
        raise InvalidValue(
            "workflow",
            f"{target} is a tool, not a workflow",
            "name a Workflow, or a function that makes one",
        )
    made = found if isinstance(found, Workflow) else found()
    if not isinstance(made, Workflow):
        step = "name a Workflow, or a function that makes one"
        raise InvalidValue("workflow", f"{target} is a {type(made).__name__}, not a workflow", step)
    where, _, name = target.rpartition(":")
    file = Path(where)
    name_target(made, {"file": str(file.resolve()) if file.is_file() else where, "name": name})
    return made


def load_value(target: str, what: str) -> Any:
    """Return the value at FILE:NAME or MODULE:NAME. `what` it is to be is told in errors."""
    where, _, name = target.rpartition(":")
    if not where or not name:
        raise InvalidValue(
            what, f"{target!r} does not name one", "write FILE.py:NAME or module:NAME"
        )
    return find_code(where, name, what)


def find_code(where: str, name: str, what: str = "workflow") -> Any:
    """Return the module at FILE or MODULE, or the value of this name in it; "": the module."""
    file = Path(where)
    module = (
        _module_of(file, what)
        if where.endswith(".py") or file.is_file()
        else importlib.import_module(where)
    )
    found: Any = module
    for part in name.split(".") if name else ():
        if not hasattr(found, part):
            step = f"it has: {', '.join(_names_in(module, what)) or f'no {what}s'}"
            raise InvalidValue(what, f"{where} has no {name!r}", step)
        found = getattr(found, part)
    return found


def check_target(where: str, name: str) -> None:
    """Raise unless there is such a module, and the value of this name in it can be a workflow."""
    found, module = find_code(where, name), find_code(where, "")
    kinds = (_is_from, _is_function_from)
    if name and not any(is_meant(found, module.__name__) for is_meant in kinds):
        step = f"it has: {', '.join(_names_in(module, 'workflow')) or 'no workflows'}"
        raise InvalidValue("workflow", f"{where}:{name} is not a workflow", step)


def recorded_program(
    session: str, workflow: str, environment: Mapping[str, str], verb: str = "resume"
) -> Workflow:
    """Return the workflow that the log of a run names.

    Raises NeedsWorkflow, before anything is imported, if that is none.
    """
    where, name = environment.get("file") or "", environment.get("name") or ""
    if not where:
        where, _, name = workflow.partition(":")
    main = environment.get("main") or ""
    missing = partial(
        NeedsWorkflow,
        session,
        workflow,
        verb=verb,
        name=environment.get("name", ""),
        file=os.path.relpath(main) if main else "",
    )
    try:
        if workflow.startswith(MAIN) and where == MAIN[:-1] and _objection(where, name):
            if why := _objection_to_main(main):
                raise missing(why)
            if not _has_main_guard(main):
                why = f"it was started by `python {os.path.relpath(main)}`, which would start again"
                raise missing(why, step=f"Put what starts it under {_GUARD}, and try again")
            where = main
        elif workflow == _AGENT and not environment.get("file"):
            raise missing("an Agent(…) that no class makes has no name to be found by")
        if why := _objection(where, name):
            raise missing(why)
        found = _value_named(
            _module_of(Path(where)) if os.path.isfile(where) else importlib.import_module(where),
            name,
        )
        if why := _objection_to_value(found):  # its source said otherwise
            raise missing(why)
        made: Any = found if isinstance(found, Workflow) else cast("type[Workflow]", found)()
    except InvalidValue as error:
        raise missing(error.why) from error
    except PlaitError:
        raise
    except (Exception, SystemExit) as error:
        raise missing(f"it cannot be made from here: {raised_text(error)}") from error
    if not isinstance(made, Workflow):
        raise missing("that is not a workflow")
    if environment.get("file"):
        name_target(made, {"file": where, "name": name})
    # it was rebound from outside before it ran: `plait run --model`
    if model := environment.get("model"):
        name_target(made.to(model=model), {**target_of(made), "model": model})
    if (instruction := environment.get("instruction")) and isinstance(made, Instructed):
        made.instruct(instruction)  # `plait chat --instruction`
    return made


def _objection_to_main(file: str) -> str:
    """Return why the file that `python` was started with is not loaded for a program in it."""
    if not file:
        return "it was started by `python FILE.py`, or typed in: its file is not on record"
    started = f"it was started by `python {os.path.relpath(file)}`"
    try:
        ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        return f"{started}, which cannot be read: {type(error).__name__}: {error}"
    return ""


def _has_main_guard(file: str) -> bool:
    """True if a file does its work under `if __name__ == "__main__"`, so that it can be loaded."""
    body = ast.parse(Path(file).read_bytes()).body
    tests = [each.test for each in body if isinstance(each, ast.If)]
    return any({"__name__", "'__main__'"} <= _operands(test) for test in tests)


def _operands(test: ast.expr) -> set[str]:
    """Return the two sides of a comparison, as source."""
    if not isinstance(test, ast.Compare):
        return set()
    return {ast.unparse(each) for each in (test.left, *test.comparators)}


def check_workflow(workflow: object) -> None:
    """Raise if a caller passed something else than a workflow, or None."""
    if workflow is not None and not isinstance(workflow, Workflow):
        what = "the class itself" if isinstance(workflow, type) else f"a {type(workflow).__name__}"
        raise InvalidValue(
            "workflow", f"{what} is not a workflow", "pass an object of it: Repair()"
        )


def _names_in(module: ModuleType, what: str) -> list[str]:
    is_meant = _is_from if what == "workflow" else _is_function_from
    return [each for each, value in vars(module).items() if is_meant(value, module.__name__)]


def _is_from(value: Any, module: str) -> bool:
    """Return True if it is a workflow, or a class of them, that was written in this module."""
    return isinstance(value, Workflow) or (
        isinstance(value, type) and issubclass(value, Workflow) and value.__module__ == module
    )


def _is_function_from(value: Any, module: str) -> bool:
    return inspect.isfunction(value) and value.__module__ == module


# ── calling a program again ──────────────────────────────────────────────────────────────────


class ProgramCall(NamedTuple):
    """A program, and the arguments of its `forward` after the session."""

    program: Workflow
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def find_program_call(
    session: Session,
    run: RecordedRun,
    workflow: Workflow | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    is_live: bool = True,
    verb: str = "resume",
) -> ProgramCall:
    """Return the call that a run is of: workflow and arguments as passed, else as recorded.

    A replay, which is not live, may be called with stand-ins for secrets. `verb` is the function
    that the caller is told to pass the workflow to.
    """
    first = first_run(store_at(session.store), run)
    program = workflow
    if program is None:
        program = recorded_program(session.short, first.workflow, first.environment, verb)
    if args or kwargs:
        check_arguments(program, args, kwargs)
        return ProgramCall(program, args, kwargs)
    args, kwargs = _recorded_arguments(session, first, verb)
    if is_live:
        _check_no_stand_ins(session, run.workflow, ProgramCall(program, args, kwargs), verb)
    return ProgramCall(program, args, kwargs)


def check_arguments(program: Workflow, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise if the `forward` of a program cannot be called with these besides the session."""
    check_forward(program, original(type(program)), args, kwargs)


def _recorded_arguments(
    session: Session, run: RecordedRun, verb: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    recorded: Any = getattr(run.started.body, "arguments", None)
    if recorded is None:
        return (), {}
    if "repr" in recorded:
        raise NeedsWorkflow(
            session.short,
            run.workflow,
            f"its arguments are not on record, only how they look: {recorded['repr'][:200]}",
            "…",
            verb,
            name=run.environment.get("name", ""),
        )
    return tuple(recorded.get("args", ())), dict(recorded.get("kwargs", {}))


def _check_no_stand_ins(session: Session, workflow: str, call: ProgramCall, verb: str) -> None:
    """Raise if a secret was taken out of the recorded arguments.

    The program must not take the text that stands there for the secret: the caller passes it again.
    """
    if not call.args and not call.kwargs:
        return
    names = [*inspect.signature(original(type(call.program))).parameters][2:]
    passed = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    hidden = {name: found for name, value in passed.items() if (found := stand_ins(value))}
    if hidden:
        secrets = ", ".join(f"{name} ({', '.join(found)})" for name, found in hidden.items())
        why = (
            "of what its forward takes besides the session a secret was taken out, which is not on"
            f" record: {secrets}"
        )
        more = ", ".join(f"{name}=…" for name in passed)
        raise NeedsWorkflow(session.short, workflow, why, more, verb)


# ── names in a log ───────────────────────────────────────────────────────────────────────────


def _objection(where: str, name: str) -> str:
    """Return why a name in a log is not imported.

    "": it is a Workflow, as far as one can see without importing it.
    """
    if not where or not all(part.isidentifier() for part in name.split(".")):
        return f"{where}:{name} is no name of a class"
    file, is_file = Path(where), os.path.isfile(where)  # False if this user may not look there
    loaded = _loaded_module(file) if is_file else _imported_module(where)
    if loaded is not None:
        found = _value_named(loaded, name)
        return f"{where} has no {name!r}" if found is None else _objection_to_value(found)
    if is_file:
        if not _is_ours(file):
            return f"{where} belongs to another user, or everybody may write it"
        return _objection_in_source(file, "", (str(file.resolve().parent), *sys.path), name)
    if not all(part.isidentifier() for part in where.split(".")):
        return f"there is no file {where} that can be read here"
    path = source_file(where)
    if path is None:
        return f"there is no module {where!r} here whose source could be read first"
    return _objection_in_source(path, where, tuple(sys.path), name)


def _imported_module(name: str) -> ModuleType | None:
    """Return a module that is imported. None: it is not, or another thread has not finished yet."""
    module = sys.modules.get(name)
    is_half = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_half else module


def _objection_in_source(file: Path, module: str, folders: tuple[str, ...], name: str) -> str:
    try:
        return find_objection(file, module, folders, name.split("."))
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        return f"its source cannot be read: {type(error).__name__}: {error}"


def _value_named(module: ModuleType, name: str) -> Any:
    """Return the value with this name in a module, through classes. None: there is none.

    Nothing is called to find it.
    """
    found: Any = module
    for part in name.split("."):
        found = vars(found).get(part) if isinstance(found, (ModuleType, type)) else None
    return found


def _objection_to_value(found: Any) -> str:
    if isinstance(found, Workflow) or (isinstance(found, type) and issubclass(found, Workflow)):
        return ""
    kind = type(cast("object", found)).__name__
    return f"that is a {kind} and no Workflow, which is all that a log can have called"


def _is_ours(file: Path) -> bool:
    """Return True if only this user, or the system's, can have written a file."""
    there, folder = file.stat(), file.resolve().parent.stat()
    shared = folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX
    return there.st_uid in (os.getuid(), 0) and not there.st_mode & stat.S_IWOTH and not shared


# ── files as modules ─────────────────────────────────────────────────────────────────────────


def _module_of(file: Path, what: str = "workflow") -> ModuleType:
    """Return a file as a module, executed as if Python had started in its folder, though no file
    there replaces a module of the standard library.
    """
    if not file.is_file():
        raise InvalidValue(what, f"there is no file {file}", "check the path")
    path = str(file.resolve())
    with _files.lock:
        if (known := _loaded_module(file)) is not None:
            return known
        source = Path(path).read_bytes()
        suffix = digest(b"plait/file/1", os.fsencode(path))[:12]
        name = f"{file.stem.replace('.', '_')}{PRIVATE}{suffix}"
        spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, path))
        assert spec is not None
        module, before = module_from_spec(spec), sys.modules.get(name)
        sys.modules[name] = module
        linecache.cache.pop(path, None)
        try:
            # Not by its loader: that may take an older compilation, if the file was written within
            # the same second.
            with _on_path(str(Path(path).parent)):
                exec(compile(source, path, "exec", dont_inherit=True), vars(module))
        except BaseException:
            if before is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = before
            raise
        _files.modules[path] = _digest_of(source), module
        return module


def _loaded_module(file: Path) -> ModuleType | None:
    """Return the module of a file that is loaded as it is now. None: it is not, or has changed."""
    path = str(file.resolve())
    known = _files.modules.get(path)
    if known is not None:
        return known[1] if known[0] == _digest_of(Path(path).read_bytes()) else None
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == path and module.__name__ != "__main__":
            return module
    return None


def _digest_of(source: bytes) -> str:
    return digest(b"plait/source/1", source)


def add_to_path(folder: str) -> bool:
    """Let modules in a folder be found, after those of the standard library.

    Returns True if the folder was not on the path before.
    """
    if folder in sys.path:
        return False
    library = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    places = [at for at, path in enumerate(sys.path) if path and _is_library(path, library)]
    sys.path.insert(max(places, default=-1) + 1, folder)
    return True


def _is_library(path: str, library: set[str]) -> bool:
    real = os.path.realpath(path)
    return (
        real in library
        or os.path.dirname(real) in library
        and os.path.basename(real) == "lib-dynload"
    )


@contextmanager
def _on_path(folder: str) -> Generator[None]:
    added = add_to_path(folder)
    try:
        yield
    finally:
        if added and folder in sys.path:
            sys.path.remove(folder)
        _files.find_beside(folder)


class _LoadedFiles:
    """The files that this process loaded as modules, and a finder of the modules beside them.

    Imports that come when a workflow runs find those modules; all other finders come first.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        # by path: a digest of the source, and the module
        self.modules: dict[str, tuple[str, ModuleType]] = {}
        self._folders: list[str] = []

    def find_beside(self, folder: str) -> None:
        if folder not in self._folders:
            self._folders.append(folder)
        if self not in sys.meta_path:
            sys.meta_path.append(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, self._folders) if path is None else None


_files = _LoadedFiles()
