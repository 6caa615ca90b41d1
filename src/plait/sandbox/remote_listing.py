"""Listings of folders on another machine: a script that prints one, and the parser of its output.

A listing has the kind, mode, size, times and inode of every path: a path that looks as it did
before has not changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from plait.sandbox.remote_shell import quote_word
from plait.workspace import TreeEntry

KINDS = {"f": "file", "l": "link", "d": "folder"}
_FORMATS = {0o100000: "f", 0o120000: "l", 0o040000: "d"}


class ListedPath(NamedTuple):
    """One path as a listing shows it. If two are equal, the path has not changed between them."""

    letter: str  # f, l, d, or that of another kind
    mode: int
    size: int
    stamp: str  # times and inode, or a digest of the content
    target: str = ""

    def entry(self, name: str) -> TreeEntry:
        if self.letter == "l":
            return TreeEntry(name, "link", 0o777, 0, (), self.target)
        return TreeEntry(
            name,
            "folder" if self.letter == "d" else "file",
            self.mode,
            self.size if self.letter == "f" else 0,
        )


Listing = dict[str, ListedPath]


def listing_script(start: str, depth: int | None, pruned: Iterable[str] = ()) -> str:
    """Return a script that lists a folder: itself (depth 0), its entries (1), or everything below
    it (None), without folders of the `pruned` names.
    """
    span = {0: "-maxdepth 0", 1: "-mindepth 1 -maxdepth 1", None: "-mindepth 1"}[depth]
    names = " -o ".join(f"-name {quote_word(name)}" for name in pruned)
    prune = f"-type d \\( {names} \\) -prune -o" if names else ""
    go, place = ("", '"$1"') if depth == 0 else ('cd -- "$1" && ', ".")
    # If find cannot print, as in small images, a loop does the same, slowly: stat tells times by
    # the second there, so contents are hashed, lest a change within that second is missed.
    return f"""set -- {start}
if find / -maxdepth 0 -printf '' 2> /dev/null
then find "$1" {span} {prune} -printf '%y %m %s %C@ %T@ %i\\0%l\\0%P\\0'
else {go}find {place} {span} {prune} -exec sh -c 'for p; do
  s=; if [ -f "$p" ] && [ ! -L "$p" ]; then s=$(sha256sum < "$p"); fi
  printf "%s %s\\0%s\\0%s\\0" "$(stat -c "%f %s" -- "$p")" "${{s%% *}}" \
"$(readlink -- "$p")" "${{p#./}}"; done' x {{}} +
fi"""


def parse_listing(content: bytes) -> Listing:
    fields = [os.fsdecode(field) for field in content.split(b"\0")[:-1]]
    return {
        path: _parse_path(head.split(" "), target)
        for head, target, path in zip(*[iter(fields)] * 3, strict=True)
    }


def _parse_path(head: Sequence[str], target: str) -> ListedPath:
    if len(head[0]) == 1:
        letter, bits, size, *stamp = head
        mode = int(bits, 8)
    else:
        raw, size, *stamp = head
        mode, letter = int(raw, 16), _FORMATS.get(int(raw, 16) & 0o170000, "?")
    if letter == "d":
        # without times: each change of an entry changes those of its folder
        return ListedPath(letter, mode & 0o777, 0, "")
    return ListedPath(letter, mode & 0o777, int(size), " ".join(stamp), target)
