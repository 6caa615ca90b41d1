"""Single files of a sandbox on another machine, by path."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Sequence

from plait.errors import NoSuchFile, NotAFile, OutsideWorkspace
from plait.sandbox.remote_listing import KINDS, listing_script, parse_listing
from plait.sandbox.remote_shell import (
    FOLDER,
    MISSING,
    ODD,
    OUTSIDE,
    SHORT,
    Shell,
    quote_word,
    raise_for_code,
)
from plait.workspace import TreeEntry
from plait.workspace.tree import parts_of


class RemoteFiles:
    """`Files` by scripts.

    Each script resolves the links of a path before it touches anything: commands in the sandbox may
    have made them.
    """

    def __init__(self, shell: Shell, workdir: str) -> None:
        self.shell, self.workdir = shell, workdir

    def entry(self, path: str) -> TreeEntry:
        names = self._names(path)
        found = parse_listing(
            self._run_script(
                path, f"{self._resolve_parent(names)}\n{_IS_THERE}\n{listing_script(_THERE, 0)}"
            )
        )
        (seen,) = found.values() or (None,)
        if seen is None:
            raise NoSuchFile(path)
        if seen.letter not in KINDS:
            raise NotAFile(path, "neither a file nor a folder")
        return seen.entry(names[-1] if names else "")

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        content = f'tail -c +{offset + 1} "$p" | ' + ("cat" if size is None else f"head -c {size}")
        script = f"{self._resolve_path(self._names(path))}\n{_A_FILE}\n{content}"
        return self._run_script(path, script)

    def write(self, path: str, content: bytes, *, mode: int | None = None) -> None:
        names = self._names(path)
        if not names:
            raise NotAFile(path, "a folder")
        laid = "" if len(content) <= SHORT else self.shell.make_file(content)
        given = (
            f'cat {laid} > "$t"; rm -f {laid}'
            if laid
            else f'printf %s {b64encode(content).decode()} | base64 -d > "$t"'
        )
        bits = f"{mode & 0o777:o}" if mode is not None else ""
        place = f"{self._make_folders(names[:-1])}\n{self._resolve_parent(names)}"
        self._run_script(path, f"{place}\n{_WRITE.format(given=given, bits=bits)}")

    def remove(self, path: str) -> None:
        names = self._names(path)
        if not names:
            raise OutsideWorkspace(path, "the workspace itself cannot be removed")
        self._run_script(path, f'{self._resolve_parent(names)}\n{_IS_THERE}\nrm -rf -- "$p"')

    def list(self, path: str = "") -> Sequence[TreeEntry]:
        folder = f'{self._resolve_path(self._names(path))}\n[ -d "$p" ] || exit {ODD}'
        script = f"{folder}\n{listing_script(_THERE, 1)}"
        code, content = self.shell.gather(script, "list a folder")
        if code == ODD:
            raise NotAFile(path, "not a folder")
        raise_for_code(code, path)
        found = parse_listing(content)
        return [
            found[name].entry(name)
            for name in sorted(found, key=os.fsencode)
            if found[name].letter in KINDS
        ]

    def make_folder(self, path: str) -> None:
        self._run_script(path, self._make_folders(self._names(path)))

    def link(self, path: str, target: str) -> None:
        names = self._names(path)
        place = f"{self._make_folders(names[:-1])}\n{self._resolve_parent(names)}"
        self._run_script(
            path,
            f'{place}\n[ -d "$p" ] && [ ! -L "$p" ] && exit {FOLDER}\nrm -f -- "$p"; ln -s --'
            f' {quote_word(target)} "$p"',
        )

    def chmod(self, path: str, mode: int) -> None:
        self._run_script(
            path,
            f'{self._resolve_path(self._names(path))}\n{_IS_THERE}\nchmod {mode & 0o777:o} "$p"',
        )

    def enter(self, path: str) -> str:
        """Return a script that goes to a folder of the workspace, to be put before another."""
        return f'{self._resolve_path(self._names(path))}\ncd -- "$p" 2> /dev/null || exit {MISSING}'

    def _run_script(self, path: str, script: str) -> bytes:
        code, content = self.shell.gather(script, "reach a file")
        raise_for_code(code, path)
        return content

    def _names(self, path: str) -> list[str]:
        names = parts_of(path)
        if path.startswith("/") or ".." in names or "\0" in path:
            raise OutsideWorkspace(path)
        return names

    def _resolve_parent(self, names: Sequence[str]) -> str:
        """Return a script that sets $p to the path; a link at its end is not followed."""
        if not names:
            return f"{_INSIDE.format(root=quote_word(self.workdir))}\np=$w"
        folder = quote_word("/".join([self.workdir, *names[:-1]]))
        return (
            f"{_INSIDE.format(root=quote_word(self.workdir))}\nresolve {folder};"
            f' p="$p/"{quote_word(names[-1])}'
        )

    def _resolve_path(self, names: Sequence[str]) -> str:
        """Return a script that sets $p to the path with all links followed."""
        return (
            f"{_INSIDE.format(root=quote_word(self.workdir))}\nresolve"
            f" {quote_word('/'.join([self.workdir, *names]))}"
        )

    def _make_folders(self, names: Sequence[str]) -> str:
        """Return a script that makes the folders of a path, each in one known to be inside."""
        steps = [
            quote_word("/".join([self.workdir, *names[: count + 1]])) for count in range(len(names))
        ]
        return "\n".join(
            [_INSIDE.format(root=quote_word(self.workdir)), *[f"step {step}" for step in steps]]
        )


# $w is the real path of the workspace. A name may end in a newline, which $(…) would eat: hence the
# dot. A missing path that leads outside is reported as outside: the answer must not tell which
# files exist there.
_INSIDE = f"""r={{root}}; w=$(readlink -f -- "$r") || exit {MISSING}
inside() {{{{ case $1 in "$w"|"$w"/*) ;; *) exit {OUTSIDE};; esac; }}}}
lost() {{{{
  q=$1
  while [ "$q" != "$r" ]; do q=${{{{q%/*}}}}; if p=$(readlink -f -- "$q"); then inside "$p"; \
break; fi; done
  exit {MISSING}
}}}}
resolve() {{{{
  p=$(readlink -f -- "$1" && echo .) || lost "$1"
  p=${{{{p%??}}}}; inside "$p"
  [ -e "$p" ] || exit {MISSING}
}}}}
step() {{{{
  if [ -e "$1" ] || [ -L "$1" ]; then resolve "$1"; [ -d "$p" ] || exit {ODD}; \
else mkdir -- "$1" || exit {ODD}; fi
}}}}"""

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
