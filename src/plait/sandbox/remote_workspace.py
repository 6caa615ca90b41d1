"""The files of a sandbox on another machine as a tree.

One question lists everything with kind, mode, size, times and inode. Paths that look as they did at
the last look have not changed; the others are fetched in one archive. A tree is put in place the
same way: only paths that differ are removed and written.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from plait.errors import SandboxFailed
from plait.ids import Digest
from plait.sandbox.remote_listing import KINDS, ListedPath, Listing, listing_script, parse_listing
from plait.sandbox.remote_shell import FAILED, Shell, quote_word
from plait.store import Store
from plait.workspace import EMPTY, NewEntry, Rules, TreeEntry, TreeReader, TreeSnapshot, shown_path
from plait.workspace.edited import edit_tree
from plait.workspace.rules import NEVER


def fetch_contents(shell: Shell, workdir: str, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Return the contents of files, in one archive if there is GNU tar.

    Files that vanished meanwhile are left out of the archive.
    """
    if not paths:
        return
    names = shell.make_file(b"".join(os.fsencode(path) + b"\0" for path in paths))
    code, content = shell.gather(
        f"cd {quote_word(workdir)} && tar --version | grep -q GNU ||"
        f" {{ rm -f {names}; exit {FAILED}; }}\n"
        f"tar -cf - --format=gnu --no-recursion --ignore-failed-read --null -T {names}; c=$?;"
        f" rm -f {names}; exit $c",
        "fetch files",
    )
    if code in (0, 1):  # 1: a file changed while it was read; the next look sees that
        yield from _archive_contents(content)
        return
    for path in paths:
        yield path, shell.gather(f"cat {quote_word(f'{workdir}/{path}')}", "fetch a file").content


def _archive_contents(content: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(
        fileobj=io.BytesIO(content), encoding="utf-8", errors="surrogateescape"
    ) as archive:
        first: dict[tuple[str, ...], bytes] = {}
        for member in archive:
            if member.islnk():  # a further name of a file that came before
                yield member.name, first[(member.linkname,)]
            elif member.isfile() and (opened := archive.extractfile(member)) is not None:
                first[(member.name,)] = data = opened.read()
                yield member.name, data


def pack_archive(nodes: Mapping[str, NewEntry]) -> bytes:
    """Return an archive of files, links and folders. Owners and times are ignored on unpacking."""
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for path, node in nodes.items():
            member = tarfile.TarInfo(f"./{path}")
            member.mode, member.size = node.mode, len(node.content)
            member.type = {
                "file": tarfile.REGTYPE,
                "link": tarfile.SYMTYPE,
                "folder": tarfile.DIRTYPE,
            }[node.kind]
            member.linkname = node.target
            archive.addfile(member, io.BytesIO(node.content))
    return out.getvalue()


class RemoteWorkspace:
    """The workspace of one sandbox, with the tree and the listing of the last look."""

    def __init__(
        self, shell: Shell, workdir: str, store: Store, rules: Rules, tree: Digest
    ) -> None:
        self.shell, self._workdir, self._rules = shell, workdir, rules
        self._objects = UnsavedBlobs(store)
        self.tree = tree
        self._seen: Listing = {path: _UNSEEN for path, _ in TreeReader(self._objects).walk(tree)}

    def copy(self, shell: Shell) -> RemoteWorkspace:
        """Return the same knowledge for a sandbox that is an exact copy."""
        other = RemoteWorkspace(shell, self._workdir, self._objects.store, self._rules, EMPTY)
        other._objects, other.tree, other._seen = self._objects.copy(), self.tree, dict(self._seen)
        return other

    def fill(self, tree: Digest) -> None:
        """Make the folder, with nothing in it but this tree."""
        place = quote_word(self._workdir)
        made = (
            f"{{ mkdir -p {place} 2> /dev/null || sudo -n install -d -o $(id -u) -g $(id -g)"
            f" {place}; }}"
        )
        self.tree, self._seen = EMPTY, {}
        self._put_tree(
            f"{made} && find {place} -mindepth 1 -maxdepth 1 -exec rm -rf {{}} +", {}, tree
        )

    def snapshot(self) -> TreeSnapshot:
        """Return the tree as it is now.

        Paths that no tree may hold are removed, so that no later command finds them.
        """
        now, left_out = self._list_all(self._drop_script())
        odd = {path for path, seen in now.items() if seen.letter not in KINDS}
        if left_out or odd:
            self._apply("", _topmost_paths(left_out | odd), {})
        found = {path: seen for path, seen in now.items() if seen.letter in KINDS}
        changed = [path for path, seen in found.items() if seen != self._seen.get(path)]
        contents = dict(
            fetch_contents(
                self.shell, self._workdir, [path for path in changed if found[path].letter == "f"]
            )
        )
        changes: dict[str, NewEntry | None] = {
            path: None for path in self._seen if path not in found
        }
        for path in changed:
            changes[path] = _node(found[path], contents.get(path))
        taken = edit_tree(self._objects, self.tree, changes)
        skipped = tuple(sorted(map(shown_path, odd)))
        self.tree, self._seen = taken.tree, found
        return msgspec.structs.replace(
            taken, blobs=self._objects.with_pending(taken.blobs), skipped=(*taken.skipped, *skipped)
        )

    def restore(self, tree: Digest) -> None:
        self._put_tree("", self._list(), tree)

    def _put_tree(self, first: str, now: Listing, tree: Digest) -> None:
        """Replace the files of the listing `now` by those of a tree, after the script `first`."""
        reader = TreeReader(self._objects)
        wanted, known = dict(reader.walk(tree)), dict(reader.walk(self.tree))
        # its content is not stored: the file there stays
        held = {path for path, entry in wanted.items() if entry.kind == "withheld"}
        gone = [
            path
            for path, seen in now.items()
            if path not in held and KINDS.get(seen.letter) != _kind(wanted.get(path))
        ]
        kept = {
            path
            for path, seen in now.items()
            if seen == self._seen.get(path) and _is_same(known.get(path), wanted.get(path))
        }
        due = {
            path: _from_tree(reader, entry)
            for path, entry in wanted.items()
            if path not in kept and path not in held
        }
        self._seen = self._apply(first, _topmost_paths(gone), due)
        self.tree = tree
        self._check_restored(wanted, held)

    def _apply(self, first: str, gone: Sequence[str], due: Mapping[str, NewEntry]) -> Listing:
        steps = [first] if first else []
        steps.append(f"cd {quote_word(self._workdir)}")
        if gone:
            steps.append(
                _use_and_remove(
                    "xargs -0 rm -rf -- <",
                    self.shell.make_file(
                        b"".join(os.fsencode(f"./{path}") + b"\0" for path in gone)
                    ),
                )
            )
        if due:
            steps.append(_use_and_remove("tar -xpomf", self.shell.make_file(pack_archive(due))))
        return self._list(" && ".join(steps))

    def _check_restored(self, wanted: Mapping[str, TreeEntry], held: set[str]) -> None:
        """Raise SandboxFailed if the files are not those of the tree: another program writes
        there.
        """
        for path in {*wanted, *self._seen} - held:
            entry, seen = wanted.get(path), self._seen.get(path)
            if entry is None or seen is None or not _looks_like(seen, entry):
                raise SandboxFailed(
                    self.shell.backend,
                    "restore the workspace",
                    f"{shown_path(path)!r} is not what was put there",
                    "try again",
                )

    def _drop_script(self) -> str:
        """Return a script that removes paths with a name that the rules leave out.

        Paths that are left out by their whole path are found in the listing.
        """
        folders = " -o ".join(f"-name {quote_word(name)}" for name in self._rules.heavy)
        names = [f"-name {quote_word(name)}" for name in (*NEVER, *self._rules.junk)]
        either = " -o ".join([*([f"-type d \\( {folders} \\)"] if folders else []), *names])
        return (
            f"find {quote_word(self._workdir)} -mindepth 1 \\( {either} \\) -prune -exec rm -rf --"
            " {} +"
        )

    def _list(self, before: str = ":") -> Listing:
        return self._list_all(before)[0]

    def _list_all(self, before: str) -> tuple[Listing, set[str]]:
        """Return the listing of paths that a tree may hold, and the paths that it may not."""
        names = [*self._rules.heavy, *NEVER, *self._rules.junk]
        pruned = [name for name in names if not set(name) & set("*?[")]
        script = (
            f'e=$({{ {before}; }} 2>&1) || {{ printf %s "$e"; exit {FAILED};'
            f" }}\n{listing_script(quote_word(self._workdir), None, pruned)}"
        )
        code, content = self.shell.gather(script, "list the workspace")
        if code:
            words = content[-300:].decode(errors="replace")
            raise SandboxFailed(
                self.shell.backend,
                "list or change the workspace",
                f"a script there ended with {code}: {words!r}",
            )
        listing = parse_listing(content)
        out = {
            path
            for path, seen in listing.items()
            if self._rules.leaves_out(*_split(path), is_folder=seen.letter == "d")
        }
        kept = {
            path: seen
            for path, seen in listing.items()
            if path not in out and not any(above in out for above in _folders_above(path))
        }
        return kept, out


class UnsavedBlobs:
    """A store, and blobs that are not in it yet: a tree is stored with the event that records it,
    which follows later.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._blobs: dict[Digest, bytes] = {}

    def get_blob(self, digest: Digest) -> bytes:
        found = self._blobs.get(digest)
        return self.store.get_blob(digest) if found is None else found

    def with_pending(self, blobs: Mapping[Digest, bytes]) -> Mapping[Digest, bytes]:
        """Return these blobs, and those from before, that the store does not have yet."""
        self._blobs.update(blobs)
        missing = self.store.missing_blobs(self._blobs)
        self._blobs = {
            digest: content for digest, content in self._blobs.items() if digest in missing
        }
        return dict(self._blobs)

    def copy(self) -> UnsavedBlobs:
        other = UnsavedBlobs(self.store)
        other._blobs = dict(self._blobs)
        return other


_UNSEEN = ListedPath("?", 0, 0, "")


def _node(seen: ListedPath, content: bytes | None) -> NewEntry | None:
    if seen.letter == "l":
        return NewEntry("link", 0o777, target=seen.target)
    if seen.letter == "d":
        return NewEntry("folder", seen.mode)
    return None if content is None else NewEntry("file", seen.mode, content)


def _from_tree(reader: TreeReader, entry: TreeEntry) -> NewEntry:
    if entry.kind == "link":
        return NewEntry("link", 0o777, target=entry.target)
    if entry.kind == "folder":
        return NewEntry("folder", entry.mode)
    return NewEntry("file", entry.mode, reader.content(entry))


def _kind(entry: TreeEntry | None) -> str:
    return "nothing" if entry is None else entry.kind


def _is_same(known: TreeEntry | None, wanted: TreeEntry | None) -> bool:
    if known is None or wanted is None or known.kind == "folder":
        return (
            known is not None
            and wanted is not None
            and (known.kind, known.mode) == (wanted.kind, wanted.mode)
        )
    return known == wanted


def _looks_like(seen: ListedPath, entry: TreeEntry) -> bool:
    if entry.kind == "link":
        return seen.letter == "l" and seen.target == entry.target
    return (
        KINDS.get(seen.letter) == entry.kind
        and seen.mode == entry.mode
        and (entry.kind == "folder" or seen.size == entry.size)
    )


def _topmost_paths(paths: Iterable[str]) -> list[str]:
    """Return the paths without those that lie below another of them."""
    found = set(paths)
    return [
        path for path in sorted(found) if not any(above in found for above in _folders_above(path))
    ]


def _folders_above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name


def _use_and_remove(command: str, path: str) -> str:
    return f"{{ {command} {path}; c=$?; rm -f {path}; [ $c = 0 ]; }}"
