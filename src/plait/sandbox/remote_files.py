"""The files of a sandbox on another machine: single ones by path, and all of them as a tree.

One question lists everything with kind, mode, size, times and inode. What looks as it did when we
last looked has not changed; what has is fetched in one archive, and a tree is put in place the same
way: only paths that differ are removed and written.
"""

from __future__ import annotations

import io
import os
import tarfile
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from plait.errors import NoSuchFile, NotAFile, OutsideWorkspace, SandboxFailed
from plait.ids import Digest
from plait.sandbox.remote_shell import (
    FAILED,
    FOLDER,
    MISSING,
    ODD,
    OUTSIDE,
    SHORT,
    Shell,
    quoted,
    refuse,
)
from plait.store import Store
from plait.workspace import EMPTY, Entry, Node, Rules, Snapshot, TreeReader, shown
from plait.workspace.edited import edited
from plait.workspace.rules import NEVER
from plait.workspace.tree import parts_of

_LETTERS = {"f": "file", "l": "link", "d": "folder"}
_FORMATS = {0o100000: "f", 0o120000: "l", 0o040000: "d"}


class Seen(NamedTuple):
    """One path as a listing shows it. Equal means: nothing happened to it."""

    letter: str  # f, l, d, or whatever else there is
    mode: int
    size: int
    stamp: str  # when it changed, and which inode it is
    target: str = ""

    def entry(self, name: str) -> Entry:
        if self.letter == "l":
            return Entry(name, "link", 0o777, 0, (), self.target)
        return Entry(
            name,
            "folder" if self.letter == "d" else "file",
            self.mode,
            self.size if self.letter == "f" else 0,
        )


Listing = dict[str, Seen]


class RemoteFiles:
    """`Files` by scripts.

    Each checks where a path really leads before it touches anything: links are the sandbox's, not
    ours.
    """

    def __init__(self, shell: Shell, workdir: str) -> None:
        self.shell, self.workdir = shell, workdir

    def entry(self, path: str) -> Entry:
        names = self._names(path)
        found = parse(self._run(path, f"{self._near(names)}\n{_IS_THERE}\n{listing_of(_THERE, 0)}"))
        (seen,) = found.values() or (None,)
        if seen is None:
            raise NoSuchFile(path)
        if seen.letter not in _LETTERS:
            raise NotAFile(path, "neither a file nor a folder")
        return seen.entry(names[-1] if names else "")

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        taken = "cat" if size is None else f"head -c {size}"
        script = f'{self._far(self._names(path))}\n{_A_FILE}\ntail -c +{offset + 1} "$p" | {taken}'
        return self._run(path, script)

    def write(self, path: str, content: bytes, *, mode: int | None = None) -> None:
        names = self._names(path)
        if not names:
            raise NotAFile(path, "a folder")
        laid = "" if len(content) <= SHORT else self.shell.lay(content)
        given = (
            f'cat {laid} > "$t"; rm -f {laid}'
            if laid
            else f'printf %s {b64encode(content).decode()} | base64 -d > "$t"'
        )
        bits = f"{mode & 0o777:o}" if mode is not None else ""
        self._run(
            path,
            f"{self._made(names[:-1])}\n{self._near(names)}\n{_WRITE.format(given=given, bits=bits)}",  # noqa: E501
        )

    def remove(self, path: str) -> None:
        names = self._names(path)
        if not names:
            raise OutsideWorkspace(path, "the workspace itself cannot be removed")
        self._run(path, f'{self._near(names)}\n{_IS_THERE}\nrm -rf -- "$p"')

    def list(self, path: str = "") -> Sequence[Entry]:
        script = (
            f'{self._far(self._names(path))}\n[ -d "$p" ] || exit {ODD}\n{listing_of(_THERE, 1)}'
        )
        code, content = self.shell.gather(script, "list a folder")
        if code == ODD:
            raise NotAFile(path, "not a folder")
        refuse(code, path)
        found = parse(content)
        return [
            found[name].entry(name)
            for name in sorted(found, key=os.fsencode)
            if found[name].letter in _LETTERS
        ]

    def make_folder(self, path: str) -> None:
        self._run(path, self._made(self._names(path)))

    def link(self, path: str, target: str) -> None:
        names = self._names(path)
        place = f"{self._made(names[:-1])}\n{self._near(names)}"
        self._run(
            path,
            f'{place}\n[ -d "$p" ] && [ ! -L "$p" ] && exit {FOLDER}\nrm -f -- "$p"; ln -s --'
            f' {quoted(target)} "$p"',
        )

    def chmod(self, path: str, mode: int) -> None:
        self._run(path, f'{self._far(self._names(path))}\n{_IS_THERE}\nchmod {mode & 0o777:o} "$p"')

    def enter(self, path: str) -> str:
        """A script that goes to a folder of the workspace, to be put before another."""
        return f'{self._far(self._names(path))}\ncd -- "$p" 2> /dev/null || exit {MISSING}'

    def _run(self, path: str, script: str) -> bytes:
        code, content = self.shell.gather(script, "reach a file")
        refuse(code, path)
        return content

    def _names(self, path: str) -> list[str]:
        names = parts_of(path)
        if path.startswith("/") or ".." in names or "\0" in path:
            raise OutsideWorkspace(path)
        return names

    def _near(self, names: Sequence[str]) -> str:
        """$p is what stands at the path; a link at its end is not followed."""
        if not names:
            return f"{_INSIDE.format(root=quoted(self.workdir))}\np=$w"
        folder = quoted("/".join([self.workdir, *names[:-1]]))
        return (
            f"{_INSIDE.format(root=quoted(self.workdir))}\nresolve {folder};"
            f' p="$p/"{quoted(names[-1])}'
        )

    def _far(self, names: Sequence[str]) -> str:
        """$p is what the path leads to, links followed."""
        return (
            f"{_INSIDE.format(root=quoted(self.workdir))}\nresolve"
            f" {quoted('/'.join([self.workdir, *names]))}"
        )

    def _made(self, names: Sequence[str]) -> str:
        """The folders on the way exist. Each is made in one that is known to be inside."""
        steps = [
            quoted("/".join([self.workdir, *names[: count + 1]])) for count in range(len(names))
        ]
        return "\n".join(
            [_INSIDE.format(root=quoted(self.workdir)), *[f"step {step}" for step in steps]]
        )


# $w is where the workspace really is. A name may end in a newline, which $(…) would eat: hence the
# dot. What is missing may be missing outside, and then that is what is said: nobody learns from us
# what there is.
_INSIDE = f"""r={{root}}; w=$(readlink -f -- "$r") || exit {MISSING}
inside() {{{{ case $1 in "$w"|"$w"/*) ;; *) exit {OUTSIDE};; esac; }}}}
lost() {{{{
  q=$1
  while [ "$q" != "$r" ]; do q=${{{{q%/*}}}}; if p=$(readlink -f -- "$q"); then inside "$p"; break; fi; done
  exit {MISSING}
}}}}
resolve() {{{{
  p=$(readlink -f -- "$1" && echo .) || lost "$1"
  p=${{{{p%??}}}}; inside "$p"
  [ -e "$p" ] || exit {MISSING}
}}}}
step() {{{{
  if [ -e "$1" ] || [ -L "$1" ]; then resolve "$1"; [ -d "$p" ] || exit {ODD}; else mkdir -- "$1" || exit {ODD}; fi
}}}}"""  # noqa: E501

_THERE = '"$p"'
_IS_THERE = f'[ -e "$p" ] || [ -L "$p" ] || exit {MISSING}'
_A_FILE = f'[ -d "$p" ] && exit {FOLDER}\n[ -f "$p" ] || exit {ODD}'

# A link is followed as long as it leads to a file inside; the file appears whole or not at all.
_WRITE = f"""if [ -L "$p" ]; then resolve "$p"; fi
[ -d "$p" ] && exit {FOLDER}
b={{bits}}
if [ -e "$p" ]; then [ -f "$p" ] || exit {ODD}; b=${{{{b:-$(stat -c %a "$p")}}}}; fi
t=${{{{p%/*}}}}/.plait-$$.tmp
{{given}}
chmod "${{{{b:-644}}}}" "$t" && mv -f -- "$t" "$p" """


# ── listings ─────────────────────────────────────────────────────────────────────────────────


def listing_of(start: str, depth: int | None, pruned: Iterable[str] = ()) -> str:
    """A script that lists a folder: itself (0), what is in it (1), or everything below (None),
    without folders of certain names.
    """
    span = {0: "-maxdepth 0", 1: "-mindepth 1 -maxdepth 1", None: "-mindepth 1"}[depth]
    names = " -o ".join(f"-name {quoted(name)}" for name in pruned)
    prune = f"-type d \\( {names} \\) -prune -o" if names else ""
    go, place = ("", '"$1"') if depth == 0 else ('cd -- "$1" && ', ".")
    # Where find cannot print, as in small images, a loop does the same, slowly: stat tells times by
    # the second there, so contents are hashed, lest a change within that second is missed.
    return f"""set -- {start}
if find / -maxdepth 0 -printf '' 2> /dev/null
then find "$1" {span} {prune} -printf '%y %m %s %C@ %T@ %i\\0%l\\0%P\\0'
else {go}find {place} {span} {prune} -exec sh -c 'for p; do
  s=; if [ -f "$p" ] && [ ! -L "$p" ]; then s=$(sha256sum < "$p"); fi
  printf "%s %s\\0%s\\0%s\\0" "$(stat -c "%f %s" -- "$p")" "${{s%% *}}" "$(readlink -- "$p")" "${{p#./}}"; done' x {{}} +
fi"""  # noqa: E501


def parse(content: bytes) -> Listing:
    fields = [os.fsdecode(field) for field in content.split(b"\0")[:-1]]
    return {
        path: _seen(head.split(" "), target)
        for head, target, path in zip(*[iter(fields)] * 3, strict=True)
    }


def _seen(head: Sequence[str], target: str) -> Seen:
    if len(head[0]) == 1:
        letter, bits, size, *stamp = head
        mode = int(bits, 8)
    else:
        raw, size, *stamp = head
        mode, letter = int(raw, 16), _FORMATS.get(int(raw, 16) & 0o170000, "?")
    if letter == "d":
        return Seen(letter, mode & 0o777, 0, "")  # whatever happens in a folder changes its times
    return Seen(letter, mode & 0o777, int(size), " ".join(stamp), target)


# ── trees ────────────────────────────────────────────────────────────────────────────────────


def fetched(shell: Shell, workdir: str, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The contents of files, in one archive if there is tar.

    What vanished meanwhile is left out.
    """
    if not paths:
        return
    names = shell.lay(b"".join(os.fsencode(path) + b"\0" for path in paths))
    code, content = shell.gather(
        f"cd {quoted(workdir)} && tar --version | grep -q GNU || {{ rm -f {names}; exit {FAILED};"
        f" }}\ntar -cf - --format=gnu --no-recursion --ignore-failed-read --null -T {names}; c=$?;"
        f" rm -f {names}; exit $c",
        "fetch files",
    )
    if code in (0, 1):  # 1: a file changed while it was read; the next look sees that
        yield from _unpacked(content)
        return
    for path in paths:
        yield path, shell.gather(f"cat {quoted(f'{workdir}/{path}')}", "fetch a file").content


def _unpacked(content: bytes) -> Iterator[tuple[str, bytes]]:
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


def packed(nodes: Mapping[str, Node]) -> bytes:
    """An archive of files, links and folders. Owners and times are whatever they become there."""
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
    """The workspace of one sandbox as we know it: the tree it was when we last looked, and how its
    files looked then.
    """

    def __init__(
        self, shell: Shell, workdir: str, store: Store, rules: Rules, tree: Digest
    ) -> None:
        self.shell, self._workdir, self._rules = shell, workdir, rules
        self._objects = Pending(store)
        self.tree = tree
        self._seen: Listing = {path: _UNSEEN for path, _ in TreeReader(self._objects).walk(tree)}

    def copy(self, shell: Shell) -> RemoteWorkspace:
        """The same, in a sandbox that is an exact copy."""
        other = RemoteWorkspace(shell, self._workdir, self._objects.store, self._rules, EMPTY)
        other._objects, other.tree, other._seen = self._objects.copy(), self.tree, dict(self._seen)
        return other

    def fill(self, tree: Digest) -> None:
        """Make the folder, with nothing in it but this tree."""
        place = quoted(self._workdir)
        made = (
            f"{{ mkdir -p {place} 2> /dev/null || sudo -n install -d -o $(id -u) -g $(id -g)"
            f" {place}; }}"
        )
        self.tree, self._seen = EMPTY, {}
        self._put(f"{made} && find {place} -mindepth 1 -maxdepth 1 -exec rm -rf {{}} +", {}, tree)

    def snapshot(self) -> Snapshot:
        """The tree as it is now.

        What no tree may hold is removed, so that no later command finds it.
        """
        now, left_out = self._list_all(self._drop_script())
        odd = {path for path, seen in now.items() if seen.letter not in _LETTERS}
        if left_out or odd:
            self._apply("", _topmost(left_out | odd), {})
        found = {path: seen for path, seen in now.items() if seen.letter in _LETTERS}
        changed = [path for path, seen in found.items() if seen != self._seen.get(path)]
        contents = dict(
            fetched(
                self.shell, self._workdir, [path for path in changed if found[path].letter == "f"]
            )
        )
        changes: dict[str, Node | None] = {path: None for path in self._seen if path not in found}
        for path in changed:
            changes[path] = _node(found[path], contents.get(path))
        taken = edited(self._objects, self.tree, changes)
        skipped = tuple(sorted(map(shown, odd)))
        self.tree, self._seen = taken.tree, found
        return msgspec.structs.replace(
            taken, blobs=self._objects.with_pending(taken.blobs), skipped=(*taken.skipped, *skipped)
        )

    def restore(self, tree: Digest) -> None:
        self._put("", self._list(), tree)

    def _put(self, first: str, now: Listing, tree: Digest) -> None:
        """Put a tree where this is now."""
        reader = TreeReader(self._objects)
        wanted, known = dict(reader.walk(tree)), dict(reader.walk(self.tree))
        # its content is nowhere: what is there stays
        held = {path for path, entry in wanted.items() if entry.kind == "withheld"}
        gone = [
            path
            for path, seen in now.items()
            if path not in held and _LETTERS.get(seen.letter) != _kind(wanted.get(path))
        ]
        kept = {
            path
            for path, seen in now.items()
            if seen == self._seen.get(path) and _same(known.get(path), wanted.get(path))
        }
        due = {
            path: _from_tree(reader, entry)
            for path, entry in wanted.items()
            if path not in kept and path not in held
        }
        self._seen = self._apply(first, _topmost(gone), due)
        self.tree = tree
        self._check(wanted, held)

    def _apply(self, first: str, gone: Sequence[str], due: Mapping[str, Node]) -> Listing:
        steps = [first] if first else []
        steps.append(f"cd {quoted(self._workdir)}")
        if gone:
            steps.append(
                _consumed(
                    "xargs -0 rm -rf -- <",
                    self.shell.lay(b"".join(os.fsencode(f"./{path}") + b"\0" for path in gone)),
                )
            )
        if due:
            steps.append(_consumed("tar -xpomf", self.shell.lay(packed(due))))
        return self._list(" && ".join(steps))

    def _check(self, wanted: Mapping[str, Entry], held: set[str]) -> None:
        """What was put there is there, or somebody else is at work."""
        for path in {*wanted, *self._seen} - held:
            entry, seen = wanted.get(path), self._seen.get(path)
            if entry is None or seen is None or not _looks_like(seen, entry):
                raise SandboxFailed(
                    self.shell.backend,
                    "restore the workspace",
                    f"{shown(path)!r} is not what was put there",
                    "try again",
                )

    def _drop_script(self) -> str:
        """Removes what has a name that the rules leave out.

        Those that are left out by their path are found in the listing.
        """
        folders = " -o ".join(f"-name {quoted(name)}" for name in self._rules.heavy)
        names = [f"-name {quoted(name)}" for name in (*NEVER, *self._rules.junk)]
        either = " -o ".join([*([f"-type d \\( {folders} \\)"] if folders else []), *names])
        return (
            f"find {quoted(self._workdir)} -mindepth 1 \\( {either} \\) -prune -exec rm -rf --"
            " {} +"
        )

    def _list(self, before: str = ":") -> Listing:
        return self._list_all(before)[0]

    def _list_all(self, before: str) -> tuple[Listing, set[str]]:
        """What can be in a tree, and the paths of what cannot."""
        names = [*self._rules.heavy, *NEVER, *self._rules.junk]
        pruned = [name for name in names if not set(name) & set("*?[")]
        script = (
            f'e=$({{ {before}; }} 2>&1) || {{ printf %s "$e"; exit {FAILED};'
            f" }}\n{listing_of(quoted(self._workdir), None, pruned)}"
        )
        code, content = self.shell.gather(script, "list the workspace")
        if code:
            words = content[-300:].decode(errors="replace")
            raise SandboxFailed(
                self.shell.backend,
                "list or change the workspace",
                f"a script there ended with {code}: {words!r}",
            )
        listing = parse(content)
        out = {
            path
            for path, seen in listing.items()
            if self._rules.leaves_out(*_split(path), is_folder=seen.letter == "d")
        }
        kept = {
            path: seen
            for path, seen in listing.items()
            if path not in out and not any(above in out for above in _above(path))
        }
        return kept, out


class Pending:
    """A store, and blobs that are on their way to it: a tree is recorded with the event that
    follows, not when it is made.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._blobs: dict[Digest, bytes] = {}

    def get_blob(self, digest: Digest) -> bytes:
        found = self._blobs.get(digest)
        return self.store.get_blob(digest) if found is None else found

    def with_pending(self, blobs: Mapping[Digest, bytes]) -> Mapping[Digest, bytes]:
        """These, and those from before that the store still does not have."""
        self._blobs.update(blobs)
        missing = self.store.missing_blobs(self._blobs)
        self._blobs = {
            digest: content for digest, content in self._blobs.items() if digest in missing
        }
        return dict(self._blobs)

    def copy(self) -> Pending:
        other = Pending(self.store)
        other._blobs = dict(self._blobs)
        return other


_UNSEEN = Seen("?", 0, 0, "")


def _node(seen: Seen, content: bytes | None) -> Node | None:
    if seen.letter == "l":
        return Node("link", 0o777, target=seen.target)
    if seen.letter == "d":
        return Node("folder", seen.mode)
    return None if content is None else Node("file", seen.mode, content)


def _from_tree(reader: TreeReader, entry: Entry) -> Node:
    if entry.kind == "link":
        return Node("link", 0o777, target=entry.target)
    if entry.kind == "folder":
        return Node("folder", entry.mode)
    return Node("file", entry.mode, reader.content(entry))


def _kind(entry: Entry | None) -> str:
    return "nothing" if entry is None else entry.kind


def _same(known: Entry | None, wanted: Entry | None) -> bool:
    if known is None or wanted is None or known.kind == "folder":
        return (
            known is not None
            and wanted is not None
            and (known.kind, known.mode) == (wanted.kind, wanted.mode)
        )
    return known == wanted


def _looks_like(seen: Seen, entry: Entry) -> bool:
    if entry.kind == "link":
        return seen.letter == "l" and seen.target == entry.target
    return (
        _LETTERS.get(seen.letter) == entry.kind
        and seen.mode == entry.mode
        and (entry.kind == "folder" or seen.size == entry.size)
    )


def _topmost(paths: Iterable[str]) -> list[str]:
    """Without those that go with a folder above them."""
    found = set(paths)
    return [path for path in sorted(found) if not any(above in found for above in _above(path))]


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name


def _consumed(command: str, path: str) -> str:
    return f"{{ {command} {path}; c=$?; rm -f {path}; [ $c = 0 ]; }}"
