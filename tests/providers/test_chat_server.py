"""The chat server of docs/chat.md: two workers of uvicorn, and a model behind real HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any, NamedTuple

import httpx
import pytest

from plait import Session, open_store
from plait.errors import RunHeld
from plait.session import verify
from plait.session.value import open_run_of
from plait.store import Store
from tests.providers.chat_server import ChatServer, Reply
from tests.providers.wire import Answer, Asked
from tests.support import ROOT, wait_until
from tests.support.servers import uvicorn_server

pytest.importorskip("openai")


class _Model(ChatServer):
    """Echoes; asks for a refund if that is the word; and says no more than a word of an answer to
    "slow" until it is released.
    """

    def __init__(self) -> None:
        super().__init__(_reply)

    def next(self, asked: Asked) -> Answer:
        answer = super().next(asked)
        return answer.hold(after=1) if _last_words(asked.json) == "slow" else answer


def _last_words(body: dict[str, Any]) -> str:
    return str([each["content"] for each in body["messages"] if each["role"] == "user"][-1])


def _reply(body: dict[str, Any]) -> Reply:
    if _last_words(body) in ("refund", "no refund") and body["messages"][-1]["role"] != "tool":
        return [("refund", {"order": 17, "euros": 40})]
    if _last_words(body) == "late?" and body["messages"][-1]["role"] != "tool":
        return [("ask_human", {"question": "Is it late?", "choices": ["yes", "no"]})]
    if body["messages"][-1]["role"] == "tool" and _last_words(body) in ("late?", "no refund"):
        return f"told: {body['messages'][-1]['content']}"
    return f"you said {_last_words(body)}"


class _Chat(NamedTuple):
    """A chat on the server, as a browser has it; and the store, which no browser sees."""

    url: str
    id: str
    store: Store
    model: _Model

    def say(self, words: str, key: str = "") -> list[tuple[str, Any]]:
        with self.stream(words, key) as items:
            return list(items)

    @contextmanager
    def stream(self, words: str, key: str = "") -> Generator[Iterator[tuple[str, Any]]]:
        """Post a message, and yield the events that are sent back."""
        where, headers = f"{self.url}/chats/{self.id}/messages", {"Idempotency-Key": key}
        with httpx.stream("POST", where, content=words, headers=headers, timeout=60) as got:
            assert got.status_code == 200
            yield _events(got.iter_lines())

    def shown(self) -> dict[str, Any]:
        return httpx.get(f"{self.url}/chats/{self.id}", timeout=60).json()

    def texts(self) -> list[str]:
        return [each["text"] for each in self.shown()["messages"]]

    @property
    def session(self) -> Session:
        return Session.open(self.id, store=self.store)

    def counts(self) -> Counter[str]:
        return Counter(event.kind for event in self.session.events)

    def worker(self) -> int:
        """The process that has the open run."""
        try:
            self.store.lock(open_run_of(self.session) or "", "").release()
        except RunHeld as held:
            return int(re.findall(r"\d+", held.holder)[0])
        raise AssertionError("no process has the run")


def _events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        key, _, value = line.partition(": ")
        if key == "event":
            name = value
        elif key == "data":
            yield name, json.loads(value)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Store, _Model]]:
    folder, model = tmp_path_factory.mktemp("chats"), _Model()
    arguments = ("chat_server:app", "--workers", "2", "--app-dir", str(ROOT / "examples"))
    settings = {"PLAIT_MODEL": f"{model.url}/v1#any", "PLAIT_STORE": str(folder / "store")}
    with model, uvicorn_server(*arguments, folder=folder, **settings) as address:
        yield f"http://{address}", open_store(folder / "store"), model


@pytest.fixture
def chat(server: tuple[str, Store, _Model]) -> _Chat:
    url, store, model = server
    model.play()  # holds again
    return _Chat(url, httpx.post(f"{url}/chats", timeout=60).text, store, model)


def test_twenty_clients_at_once(chat: _Chat) -> None:
    chat.say("hello")
    together = Barrier(20)

    def client(number: int) -> list[tuple[str, Any]]:
        together.wait()
        return chat.say(f"m{number}")

    with ThreadPoolExecutor(20) as clients:
        said = list(clients.map(client, range(20)))
    for number, items in enumerate(said):
        assert "".join(data for name, data in items if name == "text") == f"you said m{number}"
        assert items[-1] == ("done", f"you said m{number}")
    roles = Counter(each["role"] for each in chat.shown()["messages"])
    assert roles == {"user": 21, "assistant": 21}
    counts = chat.counts()
    assert counts["RunFinished"] == 21 and counts["RunFailed"] == 0
    assert list(verify(chat.store, state=True)) == []


def test_a_client_that_goes_away_leaves_a_turn_that_ends(chat: _Chat) -> None:
    with chat.stream("slow") as items:
        assert next(items) == ("text", "you ")
    chat.model.release()
    wait_until(lambda: chat.texts() == ["slow", "you said slow"])


def test_a_retry_is_the_same_turn(chat: _Chat) -> None:
    first = chat.say("one", key="r-1")
    assert chat.say("one", key="r-1") == [("done", "you said one")] == first[-1:]
    name, why = chat.say("two", key="r-1")[-1]
    assert name == "error" and "with a key of its own" in why
    assert chat.texts() == ["one", "you said one"]


def test_an_approval_in_the_middle_of_a_chat(chat: _Chat) -> None:
    name, asks = chat.say("refund", key="r-1")[-1]
    assert (name, asks[0]["tool"], asks[0]["arguments"]["euros"]) == ("waiting", "refund", 40)
    assert chat.say("still there?")[-1] == ("waiting", asks), "it waits behind the run"
    assert chat.shown()["waiting"] == asks
    approval = f"{chat.url}/chats/{chat.id}/asks/{asks[0]['id']}/approve"
    assert httpx.post(approval, timeout=60).status_code == 204
    items = chat.say("refund", key="r-1")
    assert items[-1] == ("done", "you said refund") and items[0][0] == "text"
    assert httpx.post(approval, timeout=60).status_code == 409, "it was answered"
    wrong = approval.replace(asks[0]["id"], "0" * 64)
    assert (got := httpx.post(wrong, timeout=60)).status_code == 409 and "plait inbox" in got.text
    assert chat.say("bye")[-1] == ("done", "you said bye"), "and answers what stood before"
    assert chat.texts()[-4:] == ["still there?", "you said still there?", "bye", "you said bye"]
    assert chat.counts()["ToolReturned"] == 1 and chat.shown()["waiting"] == []


def test_a_refusal_in_the_middle_of_a_chat(chat: _Chat) -> None:
    (ask,) = chat.say("no refund", key="r-1")[-1][1]
    deny = f"{chat.url}/chats/{chat.id}/asks/{ask['id']}/deny"
    assert httpx.post(deny, content="It was delivered.", timeout=60).status_code == 204
    name, text = chat.say("no refund", key="r-1")[-1]
    assert name == "done" and "It was delivered." in text
    assert httpx.post(deny, timeout=60).status_code == 409, "it was answered"
    assert chat.counts()["ToolReturned"] == 0 and chat.shown()["waiting"] == []


def test_a_question_in_the_middle_of_a_chat(chat: _Chat) -> None:
    name, (ask,) = chat.say("late?", key="r-1")[-1]
    assert (name, ask["kind"], ask["question"]) == ("waiting", "question", "Is it late?")
    assert ask["choices"] == ["yes", "no"] and chat.shown()["waiting"] == [ask]
    post = f"{chat.url}/chats/{chat.id}/asks/{ask['id']}"
    approval = httpx.post(f"{post}/approve", timeout=60)
    assert approval.status_code == 409 and "it is a question" in approval.text
    for wrong in ('"perhaps"', "yes"):  # not a choice, and not JSON
        assert httpx.post(f"{post}/answer", content=wrong, timeout=60).status_code == 409
    assert httpx.post(f"{post}/answer", json="no", timeout=60).status_code == 204
    name, text = chat.say("late?", key="r-1")[-1]
    assert name == "done" and text.startswith("told: ") and "no" in text
    assert httpx.post(f"{post}/answer", json="no", timeout=60).status_code == 409


def test_a_worker_that_is_killed(chat: _Chat) -> None:
    with pytest.raises(httpx.RemoteProtocolError), chat.stream("slow", "r-1") as items:
        assert next(items) == ("text", "you ")
        os.kill(chat.worker(), signal.SIGKILL)
        list(items)
    chat.model.release()
    assert chat.say("next")[-1] == ("done", "you said next")
    assert chat.texts() == ["slow", "you said slow", "next", "you said next"]
    assert chat.say("slow", key="r-1")[-1] == ("done", "you said slow")
    assert chat.counts()["RunFailed"] == 0


def test_a_call_whose_outcome_is_not_known_is_resolved(chat: _Chat) -> None:
    """The record of a worker that was killed inside of the tool, without a worker to kill."""
    ask = chat.say("refund", key="r-1")[-1][1][0]
    assert ask["kind"] == "approval"
    post = f"{chat.url}/chats/{chat.id}/asks"
    assert httpx.post(f"{post}/{ask['id']}/approve", timeout=60).status_code == 204
    _die_in_the_tool(chat)
    name, (doubt,) = chat.say("refund", key="r-1")[-1]
    assert (name, doubt["kind"], doubt["tool"]) == ("waiting", "unknown", "refund")
    assert httpx.post(f"{post}/{doubt['id']}/approve", timeout=60).status_code == 409
    resolve = f"{post}/{doubt['id']}/resolve"
    for wrong in ("perhaps", '{"verdict": "perhaps"}', '{"verdict": "happened"}'):
        assert httpx.post(resolve, content=wrong, timeout=60).status_code == 409
    verdict = {"verdict": "happened", "value": "40 euros sent"}
    assert httpx.post(resolve, json=verdict, timeout=60).status_code == 204
    assert chat.say("refund", key="r-1")[-1] == ("done", "you said refund")
    assert chat.counts()["ToolReturned"] == 0, "it was not run again"


def _die_in_the_tool(chat: _Chat) -> None:
    """Resume the run in a process that is killed when the tool is at work."""
    code = (
        "import os, signal, sys, threading, chat_server as server\n"
        "from plait import Session, resume\n"
        "def die(frame, *_):\n"  # the function itself stays as it was approved
        "    if frame.f_code is server.refund.function.__code__:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "threading.setprofile(die)\n"
        "sys.setprofile(die)\n"
        f"resume(Session.open({chat.id!r}), server.desk)\n"
    )
    settings = {"PLAIT_MODEL": f"{chat.model.url}/v1#any", "PLAIT_STORE": chat.store.address}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **settings, "PYTHONPATH": f"{ROOT}/examples:{ROOT}/src"},
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL


def test_no_such_chat(chat: _Chat) -> None:
    wrong = f"{chat.url}/chats/01a1ea5b-5906-7780-a140-834043862339"
    assert httpx.get(wrong, timeout=60).status_code == 404
    assert httpx.get(f"{chat.url}/chats/@", timeout=60).status_code == 404
    assert chat.say("")[-1][0] == "error"
