"""Every read of the server, compared with the Python API on sessions of every sort."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from plait import Session
from plait.event.kinds import ModelAsked
from plait.outline.comparing import comparison_shape
from plait.outline.details import step_detail
from plait.outline.documents import (
    VERDICTS,
    blame_document,
    event_document,
    show_document,
    spent_document,
    trace_document,
)
from plait.outline.family import family_shape
from plait.outline.outlines import Outlines
from plait.outline.steps import outline_shape, step_page
from plait.outline.summaries import Summaries
from plait.outline.track import track_shape
from plait.runtime.sent import rebuild_prompt
from plait.session.inbox import all_waiting
from plait.session.ledger import costs
from tests.server.clients import app_client
from tests.support.view_sessions import ViewStore


@pytest.fixture(scope="module")
def client(made: ViewStore) -> Iterator[TestClient]:
    with app_client(made.store) as client:
        yield client


def got(client: TestClient, address: str, status: int = 200, /, **params: Any) -> Any:
    answer = client.get(address, params=params)
    assert answer.status_code == status, answer.text
    return answer.json()


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_the_store_tells_what_it_is(client: TestClient, made: ViewStore) -> None:
    found = got(client, "/api/store")
    assert found["id"] == made.store.id and found["number"] == made.store.number
    assert found["actor"] == "human:ana" and found["can_run"] is False


def test_a_session_is_as_the_shell_shows_it(client: TestClient, made: ViewStore) -> None:
    for name, log in made.sessions.items():
        session = made.session(name)
        found = got(client, f"/api/sessions/{log}")
        document = plain(show_document(session, 0))
        costs_more = ("usage", "not_merged", "messages", "message_count")
        known = {key: document[key] for key in document if key not in costs_more}
        known["validation"] = known["validation"][-VERDICTS:]
        assert {key: found[key] for key in known} == known, name
        assert found["usage"] == spent_document(session.budget.used)
        assert found["is_tip"] is True
        if session.seq > 3:
            earlier = got(client, f"/api/sessions/{session.short}@3")
            assert (earlier["place"], earlier["is_tip"], earlier["tip"]) == (3, False, session.seq)


def test_events_are_whole_and_by_range(client: TestClient, made: ViewStore) -> None:
    session = made.session("repair")
    first = got(client, f"/api/logs/{session.id}/events", first=1, count=10)
    rest = got(client, f"/api/logs/{session.id}/events", first=11, count=500)
    both = [*first["events"], *rest["events"]]
    known = [plain(event_document(event)) for event in session.events]
    assert [{key: each[key] for key in known[0]} for each in both] == known
    assert {each["state"] for each in both} == {"whole"} and first["tip"] == session.seq
    assert got(client, f"/api/logs/{session.id}/events", first=10_000)["events"] == []


def test_files_of_a_tree_are_those_of_the_session(client: TestClient, made: ViewStore) -> None:
    for name in ("repair", "large"):
        files = made.session(name).files
        shown = dict[str, Any]()
        folders = [""]
        while folders:
            found = got(client, f"/api/trees/{files.tree}", folder=folders.pop())
            for entry in found["entries"]:
                if entry["kind"] == "folder":
                    folders.append(entry["path"])
                else:
                    shown[entry["path"]] = entry
        assert sorted(shown) == sorted(files.paths())
        for path in files.paths():
            file = got(client, f"/api/trees/{files.tree}/file", path=path, count=5_000)
            assert file["size"] == len(files.read(path))
            if file["form"] == "text" and not file["cut_lines"]:
                lines = files.text(path).split("\n")
                assert (
                    file["lines"]
                    == [each.rstrip("\r") for each in lines[:5_000] if lines][: len(file["lines"])]
                )
                assert file["line_count"] == files.text(path).count("\n") + bool(lines[-1])


def test_pictures_are_told_by_their_bytes(client: TestClient, made: ViewStore) -> None:
    files = made.session("large").files
    forms = {
        path: got(client, f"/api/trees/{files.tree}/file", path=path) for path in files.paths()
    }
    images = [each for each in forms.values() if each["form"] == "image"]
    assert images and all(each["media_type"].startswith("image/") for each in images)
    answer = client.get(f"/api/blobs/{images[0]['blob']}")
    assert answer.headers["content-type"] == images[0]["media_type"]
    assert answer.headers["content-security-policy"].startswith("sandbox")
    others = [each for each in forms.values() if each["form"] == "binary" and each["blob"]]
    for each in others:
        answer = client.get(f"/api/blobs/{each['blob']}", params={"name": 'a"b\n.html'})
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == 'attachment; filename="a_b_.html"'
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_difference_counts_as_the_session_does(client: TestClient, made: ViewStore) -> None:
    session = made.session("repair")
    trees = [session.at(seq).files.tree for seq in range(1, session.seq + 1)]
    first = next(tree for tree in trees if tree is not None)
    last = session.files.tree
    found = got(client, f"/api/trees/{first}/diff/{last}")
    before = next(s for s in map(session.at, range(1, session.seq)) if s.files.tree == first)
    known = before.diff(session).files
    stats = {each.path: (each.added, each.removed) for each in known.stat()}
    assert {each["path"]: (each["added"], each["removed"]) for each in found["files"]} == stats
    for file in found["files"]:
        lines = [line for hunk in file["hunks"] for line in hunk]
        assert sum(line[0] == "+" for line in lines) == file["added"]
        assert sum(line[0] == "-" for line in lines) == file["removed"]
    one = got(client, f"/api/trees/{first}/diff/{last}", path=found["files"][0]["path"])
    assert one["files"] == found["files"][:1]
    everything = got(client, f"/api/trees/none/diff/{last}")
    assert sorted(each["path"] for each in everything["files"]) == sorted(session.files.paths())


def test_blame_names_the_writer_of_each_line(client: TestClient, made: ViewStore) -> None:
    session = made.session("repair")
    for path in session.files.paths():
        found = got(client, f"/api/sessions/{session.id}/blame", path=path)
        known = blame_document(session.files.blame(path))["lines"]
        assert [found["writers"][at]["event"] for at in found["lines"]] == [
            each["event"] for each in known
        ]


def test_prompts_are_as_sent_and_tell_what_is_new(client: TestClient, made: ViewStore) -> None:
    session = made.session("repair")
    asked = [event for event in session.events if event.kind == ModelAsked.__name__]
    lengths = dict[str, int]()
    for event in asked:
        found = got(client, f"/api/sessions/{session.id}@{event.seq}/prompt")
        known = rebuild_prompt(session.at(event.seq))
        assert found["as_sent"] is True and found["digest"] == known.digest
        assert found["turns"] == plain([msgspec.to_builtins(turn) for turn in known.turns])
        assert found["new_from"] == lengths.get(event.actor, 0)
        lengths[event.actor] = len(known.turns)
    assert len(asked) > len(lengths)  # some agent was asked twice


def test_why_and_influence_are_those_of_the_session(client: TestClient, made: ViewStore) -> None:
    session = made.session("repair")
    for about, given in (("", session.seq), ("cart.py:6", "cart.py:6"), ("4", 4)):
        for verb, ask in (("why", session.why), ("influence", session.lineage.influence)):
            found = got(client, f"/api/sessions/{session.id}/{verb}", about=about, limit=1000)
            known = plain(trace_document(ask(given, limit=1000)))
            assert found["about"] == known["about"]
            assert all(step.pop("at")["log"] for step in found["steps"])
            keys = found["steps"][0].keys()
            assert found["steps"] == [{key: step[key] for key in keys} for step in known["steps"]]


def test_costs_and_the_flame_agree(client: TestClient, made: ViewStore) -> None:
    for name in ("repair", "debate"):
        session = made.session(name)
        found = got(client, "/api/costs", session=session.id, by="model,agent")
        known = costs(made.store, "model,agent", session=session)
        assert found["total"] == spent_document(known.total)
        assert [row["spent"] for row in found["rows"]] == [
            spent_document(spent) for _, spent in known.rows
        ]
        flame = got(client, f"/api/sessions/{session.id}/flame")
        assert flame["nodes"][0]["spent"] == found["total"], name
        for at, node in enumerate(flame["nodes"][1:], 1):
            assert 0 <= node["parent"] < at
            above = flame["nodes"][node["parent"]]
            assert above["depth"] == node["depth"] - 1
            assert above["spent"]["model_calls"] >= node["spent"]["model_calls"]
    assert got(client, "/api/costs")["total"] == spent_document(costs(made.store).total)


def test_the_inbox_has_all_asks(client: TestClient, made: ViewStore) -> None:
    known = {ask.event: ask for ask in all_waiting(made.store) if ask.kind != "timer"}
    found = {ask["id"]: ask for ask in got(client, "/api/inbox")["asks"]}
    assert found.keys() == known.keys()
    assert {ask["kind"] for ask in found.values()} == {
        "approval",
        "question",
        "unknown",
        "verdict",
    }
    for id, ask in found.items():
        assert ask["session"] == known[id].log and ask["seq"] == known[id].seq
        if ask["kind"] in ("approval", "unknown"):
            assert (ask["tool"], ask["arguments"]) == (known[id].tool, known[id].arguments)
            assert ask["effect"] and ask["request_seq"] is not None
        if ask["kind"] == "verdict":
            assert ask["signal"] == known[id].name
    one = got(client, "/api/inbox", session=made.sessions["question"])["asks"]
    assert [ask["kind"] for ask in one] == ["question"]
    assert [ask["name"] for ask in one] == ["Ship it."]  # as lists of sessions call it
    every = got(client, "/api/inbox", all=True)["asks"]
    assert "timer" in {ask["kind"] for ask in every}


def test_memories_of_a_session_are_told(client: TestClient, made: ViewStore) -> None:
    session = made.session("remembered")
    found = got(client, f"/api/sessions/{session.id}/memory")
    recalled = [event for event in session.events if event.kind == "MemoryRecalled"]
    assert [row["seq"] for row in found["recalls"]] == [event.seq for event in recalled]
    hits = [memory for row in found["recalls"] for memory in row["memories"]]
    assert hits and all(hit["text"] and hit["score"] is not None for hit in hits)
    assert any(hit["used"] for hit in hits)


def test_a_search_finds_what_was_said(client: TestClient, made: ViewStore) -> None:
    session = made.session("fresh")
    words = session.messages[0].text.split()[:2]
    found = got(client, "/api/search", q=" ".join(words).upper())
    assert session.id in {hit["log"] for hit in found["hits"]}
    assert got(client, "/api/search", q="no-such-word-anywhere") == {"hits": [], "is_cut": False}
    assert got(client, "/api/search", q="e", limit=1)["is_cut"] is True


def test_every_session_verifies(client: TestClient, made: ViewStore) -> None:
    for name in ("repair", "rewound", "fresh"):
        found = got(client, f"/api/sessions/{made.sessions[name]}/verify")
        assert found["ok"] is True and found["faults"] == [] and found["unchecked"]


def test_names_that_are_not_known_get_near_ones(client: TestClient, made: ViewStore) -> None:
    session = made.session("repair")
    wrong = session.short[:-1] + ("0" if session.short[-1] != "0" else "1")
    missing = got(client, f"/api/sessions/{wrong}", 404)
    assert missing["error"] == "UnknownRevision" and session.short in missing["near"]
    place = got(client, f"/api/sessions/{session.id}@9999", 404)
    assert place["near"] == [f"{session.short}@{session.seq}"]
    file = got(client, f"/api/trees/{session.files.tree}/file", 404, path="crat.py")
    assert file["error"] == "NoSuchFile" and "cart.py" in file["near"]
    blame = got(client, f"/api/sessions/{session.id}/blame", 404, path="crat.py")
    assert "cart.py" in blame["near"]
    assert got(client, f"/api/sessions/{made.sessions['fresh']}/blame", 404, path="x")
    assert got(client, f"/api/sessions/{made.sessions['fresh']}/prompt", 404)["error"] == "NoPrompt"
    assert got(client, f"/api/blobs/{'0' * 64}", 404)["error"] == "UnknownBlob"


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/api/trees/abc", {}),
        ("/api/trees/none/diff/xyz", {}),
        ("/api/logs/@/events", {"count": 0}),
        ("/api/logs/@/events", {"count": 501}),
        ("/api/logs/@/events", {"first": -1}),
        ("/api/logs/@/events", {"first": "one"}),
        ("/api/logs/@/events", {"unknown": 1}),
        ("/api/search", {}),
        ("/api/search", {"q": "x" * 3_000}),
        ("/api/costs", {"by": "moon"}),
    ],
)
def test_bad_parameters_are_refused_in_words(
    client: TestClient, path: str, params: dict[str, Any]
) -> None:
    found = got(client, path, 422, **params)
    assert found["error"] == "InvalidValue" and found["message"].endswith(".") and found["next"]


def test_what_is_named_by_a_digest_is_kept_for_ever(client: TestClient, made: ViewStore) -> None:
    tree = made.session("repair").files.tree
    for path in (f"/api/trees/{tree}", f"/api/trees/none/diff/{tree}"):
        assert "immutable" in client.get(path).headers["cache-control"]
    assert client.get(f"/api/trees/{'0' * 64}").headers["cache-control"] == "no-store"
    assert client.get("/api/store").headers["cache-control"] == "no-store"


def test_hostile_names_and_texts_come_as_data(client: TestClient, made: ViewStore) -> None:
    session = made.session("hostile")
    answer = client.get(f"/api/sessions/{session.id}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    page = client.get(f"/api/logs/{session.id}/events", params={"count": 500})
    assert [each["id"] for each in page.json()["events"]] == [e.id for e in session.events]


def test_labels_with_slashes_are_names(tmp_path: Any) -> None:
    from plait import open_store

    store = open_store(tmp_path / ".plait")
    branch = Session("hello", store=store).fork("a/b why")
    with app_client(store) as client:
        found = got(client, "/api/sessions/a/b why")
        assert found["id"] == branch.id
        assert got(client, "/api/sessions/a%2Fb%20why@1/why")["steps"]


def test_sessions_are_listed_and_filtered(client: TestClient, made: ViewStore) -> None:
    summaries = Summaries(Outlines(made.store))
    known = plain(summaries.page(limit=200))
    assert got(client, "/api/sessions", limit=200) == known
    logs = {each["log"] for each in known["sessions"]}
    assert set(made.sessions.values()) <= logs
    paged, before = list[str](), ""
    while True:
        page = got(client, "/api/sessions", limit=7, before=before)
        paged += [each["log"] for each in page["sessions"]]
        before = page["next"]
        if before is None:
            break
    assert paged == [each["log"] for each in known["sessions"]]
    waiting = got(client, "/api/sessions", q="status:waiting is:root", limit=200)["sessions"]
    assert made.sessions["approval"] in {each["log"] for each in waiting}
    assert {each["status"] for each in waiting} == {"waiting"}
    bad = got(client, "/api/sessions", 422, q="status:nonsense")
    assert bad["error"] == "InvalidValue"
    assert got(client, "/api/sessions", 422, before="nonsense")["error"] == "InvalidValue"


def test_two_branches_are_compared(client: TestClient, made: ViewStore) -> None:
    family = got(client, f"/api/sessions/{made.sessions['repair']}/family")
    one, two = [branch["log"] for branch in family["branches"]][1:3]
    found = got(client, f"/api/sessions/{one}/compare/{two}")
    left, right = (Session.open(log, store=made.store) for log in (one, two))
    assert found == plain(comparison_shape(Outlines(made.store), left, right))
    assert found["rows"] and found["base"] is not None


def test_families_outlines_and_steps_are_those_of_the_outline(
    client: TestClient, made: ViewStore
) -> None:
    outlines = Outlines(made.store)
    for name, log in made.sessions.items():
        known = plain(family_shape(outlines, log))
        assert got(client, f"/api/sessions/{log}/family") == known, name
        logs = [branch["log"] for branch in known["branches"]]
        several = got(client, "/api/outlines", logs=",".join(logs))["outlines"]
        for branch, outline in zip(logs, several, strict=True):
            assert outline == plain(outline_shape(outlines, branch))
            assert got(client, f"/api/logs/{branch}/outline") == outline
            page = got(client, f"/api/logs/{branch}/steps", first=0, count=500)
            assert page == plain(step_page(outlines, branch))
            assert page["total"] == outline["total"]
            for step in page["steps"][-3:]:
                detail = got(client, f"/api/logs/{branch}/steps/{step['seq']}")
                assert detail["step"] == step
                assert detail == plain(step_detail(outlines, branch, step["seq"]))
        track = got(client, f"/api/logs/{log}/track", seq=made.session(name).seq)
        assert track == plain(track_shape(made.store, log, made.session(name).seq))
        late = got(client, f"/api/logs/{log}/outline", **{"from": 2})
        assert late["from_index"] == min(2, late["total"])
