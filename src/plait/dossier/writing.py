"""Write a dossier: a folder with `dossier.html`, `dossier.json`, and the page of the run.

All files are made before the first one is put in its place. Files that a dossier did not write are
never replaced.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from plait.dossier.making import encode_dossier, make_dossier
from plait.dossier.page import GENERATOR, dossier_page
from plait.dossier.shapes import Dossier
from plait.errors import FileUnwritten, PlaitError
from plait.ids import Micros
from plait.session import Session
from plait.view.chunks import MEDIA_TYPE
from plait.view.file import write_file
from plait.view.html import BuiltPage

PAGE, DATA, RUN = "dossier.html", "dossier.json", "run.html"
# a text that each of these files has, and hardly any other
_SIGNS = {
    PAGE: f'<meta name="generator" content="{GENERATOR}">'.encode(),
    DATA: b'{"format":',
    RUN: f'type="{MEDIA_TYPE}"'.encode(),
}


class WrittenDossier(msgspec.Struct, frozen=True):
    """A folder that was written, the sizes of its files, and what a reader is told first."""

    folder: str
    files: dict[str, int]  # bytes, by name
    status: str
    is_verified: bool
    head: str
    notices: tuple[str, ...]
    left_out: tuple[str, ...]  # what is not there, and why


def write_dossier(
    session: Session,
    folder: Path,
    *,
    made: Micros,
    with_run: bool = True,
    page: BuiltPage | None = None,
) -> WrittenDossier:
    """Write the dossier of a session into a folder, which is made if need be.

    Files of an earlier dossier are replaced. Without a built page there is no `run.html`, and
    `left_out` says so.
    """
    target = _check_folder(folder)
    for name in (PAGE, DATA, RUN):
        _check_own(target / name)
    dossier = make_dossier(session, made=made)
    left_out = list[str]()
    parts = dict[str, Path]()
    try:
        _make_folder(folder, target)
        if with_run:
            parts[RUN] = target / _part_name(RUN)
            try:
                write_file(session, parts[RUN], made=made, page=page)
            except FileUnwritten:
                raise
            except PlaitError as error:
                left_out.append(f"{RUN}: {error.record_text}")
                del parts[RUN]
        _write_part(parts, target, DATA, encode_dossier(dossier))
        document = dossier_page(dossier, has_run=RUN in parts)
        _write_part(parts, target, PAGE, document.encode("utf-8", "replace"))
        files = {name: parts[name].stat().st_size for name in sorted(parts)}
        for name in (RUN, DATA, PAGE):
            if name in parts:
                os.replace(parts[name], target / name)
            else:  # one of an earlier dossier would be about something else
                (target / name).unlink(missing_ok=True)
    except OSError as error:
        raise FileUnwritten(str(folder), error.strerror or str(error)) from error
    finally:
        for part in (target / _part_name(name) for name in (PAGE, DATA, RUN)):
            with suppress(OSError):
                part.unlink(missing_ok=True)
    return _written(dossier, folder, files, left_out)


def _written(
    dossier: Dossier, folder: Path, files: dict[str, int], left_out: list[str]
) -> WrittenDossier:
    verify = dossier.check.verify
    return WrittenDossier(
        str(folder),
        files,
        dossier.status,
        verify is not None and verify.ok,
        dossier.check.head,
        tuple([f"{each.kind}: {each.text}" for each in dossier.notices]),
        tuple([*left_out, *dossier.missing]),
    )


def _write_part(parts: dict[str, Path], folder: Path, name: str, data: bytes) -> None:
    part = folder / _part_name(name)
    part.write_bytes(data)
    parts[name] = part


def _part_name(name: str) -> str:
    return f".{name}.{os.getpid()}.part"


def _check_folder(folder: Path) -> Path:
    """Return the folder that a path leads to. It need not be there."""
    try:
        target = folder.resolve()
        is_other = target.exists() and not target.is_dir()
    except (OSError, RuntimeError) as error:  # a circle of links, no right to look
        raise FileUnwritten(str(folder), str(error)) from error
    if is_other:
        raise FileUnwritten(str(folder), "it is a file, and a dossier is a folder")
    return target


def _make_folder(folder: Path, target: Path) -> None:
    if target.is_dir():
        return
    if not target.parent.is_dir():
        raise FileUnwritten(str(folder), f"there is no folder {target.parent}")
    target.mkdir(exist_ok=True)


def _check_own(path: Path) -> None:
    """Refuse to replace a file that no dossier wrote."""
    try:
        if not path.is_symlink() and not path.exists():
            return
        is_own = not path.is_symlink() and path.is_file() and _SIGNS[path.name] in path.read_bytes()
    except OSError as error:
        raise FileUnwritten(str(path), error.strerror or str(error)) from error
    if not is_own:
        raise FileUnwritten(str(path), "it is there, and no dossier wrote it")
