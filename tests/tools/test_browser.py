"""The browser tools, in the system's Chromium inside a real sandbox: what is seen, what is refused,
and what is left when it is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from plait import Session, open_store
from plait.errors import InvalidValue, NoSuchFile, NotAFile, SandboxFailed, ToolFailed
from plait.event.kinds import Image, Placement, ToolReturned
from plait.sandbox import Sandbox
from plait.sandbox.limits import descendants
from plait.tools import screen, shell
from plait.tools.browser import (
    SNAPSHOT_MAX,
    browser_click,
    browser_open,
    browser_read,
    browser_screenshot,
    browser_type,
)
from tests.support import result_text
from tests.tools.screens import PNG, gone, placed, require_browser

SHOP = """<!doctype html><title>Shop</title><link rel=stylesheet href=style.css><h1>Cart</h1>
<label>Name <input id=name></label> <label>Size <select><option>small<option>large</select></label>
<button onclick="n = ++window.times; out.textContent = `${n} for ${document.querySelector('#name').value}`">Buy</button>
<button>Twice</button> <button>Twice</button> <p id=out></p> <a href="sub/next page.html?q=1#end">Next</a>
<button onclick="alert('really?')">Ask</button> <button onclick="window.open('sub/next page.html')">Window</button>
<button onclick="document.open()">Stall</button> <form onsubmit="out.textContent = 'sent'; return false"><label>Note <input></label></form>
<script>window.times = 0; console.log('loaded', getComputedStyle(document.querySelector('h1')).color)</script>"""  # noqa: E501
FILES = {
    "shop.html": SHOP,
    "style.css": "h1 { color: rgb(1, 2, 3) }",
    "sub/next page.html": "<title>Next</title>Grüße",
    "long.html": (
        "<title>Long</title>" + "".join(f"<p>paragraph {number}</p>" for number in range(2000))
    ),
    "spy.html": (
        "<title>Spy</title><iframe src='file:///etc/passwd'></iframe><iframe"
        " src='file:///workspace/../etc/passwd'></iframe>"
    ),
}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    require_browser()
    with placed(tmp_path_factory.mktemp("browser"), FILES) as made:
        yield made


def test_what_is_on_a_page_stays_from_call_to_call(sandbox: Sandbox) -> None:
    opened = browser_open("shop.html", sandbox)
    assert opened.delta == {
        "url": "file:///workspace/shop.html",
        "title": "Shop",
        "action": "open shop.html",
    }
    assert 'heading "Cart"' in result_text(
        opened
    ) and "console log: loaded rgb(1, 2, 3)" in result_text(opened)
    browser_type("Name", "Ada", sandbox)
    assert "1 for Ada" in result_text(browser_click("Buy", sandbox))
    ref = (
        next(
            line
            for line in result_text(browser_read(sandbox)).splitlines()
            if 'button "Buy"' in line
        )
        .partition("[ref=")[2]
        .partition("]")[0]
    )
    assert "2 for Ada" in result_text(browser_click(f"[ref={ref}]", sandbox))
    assert "3 for Ada" in result_text(browser_click("button:has-text('Buy')", sandbox))


@pytest.mark.slow
def test_each_call_brings_the_picture_and_the_whole_page(sandbox: Sandbox) -> None:
    seen = browser_open("long.html", sandbox)
    said, picture, whole = seen.parts
    assert (
        picture.media_type == "image/png"
        and picture.content.startswith(PNG)
        and picture.name is None
    )
    assert whole.name == "page.yaml" and b"paragraph 1999" in whole.content
    assert (
        len(said) < SNAPSHOT_MAX + 500
        and "paragraph 1999" not in said
        and "more characters are in page.yaml" in said
    )
    shown = browser_screenshot(sandbox)
    assert (
        "paragraph" not in result_text(shown)
        and "title: Long" in result_text(shown)
        and shown.parts[1].content.startswith(PNG)
    )


@pytest.mark.slow
def test_fields_are_filled_chosen_and_sent(sandbox: Sandbox) -> None:
    browser_open("shop.html", sandbox)
    assert 'option "large" [selected]' in result_text(browser_type("Size", "large", sandbox))
    browser_type("Name", "first", sandbox)
    assert ": second" in result_text(browser_type("Name", "second", sandbox))
    assert "sent" in result_text(browser_type("Note", "hello", sandbox, submit=True))


@pytest.mark.slow
def test_links_lead_on_and_windows_and_questions_are_told(sandbox: Sandbox) -> None:
    browser_open("shop.html", sandbox)
    assert "the page said, as alert: 'really?'; it was dismissed" in result_text(
        browser_click("Ask", sandbox)
    )
    popped = browser_click("Window", sandbox)
    assert popped.delta["title"] == "Next" and "Grüße" in result_text(popped)  # pyright: ignore
    browser_open("shop.html", sandbox)
    followed = browser_click("Next", sandbox)
    assert followed.delta["url"] == "file:///workspace/sub/next%20page.html?q=1#end"  # pyright: ignore


@pytest.mark.slow
def test_a_page_that_stops_answering_is_shown_as_far_as_it_goes(sandbox: Sandbox) -> None:
    browser_open("shop.html", sandbox)
    assert "(the page cannot be read: " in result_text(browser_click("Stall", sandbox))
    assert "title: Next" in result_text(browser_open("sub/next page.html", sandbox))


def test_a_target_that_is_not_one_element_is_refused_and_nothing_is_done(sandbox: Sandbox) -> None:
    browser_open("shop.html", sandbox)
    refused = {
        "Sell": "nothing on the page is called 'Sell'",
        "e9999": "names 0 elements",
        "Twice": "names 2",
        "<<": "nothing on the page",
    }
    for target, why in refused.items():
        with pytest.raises(SandboxFailed, match=why) as raised:
            browser_click(target, sandbox)
        assert raised.value.step == "nothing was done"
    assert "1 for" in result_text(browser_click("Buy", sandbox))


def test_files_are_seen_as_they_are_now_and_no_others(sandbox: Sandbox) -> None:
    sandbox.files.write("fresh.html", b"<title>One</title>")
    assert "title: One" in result_text(browser_open("fresh.html", sandbox))
    sandbox.files.write("fresh.html", b"<title>Two</title>")
    assert "title: Two" in result_text(browser_open("/workspace/fresh.html", sandbox))
    spied = browser_open("spy.html", sandbox)
    assert "root:" not in result_text(spied) and b"nobody" not in spied.parts[2].content
    assert result_text(spied).count("/etc/passwd is outside of the workspace") == 2


def test_what_cannot_be_opened_is_said_before_anything_happens(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxFailed, match="the network of this sandbox is off"):
        browser_open("http://127.0.0.1:9/", sandbox)
    for url in (
        "file:///etc/passwd",
        "chrome://version",
        "javascript:alert(1)",
        "data:text/html,hi",
    ):
        with pytest.raises(InvalidValue, match="is no page"):
            browser_open(url, sandbox)
    with pytest.raises(NoSuchFile):
        browser_open("missing.html", sandbox)
    with pytest.raises(NotAFile):
        browser_open("sub", sandbox)


@pytest.mark.slow
def test_a_browser_that_died_is_said_to_be_gone_and_nothing_is_done_again(sandbox: Sandbox) -> None:
    browser_open("shop.html", sandbox)
    browser_click("Buy", sandbox)
    process = process_of(sandbox)
    os.kill(process, signal.SIGKILL)
    gone(process)
    with pytest.raises(SandboxFailed, match="open the page again with browser_open"):
        browser_click("Buy", sandbox)
    browser_open("shop.html", sandbox)
    assert "1 for" in result_text(browser_click("Buy", sandbox))


@pytest.mark.slow
def test_it_ends_with_its_sandbox(tmp_path: Path) -> None:
    require_browser()
    with placed(tmp_path, FILES) as sandbox:
        browser_open("shop.html", sandbox)
        process = process_of(sandbox)
    gone(process)


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>Far</title><a href='/bought'>Buy it</a>")

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.mark.slow
def test_pages_come_over_the_network_if_there_is_one(tmp_path: Path) -> None:
    require_browser()
    seen: list[str] = []
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.seen = seen
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        with placed(tmp_path, FILES, network="on") as sandbox:
            assert "title: Far" in result_text(
                browser_open(f"http://127.0.0.1:{server.server_port}/", sandbox)
            )
            browser_click("Buy it", sandbox)
    finally:
        server.shutdown()
        server.server_close()
    assert [path for path in seen if "favicon" not in path] == ["/", "/bought"]


def test_the_class_depends_on_whether_anybody_is_out_there() -> None:
    off, on = Placement("local", network="off"), Placement("local", network="on")
    assert [browser_click.effect_in(each, {}) for each in (off, on, None)] == [
        "workspace",
        "at_most_once",
        "at_most_once",
    ]
    assert [browser_type.effect_in(each, {}) for each in (off, on, None)] == [
        "workspace",
        "at_most_once",
        "at_most_once",
    ]
    assert [browser_open.effect_in(each, {}) for each in (off, on, None)] == [
        "workspace",
        "idempotent",
        "idempotent",
    ]
    assert (browser_read.effect, browser_screenshot.effect) == ("pure", "pure")
    assert {
        each.taints
        for each in (browser_open, browser_click, browser_type, browser_read, browser_screenshot)
    } == {"web"}


def test_no_model_is_told_of_the_sandbox() -> None:
    assert "sandbox" not in str(browser_type.schema) and set(browser_type.schema["properties"]) == {  # pyright: ignore[reportArgumentType]
        "target",
        "text",
        "submit",
    }


def process_of(sandbox: Sandbox) -> int:
    found = screen.find_screen(sandbox, "browser")
    assert found is not None
    return found.pid


OWNER = """
import sys
from pathlib import Path
from tests.tools.screens import placed
from plait.tools import screen, shell
from plait.tools.browser import browser_open

with placed(Path(sys.argv[1]), {"page.html": "<title>Page</title>"}) as sandbox:
    browser_open("page.html", sandbox)
    print(screen.find_screen(sandbox, "browser").pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_it_ends_with_whoever_opened_it(tmp_path: Path) -> None:
    require_browser()
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
    ) as owner:
        assert owner.stdout is not None
        process = int(owner.stdout.readline())
        inside = descendants(process)
        assert len(inside) > 5  # bubblewrap, the driver, and Chromium's own
        owner.kill()
    for each in inside:
        gone(each)


@pytest.mark.slow
def test_in_a_session_each_step_is_evidence_and_a_branch_has_no_browser(tmp_path: Path) -> None:
    require_browser()
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "shop.html").write_text(SHOP)
    begun = Session("Buy it", store=str(tmp_path / "store")).to("local", str(repo))
    session = begun.use(browser_open, url="shop.html").use(browser_type, target="Name", text="Ada")
    session = session.use(shell, command="echo hello > note.txt").use(browser_click, target="Buy")
    assert "1 for Ada" in session.result[0]
    returned = [event.body for event in session.events if isinstance(event.body, ToolReturned)]
    deltas: list[Any] = [body.delta for body in returned]
    assert [each["action"] for each in deltas if "url" in each] == [
        "open shop.html",
        "type into Name",
        "click Buy",
    ]
    pictures = [part.blob for body in returned for part in body.parts if isinstance(part, Image)]
    assert len(pictures) == 3 and all(
        open_store(str(tmp_path / "store")).get_blob(blob).startswith(PNG) for blob in pictures
    )
    assert {
        event.header.origin for event in session.events if isinstance(event.body, ToolReturned)
    } == {"web", "tool"}
    for other in (session.fork("other"), session.rewind(len(begun.events))):
        with pytest.raises(ToolFailed, match="open the page again with browser_open") as raised:
            other.use(browser_click, target="Buy")
        assert (
            "1 for"
            in raised.value.session.use(browser_open, url="shop.html")
            .use(browser_click, target="Buy")
            .result[0]
        )
