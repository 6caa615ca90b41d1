"""A store that goes away or is damaged under its server: it is told, and nothing is made there."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from plait import Session, open_store
from plait.outline.cache import write_cache
from plait.server.feed import Feed
from plait.server.stream import EventStream, WaitingCount
from plait.store import Store
from tests.outline import programs
from tests.server.clients import app_client
from tests.support import RawSql


@pytest.mark.parametrize("way", ["moved", "removed"])
def test_a_store_that_is_gone_is_told(store: Store, tmp_path: Path, way: str) -> None:
    session = Session("hello", store=store)
    place, other = tmp_path / ".plait", tmp_path / "other"
    reads = (
        "/api/store",
        "/api/sessions",
        f"/api/sessions/{session.id}",
        "/api/inbox",
        "/api/runs",
    )
    with app_client(store) as client:
        assert {client.get(path).status_code for path in reads} == {200}
        if way == "moved":
            place.rename(other)
        else:
            shutil.rmtree(place)
        for path in (*reads, f"/api/logs/{session.id}/outline", "/api/feed", "/api/sessions?q=x"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]) == (503, "StoreGone"), path
        act = f"/api/sessions/{session.id}/acts/say"
        refused = client.post(act, json={"text": "lost?"})
        assert refused.status_code == 503 and refused.json()["next"].startswith("put it back")
        assert not place.exists()
        if way == "moved":
            other.rename(place)
            assert client.post(act, json={"text": "heard"}).status_code == 200
            assert session.reload().messages[-1].text == "heard"


def test_a_feed_ends_when_its_store_is_gone(store: Store, tmp_path: Path) -> None:
    """So that its listeners come back, and are told."""
    Session("hello", store=store)

    async def follow() -> None:
        async def send(message: object) -> None:
            if "news" in str(message):
                (tmp_path / ".plait").rename(tmp_path / "other")

        async def receive() -> dict[str, str]:
            await asyncio.Event().wait()
            raise AssertionError

        feed = Feed(store)
        stream = EventStream(feed, None, WaitingCount(store, feed))
        await asyncio.wait_for(stream({"type": "http"}, receive, send), 30)

    asyncio.run(follow())


def test_a_cache_makes_no_folder_for_a_store_that_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    write_cache(folder / "work" / "outline-1" / "file", b"x")
    assert not folder.exists()
    folder.mkdir()
    write_cache(folder / "work" / "outline-1" / "file", b"x")
    assert (folder / "work" / "outline-1" / "file").read_bytes() == b"x"


def test_a_damaged_session_shows_what_is_whole(store: Store, tmp_path: Path) -> None:
    session = programs.Count()(Session("How many rows?", store=store))
    event = next(each for each in session.events if each.kind == "ModelReplied")
    store.close()
    sql = RawSql(tmp_path / ".plait" / "store.db")
    sql(f"UPDATE event SET body = NULL WHERE seq = {event.seq}")
    sql.close()
    with app_client(open_store(tmp_path / ".plait")) as client:
        answer = client.get(f"/api/sessions/{session.id}")
        assert (answer.status_code, answer.json()["error"]) == (422, "ContentGone"), answer.text
        broken = answer.json()["fields"]["broken"]
        assert (broken["session"], broken["seq"]) == (session.id, event.seq)
        steps = client.get(f"/api/logs/{session.id}/steps").json()["steps"]
        assert len(steps) > 3 and event.seq in [seq for step in steps for seq in step["events"]]
        events = client.get(f"/api/logs/{session.id}/events").json()["events"]
        assert [each["seq"] for each in events if each["state"] != "whole"] == [event.seq]
        assert client.get("/api/sessions").json()["sessions"][0]["log"] == session.id
        assert client.get(f"/api/sessions/{session.id}/family").status_code == 200


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        ("NULL", "RunStarted"),
        ("x'00'", "ModelReplied"),
        ("x'7b7d', codec = codec & 8", "ModelAsked"),
    ],
)
def test_damaged_sessions_are_not_compared_and_it_is_said(
    store: Store, tmp_path: Path, damage: str, kind: str
) -> None:
    session = programs.Count()(Session("How many rows?", store=store))
    other = session.fork("other")
    event = next(each for each in session.events if each.kind == kind)
    store.close()
    sql = RawSql(tmp_path / ".plait" / "store.db")
    sql(f"UPDATE event SET body = {damage} WHERE seq = {event.seq}")
    sql.close()
    with app_client(open_store(tmp_path / ".plait")) as client:
        answer = client.get(f"/api/sessions/{session.id}/compare/{other.id}")
        assert (answer.status_code, answer.json()["error"]) == (422, "DamagedSession"), answer.text
        assert session.short in answer.json()["next"]
        unknown = client.get(f"/api/sessions/{session.id}/compare/nobody")
        assert unknown.status_code == 404
