"""Commands on another machine, by nothing but a shell that answers in text.

The SDKs differ in streaming, losses and timeouts: one turns odd bytes into question marks, one has
no standard input, one returns no output before the end. So a command is started inside the sandbox
with its output going to a file there, both streams in the order in which they were written, and we
ask for new output until it has ended. Bytes travel as base64. A lost connection costs nothing: the
command goes on, and we ask again.
"""

from __future__ import annotations

import re
import shlex
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

from plait.errors import InvalidValue, NoSuchFile, NotAFile, OutsideWorkspace, SandboxFailed
from plait.sandbox.base import Limits, OnOutput, Ran, Wanted
from plait.sandbox.output import Spool

PIECE = 1 << 20  # bytes that travel in one answer
SHORT = 1 << 15  # bytes that may stand in a script; longer content goes as a file
LINE_MAX = 80_000  # bytes of a script that fit on a command line, once they are base64
WINDOW_S = 20.0  # the longest wait for one answer
FIRST_S = 2.0  # for the first one, which cannot be asked again
TICK_S = 0.05

MISSING, OUTSIDE, FOLDER, ODD, FAILED = 80, 81, 82, 83, 84  # exit codes of our scripts

_ANSWER = re.compile(r"<plait>(.*?)</plait>", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Guest(Protocol):
    """One sandbox as the SDK of its vendor gives it.

    Raises SandboxGone if it is no more, SandboxFailed for all else.
    """

    @property
    def id(self) -> str: ...
    def shell(self, script: str, wait_s: float) -> str:
        """Run a script with a POSIX shell, and return its standard output."""
        ...

    def write_file(self, path: str, content: bytes) -> None: ...
    def read_file(self, path: str) -> bytes: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def renew(self, seconds: float) -> None: ...
    def kill(self) -> None: ...
    def copy(self, wanted: Wanted) -> Guest:
        """Make another one like it, by the vendor's own means; raises NotSupported."""
        ...

    def close(self) -> None: ...


class ScriptAnswer(NamedTuple):
    code: int
    content: bytes


class StartedCommand(NamedTuple):
    """A started command: the folder of its output and exit code, and the process that waits."""

    folder: str
    pid: str


class CommandProgress(NamedTuple):
    """The state of a command, and a piece of its output."""

    code: int | None  # None: it runs
    size: int  # of all its output so far
    content: bytes  # its output from the asked offset on


class CommandSpec(NamedTuple):
    """A command to be started."""

    command: Sequence[str]
    stdin: bytes
    where: str  # a script that goes to its folder
    env: Mapping[str, str]
    open_files: int | None
    stale: Sequence[str]  # traces of commands before it, to be removed


class ProgressQuery(NamedTuple):
    """A question about a command: its output from `offset` on, as soon as there is `enough`, or the
    command has ended, or the time is up.
    """

    offset: int
    enough: int
    wait_s: float
    end: bool  # True: the command is ended first

    def script(self) -> str:
        ticks, end = round(self.wait_s / TICK_S), "finish" if self.end else ":"
        return _WATCH.format(
            ticks=ticks, enough=self.enough, first=self.offset + 1, piece=PIECE, end=end
        )


def _parse_progress(answer: bytes) -> CommandProgress:
    head, _, content = answer.partition(b"\n")
    code, _, size = head.decode().partition(" ")
    return CommandProgress(None if code == "-" else int(code), int(size), content)


def quote_word(text: str) -> str:
    """Quote a word for the shell. It may have any bytes: scripts travel as bytes."""
    return shlex.quote(text)


def raise_for_code(code: int, path: str) -> None:
    """Raise the error that the exit code of one of our scripts stands for."""
    match code:
        case 0:
            return
        case 80:
            raise NoSuchFile(path)
        case 81:
            raise OutsideWorkspace(path)
        case 82:
            raise NotAFile(path, "a folder")
        case _:
            raise NotAFile(path, "neither a file nor a folder")


class Shell:
    """Runs scripts in a guest, and reads their answers."""

    def __init__(self, backend: str, guest: Guest) -> None:
        self.backend, self.guest = backend, guest

    def ask(self, script: str, what: str, wait_s: float = 60.0) -> ScriptAnswer:
        """Run a script with an output that is small enough for one answer."""
        raw = script.encode(errors="surrogateescape")
        text = self.guest.shell(
            _frame_script(
                _eval_inline(raw) if len(raw) <= LINE_MAX else _eval_file(self.make_file(raw))
            ),
            wait_s,
        )
        found = _ANSWER.search(text)
        if found is None:
            raise SandboxFailed(
                self.backend,
                what,
                f"its shell answered {text[-200:]!r}",
                "use an image with sh, base64, find and tar",
            )
        content, _, code = b64decode("".join(found[1].split())).rpartition(b"\n")
        return ScriptAnswer(int(code), content)

    def gather(self, script: str, what: str, wait_s: float = 600.0) -> ScriptAnswer:
        """Run a script with an output of any length; a long one comes as a file."""
        code, answer = self.ask(_spool_script(script), what, wait_s)
        head, _, content = answer.partition(b"\n")
        size, _, path = head.decode().partition(" ")
        if int(size) > PIECE:
            content = self.guest.read_file(path)
            self.ask(f"rm -f {quote_word(path)}", what)
        return ScriptAnswer(code, content)

    def do(self, script: str, what: str, wait_s: float = 600.0) -> bytes:
        """Run a script that has to succeed."""
        code, content = self.gather(f"{{ {script}\n}} 2>&1", what, wait_s)
        if code:
            raise SandboxFailed(
                self.backend,
                what,
                f"a script there ended with {code}: {content[-300:].decode(errors='replace')!r}",
            )
        return content

    def make_file(self, content: bytes) -> str:
        """Write a file with this content outside the workspace, and return its path. The script
        that uses it has to remove it.
        """
        path = f"/tmp/plait.{sha256(content).hexdigest()[:24]}"
        self.guest.write_file(path, content)
        return path

    # commands

    def start(
        self, given: CommandSpec, query: ProgressQuery
    ) -> tuple[StartedCommand, CommandProgress] | int:
        """Start a command, and return its first progress; or the exit code of `where` if that
        failed.
        """
        if any("\0" in word for word in (*given.command, *given.env.values())):
            raise SandboxFailed(
                self.backend,
                "start the command",
                "there is a NUL in it, or in its environment",
                "leave it out",
            )
        stdin = given.stdin
        taken = (
            f"printf %s {b64encode(stdin).decode()} | base64 -d > $d/in"
            if len(stdin) <= SHORT
            else f"mv -f {self.make_file(stdin)} $d/in"
        )
        exports = "".join(
            f"export {_check_name(name)}={quote_word(value)}\n" for name, value in given.env.items()
        )
        files = (
            f"ulimit -n {given.open_files} 2>/dev/null\n" if given.open_files is not None else ""
        )
        forget = f"rm -rf {' '.join(map(quote_word, given.stale))}\n" if given.stale else ""
        words = " ".join(map(quote_word, given.command))
        started = _START.format(taken=taken, exports=exports, files=files, words=words)
        code, content = self.ask(
            f"{forget}{given.where}\n{started}{query.script()}",
            "start a command",
            query.wait_s + 60,
        )
        if code:
            return code
        head, _, rest = content.partition(b"\n")
        folder, _, pid = head.decode().partition(" ")
        return StartedCommand(folder, pid), _parse_progress(rest)

    def progress(self, run: StartedCommand, query: ProgressQuery) -> CommandProgress:
        script = f"d={quote_word(run.folder)}; p={run.pid}\n{query.script()}"
        return _parse_progress(self._ask_with_retries(script, query.wait_s + 60))

    def _ask_with_retries(self, script: str, wait_s: float) -> bytes:
        """Ask again if the connection fails: asking changes nothing."""
        for left in (2, 1, 0):
            try:
                return self.ask(script, "tell about a command", wait_s).content
            except SandboxFailed:
                if not left:
                    raise
                time.sleep(TICK_S)
        raise AssertionError


class CommandFollower:
    """Starts one command, and asks for its progress until it ends."""

    def __init__(self, shell: Shell, limits: Limits, on_output: OnOutput | None) -> None:
        self._shell, self._limits, self._on_output = shell, limits, on_output
        self._begun = time.monotonic()
        self._spool = Spool()
        self._killed = ""
        # folders to be removed with the next command: this one's answer may have been lost
        self.traces: tuple[str, ...] = ()

    def result(self, given: CommandSpec) -> Ran | int:
        """Return the result of the command, or the exit code of the script that could not enter
        its folder.
        """
        started = self._shell.start(given, self._query(FIRST_S))
        if isinstance(started, int):
            return started
        run, progress = started
        self.traces = (run.folder,)
        self._take(progress)
        while progress.code is None or self._spool.size < progress.size:
            self._killed = self._killed or self._exceeded_limit(progress)
            if self._killed == "output" and progress.code is not None:
                break  # the rest of it was not to be written
            progress = self._shell.progress(run, self._query(WINDOW_S))
            self._take(progress)
        return Ran(
            137 if self._killed else progress.code or 0,
            self._spool,
            round((time.monotonic() - self._begun) * 1e6),
            self._killed,
        )

    def _query(self, window_s: float) -> ProgressQuery:
        left = (
            window_s
            if self._limits.time_s is None
            else min(window_s, self._begun + self._limits.time_s - time.monotonic())
        )
        enough = self._spool.size + (1 if self._on_output is not None else PIECE)
        return ProgressQuery(self._spool.size, enough, max(0.0, left), bool(self._killed))

    def _take(self, progress: CommandProgress) -> None:
        content = progress.content[: self._output_left()]
        if content:
            self._spool.write(content)
            if self._on_output is not None:
                self._on_output(content)

    def _output_left(self) -> int | None:
        return (
            None
            if self._limits.output_mb is None
            else max(0, (self._limits.output_mb << 20) - self._spool.size)
        )

    def _exceeded_limit(self, progress: CommandProgress) -> str:
        if self._limits.output_mb is not None and progress.size > self._limits.output_mb << 20:
            return "output"
        late = (
            self._limits.time_s is not None
            and time.monotonic() - self._begun >= self._limits.time_s
        )
        return "time" if progress.code is None and late else ""


def _check_name(name: str) -> str:
    if not _NAME.match(name):
        raise InvalidValue(
            "env", f"{name!r} cannot be the name of a variable", "use letters, digits and _"
        )
    return name


# ── scripts ──────────────────────────────────────────────────────────────────────────────────


def _frame_script(script: str) -> str:
    """Return a script that prints the output of another as base64, with its exit code, between
    marks: a shell profile may print text around it.
    """
    run = f"{{ ( {script} ) 2>/dev/null; printf '\\n%s' \"$?\"; }}"
    return (
        f"printf '<plait>'; {run} | {{ base64 -w 8000 2>/dev/null || base64; }}; printf '</plait>'"
    )


def _eval_inline(raw: bytes) -> str:
    """Return the script as one word of ASCII: its bytes need not be text."""
    return f'eval "$(printf %s {b64encode(raw).decode()} | base64 -d)"'


def _eval_file(path: str) -> str:
    return f'eval "$(cat {path}; rm -f {path})"'


def _spool_script(script: str) -> str:
    return f"""t=$(mktemp /tmp/plait.XXXXXX) || exit {FAILED}
( {script}
) > "$t"; c=$?
s=$(wc -c < "$t"); printf '%s %s\\n' "$((s))" "$t"
if [ "$s" -le {PIECE} ]; then cat "$t"; rm -f "$t"; fi
exit $c"""


# The command runs in a session of its own, under a shell that notes how it ended. All that it
# starts inherits PLAIT_RUN: so it is found.
_START = """d=$(mktemp -d /tmp/plait.XXXXXX) || exit 84
{taken}
: > $d/out
s=; command -v setsid > /dev/null && s=setsid
(
{exports}{files}export PLAIT_RUN=$d
exec $s sh -c '"$@" < "$0/in" >> "$0/out" 2>&1; echo $? > "$0/new"; mv "$0/new" "$0/code"' $d \
{words}
) < /dev/null > /dev/null 2>&1 &
p=$!
echo "$d $p"
"""

# A grep that is not GNU's ends a line at NUL. The waiting shell may be gone without a word, if the
# command killed it too; a parent that does not reap leaves a zombie.
_WATCH = """marked() {{
  if grep --version > /dev/null 2>&1; then grep -lsF -e "PLAIT_RUN=$d" /proc/[0-9]*/environ \
| sed 's|/proc/||; s|/environ||'; return; fi
  for f in /proc/[0-9]*; do if tr '\\0' '\\n' < $f/environ | grep -qxF -e "PLAIT_RUN=$d"; \
then echo ${{f#/proc/}}; fi; done
}}
finish() {{
  i=0
  while [ $i -lt 50 ]; do
    k=$(marked)
    [ -n "$k" ] || break
    kill -9 $k; i=$((i+1))
  done
}}
gone() {{
  x=; read -r x < /proc/$p/stat
  case $x in ''|*') Z '*) return 0;; esac
  return 1
}}
{end}
n=0; q=0
while :; do
  c=-
  if [ ! -e $d/code ] && gone && [ ! -e $d/code ]; then c=137; \
elif [ -e $d/code ]; then c=$(cat $d/code); fi
  [ "$c" = - ] || finish
  s=$(($(wc -c < $d/out)))
  if [ "$c" != - ] || [ $s -ge {enough} ] || [ $n -ge {ticks} ]; then break; fi
  if [ $q -lt 5 ]; then q=$((q+1)); sleep 0.01; else n=$((n+1)); sleep 0.05; fi || sleep 1
done
printf '%s %s\\n' "$c" "$s"
tail -c +{first} $d/out | head -c {piece}
"""
