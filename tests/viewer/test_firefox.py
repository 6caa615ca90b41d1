"""Another engine: Firefox opens the page of a server and the one in a file, and shows steps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from plait.outline.family import family_shape
from plait.outline.outlines import Outlines
from plait.view.file import write_file
from tests.outline.sessions import ViewStore
from tests.server.clients import LiveServer
from tests.support import ROOT

PUPPETEER = ROOT / "viewer/node_modules/puppeteer-core/lib/esm/puppeteer/puppeteer-core.js"


@pytest.mark.ci
def test_it_opens_the_page_and_the_file(
    server: LiveServer, made: ViewStore, tmp_path: Path
) -> None:
    firefox, node = shutil.which("firefox-esr") or shutil.which("firefox"), shutil.which("node")
    if firefox is None or node is None or not PUPPETEER.is_file():
        if os.environ.get("PLAIT_REQUIRE_VIEWER"):
            pytest.fail("Firefox, node or the packages of the page are not installed")
        pytest.skip("Firefox, node or the packages of the page are not installed: make viewer")
    session = made.session("repair")
    write_file(session, tmp_path / "run.html", made=0)
    place = f"/s/{session.id}"
    done = subprocess.run(
        [
            *(node, str(Path(__file__).with_name("firefox.mjs")), str(PUPPETEER), firefox),
            f"{server.base}{place}#t={server.token}",
            f"{(tmp_path / 'run.html').as_uri()}#{place}@{session.seq}",
        ],
        env={**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["version"].startswith("firefox/")
    assert told["errors"] == []
    family = family_shape(Outlines(made.store), session.id)
    count = sum(stretch.step_count for stretch in family.stretches)
    live, file = told["seen"]
    assert live == file
    assert int(live["count"]) == count
    assert any("edit_file" in step for step in live["steps"])
    assert "run finished" in live["steps"][-1]
