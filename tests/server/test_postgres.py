"""A store on PostgreSQL, served: settled numbers in the feed, state in the user's cache."""

from __future__ import annotations

from pathlib import Path

from plait import Session, open_store
from plait.runtime.live import Live
from plait.server.places import state_folder
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate
from tests.server.clients import feed_events, live_server


def test_a_store_on_postgres_is_served(postgres_address: str, tmp_path: Path) -> None:
    migrate(parse_address(postgres_address), source=Live())
    store = open_store(postgres_address)
    session = Session("hello", store=store)
    cache = tmp_path / "cache"
    with live_server(tmp_path, "--store", postgres_address, XDG_CACHE_HOME=str(cache)) as server:
        assert server.get("/api/store")["id"] == store.id
        events = feed_events(server)
        first = next(each for each in events if each.get("event") == "news")
        said = session.say("more")
        heard = list[list[object]]()
        while not any(row[2] == said.seq and row[1] == said.id for row in heard):
            heard += next(events).rows
        numbers = [number for number, _ in store.feed(int(first["id"]))]
        assert [row[0] for row in heard] == numbers
        found = server.get(f"/api/sessions/{session.short}")
        assert found["place"] == said.seq and found["tip"] == said.seq
        noted = server.post(f"/api/sessions/{session.id}/acts/note", text="so")
        assert noted.status_code == 200 and noted.json()["seq"] == session.reload().seq
        assert server.get("/api/sessions")["sessions"][0]["log"] == session.id
        notices = list(cache.rglob("server-*.json"))
        assert len(notices) == 1 and notices[0].stat().st_mode & 0o077 == 0
        assert "password" not in server.get("/api/store")["address"]
    assert state_folder(store).name == "server"
