"""A sandbox for tests: a plain temporary folder and plain processes, honest about both.

It isolates nothing.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from plait.errors import NoSuchFile, NotAFile, OutsideWorkspace
from plait.event.kinds import File, Placement
from plait.ids import Digest
from plait.sandbox import VIEW_MAX, Limits, OnOutput, Output, Ran, Wanted
from plait.workspace import TreeEntry, TreeSnapshot

HERE = Placement("folder", "test", rung="host", network="off", detail={})


class Folder:
    """The files of a folder.

    Whatever a path or a link leads to is resolved first, and refused if it is not inside.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def _inside(self, path: str, *, follow: bool = True) -> Path:
        where = self.root / path
        real = where.resolve() if follow else where.parent.resolve() / where.name
        if path.startswith("/") or not real.is_relative_to(self.root):
            raise OutsideWorkspace(path)
        return real

    def entry(self, path: str) -> TreeEntry:
        where = self._inside(path, follow=not path)
        try:
            found = where.lstat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NoSuchFile(path) from error
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISLNK(found.st_mode):
            return TreeEntry(where.name, "link", 0o777, target=os.readlink(where))
        if stat.S_ISDIR(found.st_mode):
            return TreeEntry(where.name, "folder", mode)
        if not stat.S_ISREG(found.st_mode):
            raise NotAFile(path, "a pipe, a socket or a device")
        return TreeEntry(where.name, "file", mode, found.st_size)

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        where = self._inside(path)
        kind = self.entry(os.path.relpath(where, self.root)).kind
        if kind != "file":
            raise NotAFile(path, f"a {kind}")
        with where.open("rb") as stream:
            stream.seek(offset)
            return stream.read(-1 if size is None else size)

    def write(self, path: str, content: bytes, *, mode: int | None = None) -> None:
        where = self._inside(path)
        if where.exists() and not where.is_file():
            raise NotAFile(path, "a folder, a pipe or a device")
        try:
            where.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise NotAFile(path, "below a file") from error
        new = (
            mode
            if mode is not None
            else stat.S_IMODE(where.stat().st_mode)
            if where.exists()
            else 0o644
        )
        where.write_bytes(content)
        where.chmod(new)

    def remove(self, path: str) -> None:
        self.entry(path)
        subprocess.run(["rm", "-rf", "--", self._inside(path, follow=False)], check=True)

    def list(self, path: str = "") -> Sequence[TreeEntry]:
        where = self._inside(path)
        if not where.is_dir():
            raise NoSuchFile(path)
        names = sorted(child.name for child in where.iterdir())
        return [
            self.entry(f"{path}/{name}" if path else name)
            for name in names
            if not (where / name).is_fifo()
        ]

    def make_folder(self, path: str) -> None:
        self._inside(path).mkdir(parents=True, exist_ok=True)

    def link(self, path: str, target: str) -> None:
        self._inside(path, follow=False).symlink_to(target)

    def chmod(self, path: str, mode: int) -> None:
        self._inside(path).chmod(mode)


class Written:
    """An output that lies on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def view(self, characters: int = VIEW_MAX) -> str:
        text = self.path.read_bytes().decode("utf-8", "replace")
        return (
            text
            if len(text) <= characters
            else f"{text[: characters // 2]}\n[left out]\n{text[-characters // 2 :]}"
        )

    def pieces(self, size: int = 1 << 20) -> Iterator[bytes]:
        with self.path.open("rb") as stream:
            while piece := stream.read(size):
                yield piece


class FolderSandbox:
    """Processes in that folder, ended with all that they started when their time is over."""

    def __init__(self, root: Path, aside: Path, placement: Placement = HERE) -> None:
        self.files, self.placement, self._aside = Folder(root), placement, aside
        self.workdir = str(self.files.root)
        self.kept: dict[Digest, bytes] = {}
        self._number = 0

    def exec(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
    ) -> Ran:
        self._number += 1
        path = self._aside / f"output-{self._number}"
        started, killed = time.monotonic(), ""
        with path.open("wb") as out:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.files.root / cwd,
                env={"PATH": os.environ["PATH"], **(env or {})},
                start_new_session=True,
            )
            try:
                child.communicate(stdin, timeout=limits.time_s if limits else None)
            except subprocess.TimeoutExpired:
                killed = "time"
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
        code = child.returncode if child.returncode >= 0 else 128 - child.returncode
        return Ran(code, Written(path), int((time.monotonic() - started) * 1e6), killed)

    def keep(self, output: Output, name: str, media_type: str = "text/plain") -> File:
        content = b"".join(output.pieces())
        digest = Digest(sha256(content).hexdigest())
        self.kept[digest] = content
        return File(name, media_type, digest)

    def begin(self) -> None: ...
    def close(self) -> None: ...
    def destroy(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def renew(self, seconds: float) -> None: ...

    def snapshot(self) -> TreeSnapshot:
        _not_here()

    def restore(self, tree: Digest) -> None:
        _not_here()

    def fork(self, wanted: Wanted) -> FolderSandbox:
        _not_here()


def _not_here() -> NoReturn:
    raise NotImplementedError("these tests need no trees")
