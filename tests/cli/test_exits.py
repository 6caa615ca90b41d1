"""Every end has its exit code, every error its words, and nothing hostile gets out raw."""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import re
import signal
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait import errors, open_store
from plait.cli.common import Options
from plait.cli.exits import CODES, code_of
from plait.errors import DiskFull, OutcomeUnknown, PlaitError, StaleHead, StoreBusy
from plait.event.kinds import ForkedFrom, Place
from plait.session import Session
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from tests.cli.shell import COMMAND, Shell, harmless, on_a_terminal, process, shell
from tests.support import ForkedProgram, python, spoil_salts, wait_until

__all__ = ["shell"]

# ── the table ────────────────────────────────────────────────────────────────────────────────

EXPECTED = {
    2: (
        "InvalidInput InvalidValue TooDeep TooLarge DuplicateKey MalformedJson NotCanonical"
        " AmbiguousRevision BadAddress UntrustedStore NotAFile OutsideWorkspace UnknownBackend"
        " AmbiguousMemory NoEvidence NotEvidence NoOwner EndsAgree NotPortable"
    ),
    3: (
        "UnknownRevision UnknownPlace UnknownKey UnknownAsk WrongAskKind NoPrompt UnknownLog"
        " UnknownEvent NoStore NotMigrated NotPlaced NoSuchFile SandboxGone UnknownMemory"
        " UnknownWorker"
    ),
    5: "BudgetExceeded",
    7: "ReplayDiverged",
    8: "MergeConflict NoCommonBase",
    75: "QueueFull RunHeld SandboxBusy StaleHead StoreBusy DiskFull OutcomeUnknown StalePlan"
    " ServerUnreachable StillArriving StoreUnreachable StoreUnsettled EventsLost",
}


def test_every_error_has_its_code() -> None:
    wanted = {name: code for code, names in EXPECTED.items() for name in names.split()}
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, PlaitError):
            assert code_of(kind.__new__(kind)) == wanted.get(name, 1), name
    assert set(CODES.values()) == {1, 2, 3, 5, 7, 8, 75}


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(Session, "say", fail)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StaleHead("log", "a", "b", 3), 75),
        (StoreBusy("path", 60), 75),
        (DiskFull("path"), 75),
        (OutcomeUnknown("path", "why"), 75),
        (errors.StoreFailed("path", "why"), 1),
        (errors.CommitmentBroken("body", "a", "b"), 1),
        (errors.TooDeep(3), 2),
        (errors.UnknownBlob("d"), 1),
        (KeyboardInterrupt(), 130),
        (PermissionError(13, "Permission denied", "/a/\x1b[31mfile"), 1),
        (BrokenPipeError(32, "Broken pipe"), 141),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_errors_end_with_their_code_and_words(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    session = shell.new("x")
    failing(monkeypatch, error)
    said = shell.error(code, "say", session, "y")
    assert (said.strip() == "") if code in (130, 141) else said.startswith("plait: ")
    assert "\x1b" not in said
    said = shell.error(code, "say", session, "y", "--json")
    if code not in (130, 141):
        assert json.loads(said)["error"].keys() == {"type", "message", "exit_code"}
        assert json.loads(said)["error"]["exit_code"] == code


def test_what_is_not_an_error_of_ours_is_not_hidden(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = shell.new("x")
    failing(monkeypatch, ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        shell.run("say", session, "y")


# ── the codes as they occur ──────────────────────────────────────────────────────────────────


def test_failed(shell: Shell) -> None:
    session = shell.new("x")
    shell.open(session).checks.require("tests")
    assert "gate 'tests' is not met" in shell.error(1, "close", session)
    shell("close", other := shell.new("y"))
    assert f"session {other} is closed: it cannot take messages" in shell.error(
        1, "say", other, "z"
    )
    assert "close it first" in shell.error(1, "archive", session)


def test_usage(shell: Shell) -> None:
    session = shell.new("x")
    assert lines(shell.error(2, "say"))[-1] == "plait: Missing argument 'S'."
    unknown = lines(shell.error(2, "sya", "x"))[-1]
    assert unknown == "plait: no such command: 'sya'. Did you mean say?"
    assert "plait: No such option" in shell.error(2, "ls", "--lable", "x")
    assert "plait: key: '' is not a name" in shell.error(2, "fact", session, "", "1")
    assert "exclude each other" in shell.error(2, "ls", "--json", "--jsonl")
    assert "no store is known for the scheme" in shell.error(2, "ls", "--store", "ftp:x")
    found = json.loads(shell.error(2, "ls", "--nonsense", "--json"))["error"]
    assert (found["type"], found["exit_code"]) == ("NoSuchOption", 2) and "--nonsense" in found[
        "message"
    ]


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_ambiguous_names_list_the_candidates(shell: Shell) -> None:
    session = shell.new("x")
    made = [shell.json("fork", session, "twin")["id"] for _ in range(2)]
    said = lines(shell.error(2, "show", "twin"))
    assert said[0] == "plait: 'twin' could be any of these. Write more of the id."
    assert sorted(said[1:]) == sorted(f"  {id[-12:-4]} (twin, {id})" for id in made)
    assert len(json.loads(shell.error(2, "show", "twin", "--json"))["error"]["candidates"]) == 2


def test_not_found(shell: Shell) -> None:
    session = shell.new("x")
    assert "no session is called that" in shell.error(3, "show", "nobody")
    assert "has no event 99" in shell.error(3, "show", f"{session}@99")
    assert "has no event -9" in shell.error(3, "rewind", session, "-9")
    assert "has no pending work" in shell.error(3, "settle", session, "nothing")
    assert "no event" in shell.error(3, "why", session, "0" * 64)
    assert "it is a range" in shell.error(3, "show", "a..b")


NAMED = [
    *(
        ["show"],
        ["log"],
        ["graph"],
        ["ls"],
        ["find", "x"],
        ["verify"],
        ["why", "@"],
        ["influence", "@"],
        ["diff", "@"],
    ),
    *(
        ["fork", "@"],
        ["rewind", "@", "1"],
        ["merge", "@", "@"],
        ["say", "@", "x"],
        ["note", "@", "x"],
        ["fact", "@", "k", "1"],
    ),
    *(
        ["decide", "@", "k", "1"],
        ["todo", "@", "x"],
        ["settle", "@", "x"],
        ["pause", "@"],
        ["unpause", "@"],
        ["close", "@"],
        ["archive", "@"],
    ),
]


@pytest.mark.parametrize("arguments", NAMED, ids=" ".join)
def test_looking_makes_no_store(shell: Shell, tmp_path: Path, arguments: list[str]) -> None:
    assert "there is no store at" in shell.error(3, *arguments)
    assert "there is no store at memory:nothing" in shell.error(
        3, *arguments, "--store", "memory:nothing"
    )
    assert not list(tmp_path.iterdir())
    shell.folder.mkdir()
    (shell.folder / "store.db").touch()  # empty: opening it would make a store in it
    found = json.loads(shell.error(3, *arguments, "--json"))["error"]
    assert (found["type"], found["exit_code"]) == ("NoStore", 3)
    assert (shell.folder / "store.db").stat().st_size == 0 and len(
        list(shell.folder.iterdir())
    ) == 1


def test_an_empty_store_has_no_session(shell: Shell) -> None:
    shell("init")
    assert "there is no session yet" in shell.error(3, "show")
    assert shell("ls") == "" and shell("verify").startswith(
        "0 sessions, 0 events: nothing is wrong\n"
    )
    assert shell("find") == ""


def test_a_store_in_memory_is_found_while_it_is_open(shell: Shell) -> None:
    with_one = open_store("memory:cli-test")
    shell("new", "x", "--store", "memory:cli-test")
    assert shell("ls", "--store", "memory:cli-test")
    with_one.close()


def test_the_store_is_found_by_option_variable_and_folder(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.new("x")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert len(shell.jsonl("ls")) == 1
    monkeypatch.setenv("PLAIT_STORE", str(tmp_path / "other"))
    assert shell.error(3, "ls")
    assert len(shell.jsonl("ls", "--store", str(shell.folder))) == 1
    monkeypatch.delenv("PLAIT_STORE")
    monkeypatch.chdir(tmp_path / "below")
    (tmp_path / "below").rmdir()
    assert "current folder" in shell.error(2, "ls")


def test_verification_failed(shell: Shell) -> None:
    session = shell.new("x", "--title", "T")
    shell("say", session, "y")
    spoil_salts(shell.address, seq=2)
    result = shell.run("verify")
    assert (
        result.exit_code == 6
        and result.stdout.startswith(f"{session}@2  ")
        and "1 session, 3 events: 1 fault" in result.stdout
    )
    found = shell.json("verify", session, code=6)
    assert (found["ok"], found["faults"][0]["session"], found["faults"][0]["seq"]) == (
        False,
        shell.json("ls")["sessions"][0]["id"],
        2,
    )
    assert shell.jsonl("verify", code=6)[:-1] == found["faults"]
    assert found["faults"][0].keys() == {"session", "seq", "what"}


def test_conflict_for_programs(shell: Shell) -> None:
    session = shell.new("x")
    for label in ("a", "b"):
        shell("fork", session, label)
        shell("fact", label, "k", label)
    found = json.loads(shell.error(8, "merge", session, "a", "b", "--json"))["error"]
    assert (found["type"], found["exit_code"], found["conflicts"]) == (
        "MergeConflict",
        8,
        {"k": {"a": "a", "b": "b"}},
    )


def test_retry(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    session = shell.new("x")
    shell("say", session, "y")
    # the past: trying again would not help
    assert "plait fork" in shell.error(2, "say", f"{session}@2", "z")

    def open_last(given: Options, name: str) -> Session:
        return given.open(name).at(-1)  # somebody writes just after it was opened

    monkeypatch.setattr(Options, "open_last", open_last)
    assert "has moved on" in shell.error(75, "say", session, "z")


# ── processes ────────────────────────────────────────────────────────────────────────────────


def test_in_a_process_of_its_own(shell: Shell) -> None:
    def started(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=60)

    made = started("new", "hello", "--json")
    assert (made.returncode, made.stderr) == (0, "")
    assert "user: hello" in started("log").stdout
    failed = started("show", "nobody")
    assert (failed.returncode, failed.stdout) == (3, "") and failed.stderr.startswith(
        "plait: 'nobody'"
    )
    # closed properly
    assert not [path.name for path in shell.folder.iterdir() if path.name.endswith("-wal")]


def test_interrupted(shell: Shell) -> None:
    session = shell.new("x")
    with ForkedProgram([*COMMAND, "say", session, "-"], stdin=-1, stdout=-1, stderr=-1) as running:
        assert running.stdin is not None
        running.stdin.write(b"half a mess")
        running.stdin.flush()
        pipe = running.stdin
        # it has read that, and waits for more
        wait_until(lambda: fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) == bytes(4))
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err.strip()) == (130, b"", b"")
    assert len(shell.open(session).events) == 2


@pytest.mark.parametrize(
    ("command", "environ"),
    [
        (["log"], {}),
        (["log"], {"FORCE_COLOR": "1"}),
        (["log", "--graph"], {}),
        (["log", "--jsonl"], {}),
        (["find"], {}),
    ],
    ids=str,
)
def test_a_reader_that_goes_away_is_no_error(
    shell: Shell, command: list[str], environ: dict[str, str]
) -> None:
    session = shell.open(shell.new("x"))
    for number in range(600):
        session = session.say(f"message {number} " + "x" * 400)
    with ForkedProgram(
        [*COMMAND, *command], stdout=-1, stderr=-1, env={**os.environ, **environ}
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
        limited = command == ["find"]  # fifty of them are in the pipe before anybody closes it
        assert running.wait(30) in ((0, 141) if limited else (141,))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
@pytest.mark.parametrize(
    "command",
    [
        ["ls"],
        ["show"],
        ["log"],
        ["log", "--json"],
        ["graph"],
        ["verify"],
        ["new", "x"],
        ["doctor"],
        ["--help"],
    ],
    ids=" ".join,
)
def test_a_full_device_is_told(shell: Shell, command: list[str]) -> None:
    shell.new("x")
    with open("/dev/full", "w") as full:
        done = process(*command, stdout=full)
    assert done.returncode == 1
    assert (
        "No space left on device" in done.stderr
        and "Traceback" not in done.stderr
        and "Exception" not in done.stderr
    )


def test_closed_output(shell: Shell) -> None:
    shell.new("x")
    done = subprocess.run(
        ["bash", "-c", '"$@" >&-', "bash", *COMMAND, "ls"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "code", ["import plait", "from plait.cli import main; main(['--help'], standalone_mode=False)"]
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    assert (
        "rich"
        not in python(f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)").stderr.split()
    )


def test_json_needs_no_rich(shell: Shell) -> None:
    shell.new("x")
    code = (
        "from plait.cli import main; main(['show', '--json'], standalone_mode=False)\nimport sys;"
        " print(*sys.modules, file=sys.stderr)"
    )
    assert "rich" not in python(code).stderr.split()


# ── hostile text ─────────────────────────────────────────────────────────────────────────────

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eevil\x9b31m \r\nsecond\x00 line\u200b"
TYPED = HOSTILE.replace("\0", "")  # no argument of a process can hold a NUL


@pytest.fixture
def hostile(shell: Shell) -> tuple[Shell, str]:
    """A session in which everything that can be hostile is."""
    session = Session(
        HOSTILE,
        title=HOSTILE,
        user=f"u{HOSTILE}",
        project=HOSTILE,
        tags={f"t{HOSTILE}": HOSTILE},
        store=shell.address,
        actor="human:ана",
    )
    session = session.fact(f"k{HOSTILE}", {HOSTILE: HOSTILE}).decide(f"d{HOSTILE}", HOSTILE)
    session = session.note(HOSTILE).todo(HOSTILE).say(HOSTILE, role="assistant", name=HOSTILE)
    session = (
        session.checks.record(f"check{HOSTILE}", False)
        .lineage.link(HOSTILE, HOSTILE)
        .attach(f"e{HOSTILE}", HOSTILE)
    )
    # A label like that is refused by fork(), but a store written by somebody else may have it.
    body = ForkedFrom(session.id, session.seq, HOSTILE)
    fork = Place(session.id, session.seq, session.head)
    branch = session_at(
        writer_of(None).begin(session.store, [Draft(body, Act("human:ana"))], fork=fork)
    )
    branch = branch.say("from the branch").fact("k", HOSTILE)
    session = session.say("on").merge(branch).checks.require(f"gate{HOSTILE}")
    session.rewind(-1, reason=HOSTILE)
    return shell, session.short


READS: list[Callable[[str], list[str]]] = [
    *(
        lambda s: ["ls"],
        lambda s: ["show", s],
        lambda s: ["log", s],
        lambda s: ["log", s, "--graph"],
        lambda s: ["log", s, "--oneline"],
    ),
    *(
        lambda s: ["find"],
        lambda s: ["find", "evil"],
        lambda s: ["graph", s],
        lambda s: ["why", s],
        lambda s: ["why", s, "evil"],
    ),
    *(
        lambda s: ["influence", s, "2"],
        lambda s: ["diff", s],
        lambda s: ["diff", f"{s}@2", s],
        lambda s: ["verify"],
        lambda s: ["note", s, TYPED],
    ),
    *(
        lambda s: ["fork", s],
        lambda s: ["say", s, TYPED],
        lambda s: ["rewind", s, "3", "--reason", TYPED],
        lambda s: ["todo", s, TYPED],
    ),
]


@pytest.mark.parametrize(
    "read", READS, ids=lambda read: " ".join(read("S"))[:20].encode("unicode_escape").decode()
)
def test_hostile_text_reaches_no_output(
    hostile: tuple[Shell, str], read: Callable[[str], list[str]]
) -> None:
    shell, session = hostile
    found = shell(*read(session))
    harmless(found)
    harmless(on_a_terminal(*read(session), NO_COLOR="1"))
    raw = shell(*read(session), "--json")
    assert raw.isascii() and "\x1b" not in raw and "\x7f" not in raw


def test_coloured_output_holds_only_our_own_colours(hostile: tuple[Shell, str]) -> None:
    for command in (
        ["ls"],
        ["show", hostile[1]],
        ["log", hostile[1], "--graph"],
        ["graph", hostile[1]],
    ):
        harmless(re.sub(r"\x1b\[(0|1|2|31|36)m", "", on_a_terminal(*command)))


def test_json_is_raw(hostile: tuple[Shell, str]) -> None:
    shell, session = hostile
    found = shell.json("show", session)
    assert found["title"] == found["project"] == found["messages"][0]["text"] == HOSTILE


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["show", f"x{HOSTILE}"],
            ["why", "@", f"x{HOSTILE}"],
            ["fork", "@", HOSTILE],
            ["log", "--kind", HOSTILE],
            ["log", "--since", HOSTILE],
        ),
        *(
            ["ls", "--store", f"x{HOSTILE}"],
            [HOSTILE],
            ["ls", f"--{HOSTILE}"],
            ["say", "@", "x", "--as", HOSTILE],
            ["settle", "@", f"x{HOSTILE}"],
        ),
        *(
            ["ls", "--status", HOSTILE],
            ["rewind", "@", HOSTILE],
            ["say", "@", "x", "--file", TYPED],
        ),
    ],
    ids=lambda arguments: arguments[0].encode("unicode_escape").decode()[:12],
)
def test_hostile_arguments_do_not_come_back_raw(
    hostile: tuple[Shell, str], arguments: list[str]
) -> None:
    shell, _ = hostile
    result = shell.run(*arguments)
    assert result.exit_code in (2, 3)
    harmless(result.stderr)
    harmless(shell.run(*arguments, "--json").stderr)


def test_a_hostile_conflict(shell: Shell) -> None:
    session = shell.open(shell.new("x"))
    branches = [
        session.fork(label).fact(f"k{HOSTILE}", f"{label}{HOSTILE}") for label in ("a", "b")
    ]
    result = shell.run("merge", session.short, *(branch.short for branch in branches))
    assert result.exit_code == 8
    harmless(result.stderr)


def test_ambiguity_with_hostile_titles(shell: Shell) -> None:
    for _ in range(2):
        Session(title=HOSTILE, store=shell.address)
    ids = [each["id"] for each in shell.jsonl("ls")]
    shared = os.path.commonprefix(ids)
    assert len(shared) >= 4
    result = shell.run("show", shared)
    assert result.exit_code == 2 and len(lines(result.stderr)) == 3
    harmless(result.stderr)
