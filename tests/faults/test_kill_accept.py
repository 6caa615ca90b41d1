"""kill -9 at every moment of a life that accepts a changed program."""

from __future__ import annotations

from pathlib import Path

from plait import Session, open_store
from plait.event import kinds as k
from plait.runs.replay import replay
from plait.session import verify
from plait.session.ports import store_at
from tests.faults.accept_story import AFTER, Letters
from tests.support import bodies, dose, run_module


def _live(folder: Path, verb: str, moment: int = 0) -> int:
    done = run_module("tests.faults.accept_story", str(folder), verb, str(moment), timeout=60)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


def test_killed_while_a_change_is_accepted(tmp_path: Path) -> None:
    moment, killed, stride = 1, 0, dose("MOMENTS_EVERY", short=5, long=1, ci=1)
    while True:
        folder = tmp_path / str(moment)
        folder.mkdir()
        assert _live(folder, "begin") == 0
        is_over = _live(folder, "accept", moment) == 0
        if not is_over:
            assert _live(folder, "accept") == 0
            killed += 1
        session = Session.open("@", store=f"{folder}/store").lineage.sessions[0]
        assert session.facts["word"] == "b" and session.facts["end"] is True
        assert sorted((folder / "sent").read_text().split()) == ["ann", "bob"]
        assert [body.reason for body in bodies(session, k.ChangeAccepted)][:1] == ["more words"]
        assert list(verify(store_at(session.store), state=True)) == []
        assert replay(session, Letters(*AFTER)).head == session.head
        open_store(session.store).close()
        if is_over:
            break
        moment += stride
    assert killed >= 2
