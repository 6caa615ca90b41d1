"""Pages that stay open: servers that die under them, many windows, and two answers to one ask."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Browser, expect

from plait import Parked, Session, open_store, resume
from plait.store import Store
from tests.outline import programs
from tests.server.clients import LiveServer, live_server
from tests.server.programs import Slow, Tells
from tests.support.processes import child_environment, wait_until
from tests.viewer.browsers import opened_viewer, steps_of

TABS_COUNT = 8


def parked(workflow: programs.Pay | programs.Ship | Slow | Tells, store: Store) -> Session:
    session = Session("Do it.", title="the slow one", store=store)
    with pytest.raises(Parked):
        workflow(session)
    return session.reload()


@pytest.mark.ci
def test_a_page_goes_on_when_its_server_was_killed(browser: Browser, tmp_path: Path) -> None:
    store = open_store(tmp_path / ".plait")
    session = Session("Before.", store=store)
    first = LiveServer(tmp_path)
    try:
        with opened_viewer(browser, first) as viewer:
            page = viewer.open(f"/s/{session.id}")
            expect(steps_of(page)).to_have_count(1)
            session = session.say("Heard at once.")
            expect(steps_of(page)).to_have_count(2)
            first.end(signal.SIGKILL)
            expect(page.get_by_text("The server is away.")).to_be_visible()
            for number in range(5):
                session = session.say(f"Said meanwhile: {number}.")
            with live_server(tmp_path) as second:
                assert second.base == first.base
                expect(page.get_by_text("The server is away.")).to_have_count(0)
                for number in range(5):
                    words = f"Said meanwhile: {number}."
                    expect(steps_of(page).filter(has_text=words)).to_have_count(1)
                session.say("Heard again.")
                expect(steps_of(page).filter(has_text="Heard again.")).to_have_count(1)
                expect(steps_of(page)).to_have_count(8)
                # it may act as well: who it is outlives the server
                page.get_by_role("link", name="Plait, all sessions").click()
                expect(page.get_by_role("region", name="Sessions")).to_be_visible()
    finally:
        first.kill()


@pytest.mark.ci
def test_a_run_that_a_page_started_survives_its_server(browser: Browser, tmp_path: Path) -> None:
    store = open_store(tmp_path / ".plait")
    session = parked(Slow(), store)
    environment = {"RUN_FOLDER": str(tmp_path), "PLAIT_ACTOR": "human:ann"}
    first = LiveServer(tmp_path, **environment)
    try:
        with opened_viewer(browser, first) as viewer:
            page = viewer.open(f"/inbox/{session.short}")
            page.get_by_role("button", name="yes", exact=True).click()
            page.get_by_role("button", name="Resume the run").click()
            wait_until((tmp_path / "began").exists)
            (run,) = first.get("/api/runs")["runs"]
            first.end(signal.SIGKILL)
            os.kill(run["pid"], 0)  # it is there
            expect(page.get_by_text("The server is away.").first).to_be_visible()
            with live_server(tmp_path, **environment):
                expect(page.get_by_text("The server is away.")).to_have_count(0)
                (tmp_path / "go").touch()
                wait_until(lambda: session.reload().status == "finished")
                page = viewer.open(f"/s/{session.id}")
                expect(steps_of(page).filter(has_text="It is done.").first).to_be_visible()
                expect(steps_of(page).filter(has_text="run finished")).to_have_count(1)
    finally:
        first.kill()


@pytest.mark.ci
def test_eight_windows_are_live_at_once(browser: Browser, tmp_path: Path) -> None:
    """A browser has six connections for a server: the windows share one for the news."""
    store = open_store(tmp_path / ".plait")
    session = Session("Before.", store=store)
    with live_server(tmp_path) as server, opened_viewer(browser, server) as viewer:
        pages = [viewer.page]
        while len(pages) < TABS_COUNT:
            pages.append(viewer.page.context.new_page())
        for page in pages:
            page.goto(f"{server.base}/s/{session.id}")
            expect(steps_of(page)).to_have_count(1)
        session = session.say("All of you hear this.")
        for page in pages:
            expect(steps_of(page).filter(has_text="All of you hear this.")).to_have_count(1)
        pages[0].close()  # it listened for the others
        session.say("And the rest of you this.")
        for page in pages[1:]:
            expect(steps_of(page).filter(has_text="And the rest of you this.")).to_have_count(1)


def test_words_of_a_model_are_on_the_page_before_they_are_on_record(
    browser: Browser, tmp_path: Path
) -> None:
    """The run is a process of its own, started from the page, and its model streams."""
    store = open_store(tmp_path / ".plait")
    session = parked(Tells(), store)
    session.inbox.answer(session.inbox.waiting[0], "yes", actor="human:ann")
    with (
        live_server(tmp_path, RUN_FOLDER=str(tmp_path)) as server,
        opened_viewer(browser, server) as viewer,
    ):
        page = viewer.open(f"/s/{session.short}")
        page.get_by_role("button", name="Resume the run").click()
        live = page.locator(".live-words")
        expect(live).to_contain_text("Once upon a time", timeout=60_000)
        assert "cart" not in live.inner_text()
        assert [event.kind for event in session.reload().events][-1] == "ModelAsked"
        (tmp_path / "rest").touch()
        told = steps_of(page).filter(has_text="Once upon a time there was a cart.")
        expect(told).to_have_count(1, timeout=60_000)
        expect(live).to_have_count(0)  # the settled reply takes their place
        wait_until(lambda: session.reload().status == "finished", within_s=60)


@pytest.mark.ci
def test_of_two_answers_one_wins_and_what_was_typed_is_kept(
    browser: Browser, tmp_path: Path
) -> None:
    store = open_store(tmp_path / ".plait")
    session = parked(programs.Pay(), store)
    with (
        live_server(tmp_path, PLAIT_ACTOR="human:ann") as server,
        opened_viewer(browser, server) as viewer,
    ):
        page = viewer.open(f"/inbox/{session.short}")
        page.get_by_role("button", name="Grant corrected").click()
        page.get_by_label("Arguments that you allow").fill('{"amount": 12, "to": "ACME"}')
        page.get_by_label("Note").fill("a tenth is enough")
        ask = session.inbox.waiting[0].event
        shell = [sys.executable, "-m", "plait", "deny", ask, "--reason", "too dear"]
        environment = child_environment(PLAIT_ACTOR="human:bo")
        subprocess.run(shell, cwd=tmp_path, env=environment, check=True, capture_output=True)
        page.get_by_role("button", name="Grant this instead").click()
        told = page.get_by_role("alert")
        expect(told).to_contain_text(re.compile("already"))
        expect(told).to_contain_text("bo")
        expect(told.get_by_role("link", name="Show what is there now")).to_be_visible()
        expect(page.get_by_label("Note")).to_have_value("a tenth is enough")
        expect(page.get_by_label("Arguments that you allow")).to_have_value(
            '{"amount": 12, "to": "ACME"}'
        )
        assert session.inbox.waiting == []
        kinds = [event.kind for event in resume(session).events]
        assert "ApprovalDenied" in kinds and "ApprovalGranted" not in kinds
        told.get_by_role("link", name="Show what is there now").click()
        expect(steps_of(page).filter(has_text="too dear").first).to_be_visible()
