"""Secrets: in whatever spelling and on whatever way, they do not reach the store."""

from __future__ import annotations

import base64
import json
import os
import pickle
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait import (
    Agent,
    PlaitError,
    ScriptedModel,
    Secret,
    Session,
    Store,
    ToolCall,
    Workflow,
    file,
    image,
    open_store,
    secrets,
    tool,
)
from plait.errors import BadSecret, MissingKey, ToolFailed
from plait.event import Event
from plait.event.hidden import without_secrets
from plait.event.kinds import Data, FactRecorded, Merged, Place, Reasoning, Text, ToolRequested
from plait.ids import Digest, LogId
from plait.session.ports import Act, Draft, writer_of
from plait.session.value import position_of
from plait.store.postgres.address import is_postgres
from tests.support import postgres_cells

CANARY = "sk_live_51+H8x/Qz7~kanarienvogel"
ODD = 'p"ass\\wörd\n2nd line\tend'
SHOWN = "[secret STRIPE_KEY]"


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    secrets.forget()
    yield
    secrets.forget()


@pytest.fixture
def canary() -> str:
    secrets.register(CANARY, "STRIPE_KEY")
    return CANARY


def alignments(text: str) -> Iterator[str]:
    """The value in base64, behind nothing, one byte, two bytes, and before something."""
    for before in ("", "a", "us", "user:"):
        for after in ("", "x", "yz", ":realm"):
            yield base64.b64encode(f"{before}{text}{after}".encode()).decode()


def spellings(text: str) -> dict[str, str]:
    """Return the spellings of a value."""
    raw = text.encode()
    found = {
        "plain": text,
        "within": f"Authorization: Bearer {text}, and more",
        "twice": f"{text}{text}",
        "hex": raw.hex(),
        "HEX": raw.hex().upper(),
        "percent": "".join(f"%{byte:02X}" for byte in raw),
        "quoted": quote(text, safe=""),
        "quoted path": quote(text),
        "quoted plus": quote_plus(text),
        "quoted low": re.sub("%..", lambda c: c[0].lower(), quote(text, safe="")),
        "url": f"https://user:{quote(text, safe='')}@host/x?key={quote_plus(text)}&y=1",
        "json": json.dumps({"key": text}),
        "json in json": json.dumps({"a": json.dumps({"key": [text]})}),
        "json in json in json": json.dumps([json.dumps([json.dumps([text])])]),
        "raw json": msgspec.json.encode([text]).decode(),
        "repr": repr({"key": text}),
        "repr of bytes": repr(raw),
        "lines": "\n".join(["log:", f"  {text}", "end"]),
        "basic": "Basic " + base64.b64encode(f"ana:{text}".encode()).decode(),
        "wrapped": base64.encodebytes(b"-" * 41 + raw + b"-" * 100).decode(),
        "wrapped, escaped": json.dumps(base64.encodebytes(b"-" * 44 + raw + b"-" * 100).decode()),
        "wrapped hex": "\n".join(re.findall(".{1,60}", (b"-" * 20 + raw).hex())),
        "long": f"{'filler ' * 700}{text}{' filler' * 700}",
    }
    for number, encoded in enumerate(alignments(text)):
        found[f"base64 {number}"] = encoded
        found[f"urlsafe {number}"] = encoded.translate(str.maketrans("+/", "-_")).rstrip("=")
    return found


@cache  # for each value of a store
def traces(text: str) -> list[bytes]:
    """Whatever would give it away: the value, and what its bytes alone decide of each encoding."""
    raw = text.encode()
    cores = [
        base64.b64encode(bytes(shift) + raw)[[0, 2, 3][shift] : 8 * (shift + len(raw)) // 6]
        for shift in range(3)
    ]
    forms = [
        raw,
        json.dumps(text)[1:-1].encode(),
        quote(text, safe="").encode(),
        quote(text).encode(),
    ]
    forms += [
        raw.hex().encode(),
        raw.hex().upper().encode(),
        "".join(f"%{byte:02x}" for byte in raw).encode(),
    ]
    return [*forms, *cores, *(core.translate(bytes.maketrans(b"+/", b"-_")) for core in cores)]


def assert_nowhere(data: bytes, text: str, where: str) -> None:
    bare = re.sub(rb"(\\+[rn]|\s)", b"", data)
    as_it_is = (text.encode(), quote(text).encode())
    for trace in traces(text):
        assert trace not in data, (where, trace)
        if trace not in as_it_is:
            assert trace not in bare, (where, trace)


def everything(store: Store) -> Iterator[tuple[str, bytes]]:
    """All that a store holds, decompressed: headers, bodies, blobs, snapshots."""
    blobs: set[Digest] = set()
    for number, event in store.feed():
        yield f"header {number}", event.raw
        yield f"body {number} {event.kind}", event.content
        blobs.update(event.refs)
    for digest in blobs:
        yield f"blob {digest}", store.get_blob(digest)
    for _, log in store.logs(limit=1000):
        for seq, data in store.snapshots(log.id):
            yield f"snapshot {log.id}@{seq}", data


def assert_clean(store: Store, folder: Path, *values: str) -> None:
    for value in values:
        for where, data in everything(store):
            assert_nowhere(data, value, where)
    store.close()
    if is_postgres(store.address):
        for cell in postgres_cells(store.address):
            for value in values:
                assert_nowhere(cell, value, store.address)
        return
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" or path.stat().st_size > 4096 for path in files)
    for path in files:
        for value in values:
            assert_nowhere(path.read_bytes(), value, path.name)
    for path in files:
        if path.read_bytes().startswith(b"SQLite format 3"):
            with sqlite3.connect(path) as database:  # rows of projections, as text
                for name, value in ((name, value) for name in values for value in _cells(database)):
                    assert_nowhere(value, name, path.name)
            database.close()


def _cells(database: sqlite3.Connection) -> Iterator[bytes]:
    for (table,) in database.execute(
        "select name from sqlite_master where type = 'table'"
    ).fetchall():
        for row in database.execute(f'select * from "{table}"'):
            yield from (cell if isinstance(cell, bytes) else str(cell).encode() for cell in row)


# ── the canary ───────────────────────────────────────────────────────────────────────────────


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
def tell(text: str) -> dict[str, Any]:
    """Say it as data."""
    return {"said": text, text: [text, {"deep": {text: text}}], "more": ["x"] * 3}


@tool
def read(text: str) -> bytes:
    """Say it as bytes."""
    return b"\x00\xff" + text.encode() + b"\x80"


@tool
def fail(text: str) -> str:
    """Fail with it."""
    raise RuntimeError(f"cannot use {text}")


def _tolerant(act: Callable[[], Session], session: Session) -> Session:
    try:
        return act()
    except ToolFailed:
        return session.reload()


WAYS: dict[str, Callable[[Session, str], Session]] = {
    "said": lambda session, text: session.say(text),
    "said as data": lambda session, text: session.say({text: [text], "n": {"key": text}}),
    "said as parts": lambda session, text: session.say(
        Text(text), Reasoning(text, raw={"x": text}), Data([text])
    ),
    "said by a name": lambda session, text: session.say("hello", role="assistant", name=text[:150]),
    "a file": lambda session, text: session.say(
        file(text.encode(), f"{text[:100]}.txt"), image(text.encode(), "image/png", alt=text)
    ),
    "a fact": lambda session, text: session.fact(f"key {text[:100]}", {"value": text}),
    "a decision": lambda session, text: session.decide("use", text),
    "a note": lambda session, text: session.note(text),
    "work": (
        lambda session, text: session.todo(text).settle(next(reversed(session.todo("x").pending)))
    ),
    "scratch": lambda session, text: session.scratch("draft", [text]),
    "evidence": lambda session, text: session.attach(text[:150], text.encode()),
    "evidence as text": lambda session, text: session.attach("log", text),
    "a verdict": lambda session, text: session.checks.record("tests", False, detail={"why": text}),
    "a link": lambda session, text: session.lineage.link("web", text[:3000], note=text),
    "a tool's text": lambda session, text: session.use(echo, text=text),
    "a tool's data": lambda session, text: session.use(tell, text=text),
    "a tool's bytes": lambda session, text: session.use(read, text=text),
    "a tool's error": lambda session, text: _tolerant(
        lambda: session.use(fail, text=text), session
    ),
    "a title": lambda session, text: session.successor(text, title=text[:250]),
    "paused": lambda session, text: session.pause(reason=text).unpause(reason=text),
}


def _work(session: Session, text: str) -> Session:
    later = session.todo(text, key="step")
    return later.settle("step", outcome=text)


WAYS["work"] = _work


@pytest.mark.long
def test_the_canary_is_nowhere_in_the_store(tmp_path: Path) -> None:
    """Every spelling on several ways, and every way with several spellings."""
    secrets.register(CANARY, "STRIPE_KEY")
    secrets.register(ODD, "ODD")
    store = open_store(tmp_path / ".plait", durability="async")
    sent = 0
    for value in (CANARY, ODD):
        forms = spellings(value)
        for name, text in forms.items():
            session = Session(
                text,
                title=f"t {text[:200]}" if len(text) < 200 else "long",
                tags={"k": text[:200]},
                store=store,
            )
            for way in ("said as data", "a tool's data", "a tool's error", "a file"):
                session = WAYS[way](session, text)
                sent += 1
            assert name
        for way in WAYS.values():
            session = Session("begin", store=store)
            for name in ("plain", "within", "hex", "basic", "json in json", "wrapped", "long"):
                session = way(session, forms[name])
                sent += 1
    assert sent >= 200
    assert_clean(store, tmp_path, CANARY, ODD)


def test_a_secret_in_names_is_not_in_headers(tmp_path: Path, canary: str) -> None:
    store = open_store(tmp_path / ".plait")
    session = Session("hi", user=f"u-{canary}", project=canary, store=store).say(
        "x", actor=f"service:{canary}"
    )
    fork = session.fork(f"branch-{canary}"[:60])
    assert session.events[-1].actor == "service:[secret:STRIPE_KEY]"
    assert (session.user, session.project, fork.lineage.label) == (
        f"u-{SHOWN}",
        SHOWN,
        f"branch-{SHOWN}",
    )
    assert_clean(store, tmp_path, canary)


def test_a_run_shows_no_secret(tmp_path: Path, canary: str) -> None:
    store = open_store(tmp_path / ".plait")
    model = ScriptedModel(
        [
            ToolCall("echo", text=f"{canary} {'x' * 9000}"),
            ToolCall("fail", text=canary),
            f"It is {canary}.",
        ]
    )

    class Leaky(Workflow):
        def __init__(self) -> None:
            self.agent = Agent(f"Never say {canary}.", model=model, tools=[echo, fail])

        def forward(self, session: Session) -> Session:
            session = self.agent(session.say(f"My key: {canary}"))
            assert canary not in session.text, "the program sees what was recorded"
            raise ValueError(f"broken by {canary}")

    session = Session("go", store=store)
    with pytest.raises(ValueError):
        Leaky()(session)
    session = session.reload()
    assert session.runs[-1].status == "failed" and SHOWN in session.runs[-1].why
    failed = next(event for event in session.events if event.kind == "ToolFailed")
    assert SHOWN in str(failed.body) and "Traceback" in str(failed.body)
    assert_clean(store, tmp_path, canary)


def test_the_program_reads_what_was_recorded(store: Store, canary: str) -> None:
    session = Session("go", store=store).use(tell, text=canary)
    assert session.result == {
        "said": SHOWN,
        SHOWN: [SHOWN, {"deep": {SHOWN: SHOWN}}],
        "more": ["x"] * 3,
    }
    with pytest.raises(ToolFailed, match=re.escape(f"cannot use {SHOWN}")):
        session.use(fail, text=canary)
    got: list[str] = []

    @tool
    def pay(key: str) -> str:
        """Pay."""
        got.append(key)
        return "paid"

    after = Session("go", store=store).use(pay, key=canary)
    assert got == [canary]  # who uses it gets it
    assert [
        event.body.arguments for event in after.events if isinstance(event.body, ToolRequested)
    ] == [{"key": SHOWN}]


@given(
    st.text(min_size=6, max_size=40).filter(lambda text: len(text.strip()) >= 6),
    st.binary(max_size=20),
    st.binary(max_size=20),
    st.sampled_from(["base64", "hex", "bytes", "url", "json"]),
)
@pytest.mark.long
def test_whatever_stands_around_it(value: str, before: bytes, after: bytes, how: str) -> None:
    secrets.forget()
    try:
        secrets.register(value, "KEY")
        raw = value.strip().encode("utf-8", "surrogatepass")
    except UnicodeEncodeError:
        return
    data = before + raw + after
    if how == "base64":
        hidden = secrets.hide_text(base64.b64encode(data).decode())
        core = base64.b64encode(bytes(len(before) % 3) + raw)[
            [0, 2, 3][len(before) % 3] : 8 * (len(before) % 3 + len(raw)) // 6
        ]
        assert core.decode() not in hidden and "[secret KEY]" in hidden
    elif how == "hex":
        assert "[secret KEY]" in secrets.hide_text(
            data.hex()
        ) and raw.hex() not in secrets.hide_text(data.hex())
    elif how == "bytes":
        assert raw not in secrets.hide_bytes(data)
    elif how == "url":
        assert "[secret KEY]" in secrets.hide_text(f"x={quote(value.strip(), safe='')}&")
    else:
        assert "[secret KEY]" in secrets.hide_text(json.dumps({"a": value.strip()}))


# ── Secret ───────────────────────────────────────────────────────────────────────────────────


def test_a_secret_names_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Secret("STRIPE_KEY")
    assert (repr(key), str(key), f"{key}") == ("Secret('STRIPE_KEY')", SHOWN, SHOWN)
    monkeypatch.delenv("STRIPE_KEY", raising=False)
    with pytest.raises(
        MissingKey, match="Set the environment variable STRIPE_KEY, or give it a value"
    ):
        _ = key.value
    monkeypatch.setenv("STRIPE_KEY", CANARY)
    assert not secrets.is_armed()
    assert key.value == CANARY
    assert secrets.hide_text(f"x{CANARY}y") == f"x{SHOWN}y"


def test_a_secret_may_come_from_anywhere() -> None:
    assert Secret("A", "value-of-a").value == "value-of-a"
    assert Secret("B", value=lambda: "value-of-b").value == "value-of-b"
    assert secrets.hide_text("value-of-a value-of-b") == "[secret A] [secret B]"
    assert (
        Secret("A", "value-of-a") == Secret("A") != Secret("B")
        and len({Secret("A"), Secret("A")}) == 1
    )


def test_a_secret_travels_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pickle.dumps(Secret("STRIPE_KEY", CANARY))
    assert CANARY.encode() not in packed
    monkeypatch.setenv("STRIPE_KEY", "another-value")
    assert pickle.loads(packed).value == "another-value"


@pytest.mark.parametrize("value", ["", "abcde", "  abc  "])
def test_short_values_are_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSecret, match="fewer than 6 characters"):
        secrets.register(value, "PIN")
    with pytest.raises(BadSecret):
        secrets.register("long enough", "not a name")
    monkeypatch.setenv("PIN", value or "x")
    with pytest.raises(BadSecret):
        _ = Secret("PIN").value
    assert not secrets.is_armed()


def test_the_longest_goes_first() -> None:
    secrets.register("hunter22", "PART")
    secrets.register("ana:hunter22:x", "WHOLE")
    assert secrets.hide_text("ana:hunter22:x hunter22") == "[secret WHOLE] [secret PART]"


def test_the_first_name_stays() -> None:
    secrets.register("hunter22", "ONE")
    secrets.register("hunter22", "TWO")
    assert secrets.hide_text("hunter22") == "[secret ONE]"
    secrets.forget("ONE")
    assert secrets.hide_text("hunter22") == "hunter22"


def test_numbers_and_keys_that_meet() -> None:
    secrets.register("12345678", "PIN")
    assert secrets.hide({"pin": 12345678, "n": 1, "yes": True}) == {
        "pin": "[secret PIN]",
        "n": 1,
        "yes": True,
    }
    assert secrets.hide({"12345678": 1, "[secret PIN]": 2}) == {
        "[secret PIN]": 1,
        "[secret PIN] 2": 2,
    }


def test_a_private_key_is_found_indented() -> None:
    lines = [
        "-----BEGIN PRIVATE KEY-----",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
        "BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
        "-----END PRIVATE KEY-----",
    ]
    secrets.register("\n".join(lines), "PEM")
    for text in (
        "\n".join(lines),
        "\n    ".join(lines),
        "\r\n".join(lines),
        "\\n".join(lines),
        json.dumps(json.dumps("\n".join(lines))),
    ):
        assert "BKcwgg" not in secrets.hide_text(text)
        assert "BKcwgg" not in secrets.hide_bytes(text.encode()).decode()


def test_names_of_ours_are_left_alone() -> None:
    """A short secret may stand in a digest by chance; what points to something must go on pointing
    there.
    """
    secrets.register("abcdef", "WORD")
    digest, log = Digest("abcdef" + "0" * 58), LogId("abcdef00-0000-7000-8000-000000abcdef")
    merged = Merged((Place(log, 3, digest),), {log: 3})
    assert without_secrets(merged) == merged
    assert without_secrets(FactRecorded("abcdef", digest, "fact")) == FactRecorded(
        "[secret WORD]", digest.replace("abcdef", "[secret WORD]"), "fact"
    )


def test_nothing_known_costs_nothing() -> None:
    body = FactRecorded("key", CANARY, "fact")
    assert without_secrets(body) is body
    assert secrets.hide_text(CANARY) is CANARY
    secrets.register("something else", "OTHER")
    assert without_secrets(body) is body


# ── where values come from ───────────────────────────────────────────────────────────────────


def test_the_environment_names_secrets(tmp_path: Path) -> None:
    script = (
        "from plait import Session, secrets; s = Session('key: hunter22x', store='memory:');"
        " print(s.messages[0].text)"
    )
    environ = {**os.environ, "PLAIT_SECRETS": "MY_KEY, UNSET", "MY_KEY": "hunter22x"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environ, check=True
    )
    assert done.stdout.strip() == "key: [secret MY_KEY]"


def test_what_the_environment_names_after_the_import_is_known_from_then_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "hunter22x" in Session("key: hunter22x", store=store).messages[0].text
    monkeypatch.setenv("PLAIT_SECRETS", "OTHER, MY_KEY")
    assert "hunter22x" in Session("key: hunter22x", store=store).messages[0].text
    monkeypatch.setenv("MY_KEY", "hunter22x")
    assert Session("key: hunter22x", store=store).messages[0].text == "key: [secret MY_KEY]"
    assert secrets.hide_shown_text("hunter22x") == "[secret MY_KEY]" and secrets.is_armed()
    pieces = secrets.HiddenPieces()
    assert pieces.feed("hunter") + pieces.feed("22x") + pieces.end() == "[secret MY_KEY]"
    monkeypatch.setenv("MY_KEY", "another-8b1")  # the one that it was stays a secret
    assert secrets.hide_text("hunter22x another-8b1") == "[secret MY_KEY] [secret MY_KEY]"


def test_a_value_that_is_mended_in_the_environment_is_refused_no_longer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIN", "1234")
    monkeypatch.setenv("PLAIT_SECRETS", "PIN")
    with pytest.raises(BadSecret, match="'PIN' cannot be a secret"):
        Session("hello", store=store)
    monkeypatch.setenv("PIN", "1234-5678")
    assert Session("hello 1234-5678", store=store).messages[0].text == "hello [secret PIN]"


def test_a_short_value_in_the_environment_is_told_before_anything_is_written(store: Store) -> None:
    secrets.from_environment({"PLAIT_SECRETS": "PIN", "PIN": "1234"})
    with pytest.raises(BadSecret, match="'PIN' cannot be a secret"):
        Session("hello", store=store)
    assert store.number == 0


@pytest.mark.parametrize(
    ("value", "is_key"),
    [
        ("sk-proj-0123456789abcdef", True),
        ("not-needed", False),
        ("sk-no-key-required", False),
        ("ollama", False),
        (None, False),
        ("k1", False),
    ],
)
def test_keys_of_adapters_are_told_from_placeholders(value: str | None, is_key: bool) -> None:
    secrets.learn_key(value, "API_KEY")
    assert secrets.is_armed() is is_key


def test_adapters_make_their_keys_known() -> None:
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    pytest.importorskip("mcp")
    from plait.mcp import MCPServer
    from plait.model.anthropic import AnthropicModel
    from plait.model.openai import OpenAIModel

    OpenAIModel("gpt-5", api_key="sk-openai-0123456789")
    AnthropicModel("claude-sonnet-5-5", api_key="sk-ant-0123456789")
    MCPServer.stdio(
        "python", "server.py", env={"GITHUB_TOKEN": "ghp_0123456789", "WORKDIR": "/home/ana/repo1"}
    )
    MCPServer.http("http://127.0.0.1:1/mcp", headers={"Authorization": "Bearer tok_0123456789"})
    text = "sk-openai-0123456789 sk-ant-0123456789 ghp_0123456789 /home/ana/repo1 tok_0123456789"
    wanted = (
        "[secret OPENAI_API_KEY] [secret ANTHROPIC_API_KEY] [secret GITHUB_TOKEN] /home/ana/repo1"
        " [secret Authorization]"
    )
    assert secrets.hide_text(text) == wanted


# ── origins ──────────────────────────────────────────────────────────────────────────────────


def test_origins_are_told_and_gathered(store: Store) -> None:
    session = Session("hi", store=store)
    assert session.lineage.origins == {"human"}
    read = session.say("<h1>Buy now</h1>", origin="web", actor="service:fetch")
    assert read.lineage.origins == {"human", "web"}
    assert read.events.where(origin="web") == [read.events[-1]]
    assert read.attach("page", b"<html>", origin="web:example.org").lineage.origins == {
        "human",
        "web",
        "web:example.org",
    }
    fork = session.fork("a").say("from a mail", origin="mail")
    back = session.reload().rewind(session.seq)
    assert "web" not in back.lineage.origins
    assert back.merge(fork).lineage.origins >= {"human", "mail"}
    assert session.lineage.origins == {"human"}


@pytest.mark.parametrize("origin", ["", "Web", "the web", "w" * 101, "1web", "wéb", 7])
def test_an_origin_is_a_word(store: Store, origin: Any) -> None:
    session = Session("hi", store=store)
    with pytest.raises(PlaitError, match="origin"):
        session.say("x", origin=origin)
    with pytest.raises(PlaitError, match="is no origin"):
        tool(name="fetch", taints=origin)(lambda: None)
    assert session.reload() == session


def test_a_tool_says_what_its_results_are() -> None:
    @tool(taints="web")
    def fetch(url: str) -> str:
        """Fetch a page."""
        return url

    assert (fetch.taints, echo.taints) == ("web", "tool")


def test_origins_survive_a_secret_in_them(store: Store, canary: str) -> None:
    secrets.register("abc-def-123", "WORD")
    session = Session("hi", store=store)
    spot = writer_of(None).append(
        position_of(session),
        [Draft(FactRecorded("k", 1, "fact"), Act("service:x", "web:abc-def-123"))],
    )
    event: Event = store.event(spot.head)
    assert event.header.origin == "web:-secret-word"
