"""The workflow that a command names: loaded, or refused with the next step."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plait.errors import InvalidValue, PlaitError
from plait.session.safe_text import clean

if TYPE_CHECKING:
    from plait.workflow import Workflow


def load_workflow(target: str, model: str | None = None) -> Workflow:
    """Return the workflow that is named, or raise an error with the next step."""
    from plait.model import find
    from plait.program import load

    import_from_here()
    with loading_errors(target, "workflow"):
        program = load(target)
    if model is not None:
        find(model)  # an unknown model is refused before anything is written
        rebind_model(program, model)
    return program


def rebind_model(program: Workflow, model: str) -> None:
    """Let a program ask another model, also when its runs are resumed."""
    from plait.workflow import name_target, target_of

    name_target(program.to(model=model), {**target_of(program), "model": model})


def load_function(target: str, what: str) -> Callable[..., Any]:
    """Return the function that is named, or raise an error with the next step."""
    from plait.program import load_value

    import_from_here()
    with loading_errors(target, what):
        found = load_value(target, what)
    if not callable(found):
        why = f"{target} is a {type(found).__name__}, and cannot be called"
        raise InvalidValue(what, why, "name a function")
    return found


@contextmanager
def loading_errors(target: str, what: str) -> Generator[None]:
    """Tell what fails while a program is loaded, with the next step."""
    where = target.rpartition(":")[0] or target
    try:
        yield
    except PlaitError:
        raise
    except SystemExit as error:
        raise InvalidValue(what, f"{where} ends the program when it is loaded", _MAIN) from error
    except SyntaxError as error:
        print_debug(error)
        at = f"{_relative_path(error.filename or where)}, line {error.lineno}"
        step = "correct the file and run it again"
        raise InvalidValue(what, f"{at}: {error.msg}", step) from error
    except ImportError as error:
        print_debug(error)
        raise _import_failure(what, where, error) from error
    except Exception as error:
        print_debug(error)
        # the call itself did not fit
        if isinstance(error, TypeError) and _innermost_function(error) == "load":
            step = (
                "write a function that makes it, def make(): return …, and name that: FILE.py:make"
            )
            why = f"{target} cannot be made without arguments: {error}"
            raise InvalidValue(what, why, step) from error
        why = f"{target} cannot be loaded: {error_text(error)}"
        raise InvalidValue(what, why, "correct it and run it again") from error


_MAIN = "put what a script does under if __name__ == '__main__':"


def _import_failure(what: str, where: str, error: ImportError) -> InvalidValue:
    missing = error.name or ""
    if isinstance(error, ModuleNotFoundError) and (
        where == missing or where.startswith(f"{missing}.")
    ):
        return InvalidValue(
            what,
            f"there is no module {missing!r}",
            "name a file, FILE.py:NAME, or go to the folder it is in",
        )
    return InvalidValue(
        what,
        f"{where} cannot be imported: {error_text(error)}",
        "install what it needs, or correct it",
    )


def import_from_here() -> None:
    """Let modules of the current folder be imported, but none in place of one of the standard
    library.
    """
    from plait.program import add_to_path

    add_to_path(os.getcwd())


def _innermost_function(error: BaseException) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].name if frames else ""


def error_text(error: BaseException) -> str:
    """Return an error in one line, with the line of the program, not of Plait, that raised it."""
    from plait.runtime.tracebacks import raised_text

    return raised_text(error)


def _relative_path(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def print_debug(error: BaseException) -> None:
    """Print the whole traceback if PLAIT_DEBUG=1."""
    if os.environ.get("PLAIT_DEBUG") == "1":
        import traceback

        click.echo(clean("".join(traceback.format_exception(error)), lines=True), err=True)
