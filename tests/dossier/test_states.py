"""Dossiers of sessions that are open, killed, changed, erased or very long say so on top."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import Session, open_store
from plait.dossier.making import make_dossier
from plait.dossier.page import dossier_page
from plait.dossier.shapes import Dossier
from tests.dossier.documents import NOW, PageElements, dossier_of
from tests.outline.sessions import ViewStore, make_long_store
from tests.outline.test_damage import counted as counted
from tests.support import RawSql


def kinds(dossier: Dossier) -> list[str]:
    return [notice.kind for notice in dossier.notices]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("repair", None),
        ("closed", None),
        ("fresh", "open"),
        ("approval", "waiting"),
        ("paused", "waiting"),
        ("killed", "killed"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
    ],
)
def test_it_says_on_top_what_it_is(made: ViewStore, name: str, kind: str | None) -> None:
    dossier = dossier_of(made, name)
    assert kinds(dossier) == ([kind] if kind else [])
    page = dossier_page(dossier, has_run=False)
    assert page.count('role="note"') == len(dossier.notices)
    for notice in dossier.notices:
        assert notice.text in PageElements(page.partition("<main>")[0]).text


def after_edit(session: Session, tmp_path: Path, edit: str) -> Dossier:
    """The dossier of a session whose store was edited behind its back."""
    open_store(tmp_path / "store").close()
    sql = RawSql(tmp_path / "store" / "store.db")
    sql(edit)
    sql.close()
    return make_dossier(Session.open(session.id, store=tmp_path / "store"), made=NOW)


@pytest.mark.parametrize("body", ["x'00'", "x'7b7d'"])
def test_each_event_may_be_changed(counted: Session, tmp_path: Path, body: str) -> None:
    for seq in range(counted.seq, 1, -1):  # one after another, until nothing but the first is left
        edit = f"UPDATE event SET body = {body}, codec = codec & 8 WHERE seq = {seq}"
        dossier = after_edit(counted, tmp_path, edit)
        assert kinds(dossier)[0] == "tampered", seq
        assert dossier.check.verify is not None and not dossier.check.verify.ok
        text = PageElements(dossier_page(dossier, has_run=False)).text
        assert "Tampered with." in text.partition("In short")[0]


def test_content_that_was_erased(counted: Session, tmp_path: Path) -> None:
    seq = counted.events.where("ToolReturned")[0].seq
    dossier = after_edit(counted, tmp_path, f"UPDATE event SET body = NULL WHERE seq = {seq}")
    assert "erased" in kinds(dossier)
    notice = next(each for each in dossier.notices if each.kind == "erased")
    assert notice.at is not None and notice.at.seq == seq
    record = dossier.check.record
    assert record.events - record.bodies == 1
    assert "Erased in part." in PageElements(dossier_page(dossier, has_run=False)).text


def test_a_header_that_was_changed(counted: Session, tmp_path: Path) -> None:
    edit = "UPDATE event SET header = (SELECT header FROM event WHERE seq = 1) WHERE seq = 4"
    dossier = after_edit(counted, tmp_path, edit)
    assert kinds(dossier)[0] == "tampered"
    assert "Tampered with." in PageElements(dossier_page(dossier, has_run=False)).text


@pytest.mark.long
def test_many_steps_fold(tmp_path: Path) -> None:
    store, log = make_long_store(tmp_path, events=8_000, branches=8)
    dossier = make_dossier(Session.open(log, store=store), made=NOW)
    assert dossier.is_brief and len(dossier.steps) > 2_000
    page = dossier_page(dossier, has_run=True)
    found = PageElements(page)
    steps = [anchor for anchor in found.anchors if anchor.startswith("s") and "-" in anchor]
    assert len({each for each in steps if each[1].isdigit()}) == len(dossier.steps)
    assert page.count('class="fold"') > len(dossier.steps) // 60
    assert set(found.links) - {"run.html"} <= {f"#{anchor}" for anchor in found.anchors}
    assert dossier.check.record.bodies == dossier.check.record.events
    # a step takes a few hundred bytes, with all that the page has around it
    assert len(page) < 600 * len(dossier.steps)
    store.close()


@pytest.mark.ci
def test_very_many_steps_are_lines(tmp_path: Path) -> None:
    store, log = make_long_store(tmp_path, events=24_000, branches=20)
    dossier = make_dossier(Session.open(log, store=store), made=NOW)
    assert "long" in kinds(dossier)
    assert dossier.check.record.data == ""
    page = dossier_page(dossier, has_run=True)
    assert "is not in <code>dossier.json</code>" in page
    assert page.count('<p class="s"') > page.count('<details class="s"')
    store.close()
