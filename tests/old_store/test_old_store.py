"""A store that an earlier commit wrote opens, verifies, resumes and replays: nothing that was
hashed has changed.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from plait import Parked, Session, open_store, replay, resume
from plait.session import state, verify
from plait.store import Store
from tests.old_store import programs
from tests.old_store.programs import Branches, Files, Killed, Payment

HEADS: dict[str, list[str]] = json.loads(Path(__file__).with_name("heads.json").read_text())


@pytest.fixture
def old(tmp_path: Path) -> Store:
    with tarfile.open(Path(__file__).with_name("store.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    programs.done.clear()
    return open_store(tmp_path / ".plait")


def _session(store: Store, name: str) -> Session:
    return Session.open(HEADS[name][0], store=store)


def test_it_verifies_with_every_state(old: Store) -> None:
    assert list(verify(old, state=True)) == []


def test_every_session_stands_where_it_stood(old: Store) -> None:
    assert {name: [id, _session(old, name).head] for name, (id, _) in HEADS.items()} == HEADS


@pytest.mark.parametrize(("name", "program"), [("branches", Branches), ("files", Files)])
def test_a_finished_run_replays_to_the_same_head(old: Store, name: str, program: type) -> None:
    session = _session(old, name)
    assert replay(session, program()).head == session.head
    assert programs.done == []


@pytest.mark.parametrize(("name", "program"), [("branches", Branches), ("files", Files)])
def test_a_run_of_an_older_fold_replays_to_the_same_head(
    old: Store, name: str, program: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "FOLD", state.FOLD + 1)
    session = _session(old, name)
    assert replay(session, program()).head == session.head


def test_forks_and_merges_are_there(old: Store) -> None:
    session = _session(old, "branches")
    assert session.facts["side"] == "left" and session.facts["choice"] == "right"
    assert session.text == "Looked up 1."
    assert session.facts["dropped"] == "dropped" and len(session.pending) == 1


def test_files_are_there(old: Store) -> None:
    session = _session(old, "files")
    assert session.files.text("log") == "zero\none\nthree\n"
    assert session.files.text("side") == "two\n"


def test_a_killed_run_goes_on(old: Store) -> None:
    session = resume(_session(old, "killed"), Killed())
    assert programs.done == ["put 2", "put 3"] and session.facts["all"] == 3
    assert replay(session, Killed()).head == session.head


def test_a_parked_run_takes_consent_and_goes_on(old: Store) -> None:
    session = _session(old, "payment")
    with pytest.raises(Parked):
        resume(session, Payment())
    assert programs.done == []
    session.inbox.approve(session.inbox.waiting[0])
    paid = resume(session, Payment())
    assert programs.done == ["wire 90 to Ada"] and paid.facts["paid"] == "sent 90"
    assert replay(paid, Payment()).head == paid.head


def test_a_rewound_session_goes_on(old: Store) -> None:
    session = _session(old, "rewound")
    assert session.facts["a"] == 1 and session.say("More.").messages[-1].text == "More."
