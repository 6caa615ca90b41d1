"""Rows for people: costs, waits, and how runs really stand; filters; and comparisons."""

from __future__ import annotations

import msgspec
import pytest

from plait import Session
from plait.errors import InvalidValue
from plait.ids import LogId
from plait.outline.comparing import comparison_shape
from plait.outline.documents import spent_document
from plait.outline.family import family_shape
from plait.outline.filters import parse_filter
from plait.outline.outlines import Outlines
from plait.outline.shapes import SessionSummary
from plait.outline.summaries import Summaries
from plait.session.ledger import costs
from tests.outline.sessions import ViewStore

pytestmark = pytest.mark.long  # `make quick` leaves these out


@pytest.fixture(scope="module")
def rows(outlines: Outlines) -> dict[LogId, SessionSummary]:
    return {row.log: row for row in Summaries(outlines).page(limit=200).sessions}


def test_costs_are_those_of_the_ledger(view: ViewStore, rows: dict[LogId, SessionSummary]) -> None:
    for log in view.sessions.values():
        row, found = rows[log], costs(view.store, session=Session.open(log, store=view.store))
        assert msgspec.to_builtins(row.spent) == spent_document(found.total)
        assert found.not_merged is not None
        assert msgspec.to_builtins(row.spent_unmerged) == spent_document(found.not_merged)
        family = family_shape(Outlines(view.store), log)  # the workbench shows its root's
        assert (family.spent, family.spent_unmerged) == (
            rows[family.root].spent,
            rows[family.root].spent_unmerged,
        )
    repair = rows[view.sessions["repair"]]
    assert (repair.spent.cost_usd, repair.spent_unmerged.cost_usd) == (0.00158, 0.00054)
    assert rows[view.sessions["resumed"]].spent.cost_usd is None  # not known, not nothing


def test_rows_tell_how_runs_stand_and_what_waits(
    view: ViewStore, rows: dict[LogId, SessionSummary]
) -> None:
    found = {name: rows[log] for name, log in view.sessions.items()}
    assert {name: row.status for name, row in found.items()} == {
        name: view.session(name).status for name in found
    }
    waiting = {name: row.waiting for name, row in found.items() if row.waiting}
    assert waiting == dict.fromkeys(
        ["approval", "question", "unknown", "gate", "paused", "queued"], 1
    )
    assert found["killed"].status == "interrupted" and found["resumed"].status == "finished"
    repair = found["repair"]
    assert (repair.name, repair.branch_count, repair.tags) == ("negative total", 2, {"team": "web"})
    assert (repair.last_text, repair.event_count, repair.tip) == ("Tidy.", 34, 34)
    assert repair.workflow == "tests.outline.programs:Repair"
    assert found["approval"].name == "Pay the invoice of ACME."
    branches = [row for row in rows.values() if row.parent and row.parent.log == repair.log]
    assert {(row.name, row.is_branch_of_run, row.tags["team"]) for row in branches} == {
        ("reject", True, "web"),
        ("clamp", True, "web"),
    }
    other = next(row for row in rows.values() if row.name == "other")
    assert not other.is_branch_of_run


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("status:waiting", ["approval", "gate", "question", "queued", "timer", "unknown"]),
        ("status:failed status:cancelled", ["cancelled", "failed"]),
        ("tag:team=web is:root", ["repair"]),
        ("cost:>0.0005 is:root", ["repair"]),
        ("events:>=250", ["hostile"]),
        ("is:waiting user:u-17", ["approval", "gate", "unknown"]),
        ("checkout negative is:root", ["repair"]),  # its first words
        ("project:art", ["large"]),
        ("label:nobody", []),
    ],
)
def test_filters(view: ViewStore, outlines: Outlines, text: str, names: list[str]) -> None:
    page = Summaries(outlines).page(parse_filter(text), limit=100)
    by_log = {log: name for name, log in view.sessions.items()}
    assert sorted(by_log[row.log] for row in page.sessions) == names


@pytest.mark.parametrize("text", ["status:lost", "cost:much", "is:odd"])
def test_a_filter_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        parse_filter(text)
    assert text.split(":")[0] in str(refused.value)


def test_pages_follow_each_other(outlines: Outlines) -> None:
    summaries = Summaries(outlines)
    first = summaries.page(limit=4)
    second = summaries.page(limit=4, before=first.next)
    whole = summaries.page(limit=8)
    assert (*first.sessions, *second.sessions) == whole.sessions
    with pytest.raises(InvalidValue):
        summaries.page(before="yesterday")


def test_two_branches_side_by_side(view: ViewStore, outlines: Outlines) -> None:
    shape = family_shape(outlines, view.sessions["repair"])
    reject, clamp = (
        Session.open(branch.log, store=view.store)
        for name in ("reject", "clamp")
        for branch in shape.branches
        if branch.name == name
    )
    found = comparison_shape(outlines, reject, clamp)
    assert found.base is not None and (found.base.seq, found.common_steps) == (13, 5)
    pairs = [
        (row.left and row.left.verb, row.right and row.right.verb, row.is_same)
        for row in found.rows
    ]
    assert pairs == [
        ("forked as", "forked as", False),
        ("read_file", "read_file", True),
        ("edit_file", "edit_file", False),  # other arguments
        ("shell", "shell", False),
        ("", "", False),
        ("shell", "shell", False),
        ("tests", "tests", False),
    ]
    assert [file.path for file in found.files.files] == ["cart.py"]
    sides = found.verdicts["tests"]
    assert (sides.left, sides.right, found.facts) == (False, True, {})
    assert (found.left_text, found.right_text) == ("It is rejected now.", "Clamped at zero.")
    root = comparison_shape(outlines, view.session("repair"), clamp)
    assert [row.left.type for row in root.rows if row.left][0] == "merge"
    assert root.facts["strategy"].left == "clamp" and root.facts["strategy"].right is None
    apart = comparison_shape(outlines, view.session("fresh"), clamp)
    assert apart.base is None and apart.common_steps == 0
