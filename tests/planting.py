"""Trees for tests: made from what stands in them, kept in memory, told as what stands in them, and
laid out for git.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from plait.errors import UnknownBlob
from plait.ids import Digest
from plait.workspace import PIECE, NewEntry, TreeEntry
from plait.workspace.tree import EMPTY_BYTES, digest_of, encode, walk

Content = str | bytes | NewEntry
FOLDER = NewEntry("folder", 0o755)


class Blobs(dict[Digest, bytes]):
    """All that a tree asks of a store. Counts what it was asked for."""

    asked = 0

    def __init__(self) -> None:
        super().__init__()
        self.put(EMPTY_BYTES)

    def put(self, content: bytes) -> Digest:
        digest = digest_of(content)
        self[digest] = content
        return digest

    def get_blob(self, digest: Digest) -> bytes:
        self.asked += 1
        if digest not in self:
            raise UnknownBlob(digest)
        return self[digest]

    def plant(self, files: Mapping[str, Content]) -> Digest:
        """A tree with these paths; a text or bytes stand for a file with that content."""
        inside: dict[str, dict[str, Content]] = {}
        entries: list[TreeEntry] = []
        for path, content in files.items():
            name, _, below = path.partition("/")
            if below:
                inside.setdefault(name, {})[below] = content
            elif isinstance(content, NewEntry) and content.kind == "folder":
                inside.setdefault(name, {})
            else:
                entries.append(self._end(name, content))
        for name, below in inside.items():
            folder = files.get(name)
            mode = folder.mode if isinstance(folder, NewEntry) else 0o755
            entries.append(TreeEntry(name, "folder", mode, 0, (self.plant(below),)))
        return self.put(encode(entries))

    def _end(self, name: str, content: Content) -> TreeEntry:
        if isinstance(content, NewEntry) and content.kind == "link":
            return TreeEntry(name, "link", 0o777, 0, (), content.target)
        mode = content.mode if isinstance(content, NewEntry) else 0o644
        raw = (
            content.content
            if isinstance(content, NewEntry)
            else content.encode()
            if isinstance(content, str)
            else content
        )
        pieces = tuple(self.put(raw[at : at + PIECE]) for at in range(0, len(raw), PIECE))
        return TreeEntry(name, "file", mode, len(raw), pieces)

    def told(self, tree: Digest) -> dict[str, Content]:
        """The tree as `plant` takes it: folders only if they are empty or of another mode than
        usual.
        """
        found: dict[str, Content] = {}
        everything = list(walk(self, tree))
        for path, entry in everything:
            if entry.kind == "folder":
                if entry.mode != 0o755 or not any(
                    other.startswith(path + "/") for other, _ in everything
                ):
                    found[path] = NewEntry("folder", entry.mode)
            elif entry.kind == "link":
                found[path] = NewEntry("link", 0o777, target=entry.target)
            else:
                content = b"".join(self[piece] for piece in entry.blobs)
                found[path] = (
                    content if entry.mode == 0o644 else NewEntry("file", entry.mode, content)
                )
        return found


def git(
    folder: Path, *arguments: str, stdin: bytes = b"", check: bool = True
) -> subprocess.CompletedProcess[bytes]:
    """Git as it comes, whatever this machine's own settings are."""
    environment = {
        **os.environ,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        **{
            f"GIT_{who}_{what}": "t@example.org"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        input=stdin,
        capture_output=True,
        env=environment,
        timeout=60,
    )
    assert not check or done.returncode == 0, done.stderr.decode(errors="replace")
    return done


def check_out(files: Mapping[str, Content], folder: Path) -> None:
    for path, content in files.items():
        place = folder / path
        if isinstance(content, NewEntry) and content.kind == "folder":
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, NewEntry) and content.kind == "link":
            place.symlink_to(content.target)
        else:
            node = (
                content
                if isinstance(content, NewEntry)
                else NewEntry(
                    "file", 0o644, content.encode() if isinstance(content, str) else content
                )
            )
            place.write_bytes(node.content)
            place.chmod(node.mode)


def found_in(folder: Path) -> dict[str, tuple[str, bytes, bool]]:
    """Files and links in a folder, as git knows them: kind, content, executable."""
    found: dict[str, tuple[str, bytes, bool]] = {}
    for place in sorted(folder.rglob("*")):
        path = os.fspath(place.relative_to(folder))
        if path.split("/")[0] == ".git":
            continue
        if place.is_symlink():
            found[path] = ("link", os.fsencode(os.readlink(place)), False)
        elif place.is_file():
            found[path] = ("file", place.read_bytes(), bool(place.stat().st_mode & 0o100))
    return found
