"""Names of sessions and places: one parser, and errors that say what could have been meant."""

from __future__ import annotations

from typing import Any

import pytest

from plait import Session, Store
from plait.errors import AmbiguousRevision, UnknownPlace, UnknownRevision
from plait.ids import inbox_of
from plait.session import revision
from plait.session.finding import open_range


@pytest.fixture
def family(store: Store) -> Session:
    root = Session("Why?", title="cart bug", store=store).say("Only with coupons.")
    root.fork("strict")
    return root


def test_every_way_to_name_a_session(family: Session, store: Store) -> None:
    tail = family.id[-12:]
    for name in (
        family.id,
        family.id.upper(),
        family.id.replace("-", ""),
        family.short,
        tail,
        tail[:6],
        f" {family.short} ",
    ):
        assert Session.open(name, store=store) == family
    assert (
        Session.open(f"{family.short}@2", store=store)
        == family.at(2)
        == Session.open(f"{family.short}@-1", store=store)
    )
    assert (
        Session.open("strict", store=store).lineage.label == "strict"
        and Session.open("strict@-1", store=store).head == family.head
    )
    assert Session.open(f"{family.id}@{family.seq}", store=store) == family


def test_the_latest_is_the_one_written_to_last(family: Session, store: Store) -> None:
    assert Session.open("@", store=store).lineage.label == "strict"
    said = family.say("x")
    assert Session.open("@", store=store) == said and Session.open("@-1", store=store) == family
    assert Session.open("@1", store=store).seq == 1
    assert (
        Session.open("@@1", store=store) == said.at(1)
        and Session.open("@@-1", store=store) == family
    )
    assert open_range(Session, "@@2..@@3", store=store) == (said.at(2), said.at(3))


def test_ranges(family: Session, store: Store) -> None:
    left, right = open_range(Session, f"{family.short}@2..strict", store=store)
    assert left == family.at(2) and right.lineage.label == "strict"
    assert open_range(Session, "strict..", store=store)[1] == Session.open("@", store=store)
    assert revision.parse_range("a..b") == ("a", "b") and revision.parse_range("..") == ("@", "@")
    for bad in ("a", "a..b..c", 5):
        with pytest.raises(UnknownRevision):
            open_range(Session, bad, store=store)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    ["", "  ", "nobody", "@@", "@@@", "@@@1", "@@x", "strict@@1", "@x", "strict@", "strict@1.5", "strict@+1", "strict@٣"]  # noqa: E501
    + ["strict@" + "9" * 30, "a..b", "ff", "\0", 5, None],
)  # fmt: skip
def test_what_names_nothing(family: Session, store: Store, name: Any) -> None:
    with pytest.raises(UnknownRevision) as caught:
        Session.open(name, store=store)
    assert "plait ls" in str(caught.value)


def test_a_place_that_is_not_there(family: Session, store: Store) -> None:
    for place in (0, 99, -9):
        with pytest.raises(UnknownPlace):
            Session.open(f"{family.short}@{place}", store=store)


def test_an_ambiguous_name_lists_the_candidates(family: Session, store: Store) -> None:
    other = Session("x", store=store).fork("strict")
    with pytest.raises(AmbiguousRevision) as caught:
        Session.open("strict", store=store)
    assert len(caught.value.candidates) == 2 and any(
        other.id in each for each in caught.value.candidates
    )
    with pytest.raises(AmbiguousRevision) as caught:
        # the time prefix, which all sessions of an hour share
        Session.open(family.id[:6], store=store)
    assert f"{family.short} (cart bug, {family.id})" in caught.value.candidates


def test_a_label_that_looks_like_an_id(family: Session, store: Store) -> None:
    """Nobody takes the id of a session by calling another one that; neither is lost."""
    named = family.fork(family.short)
    tail, whole = family.fork(family.id[-12:]), family.fork(family.id)
    for name in (family.short, family.id[-12:], family.id, f"{family.short}@{family.seq}"):
        assert Session.open(name, store=store) == family
    for each in (named, tail, whole):
        assert Session.open(each.id, store=store) == each
    begun = family.fork(family.short[:4])  # such a label may be a word: it is not taken for an id
    with pytest.raises(AmbiguousRevision) as caught:
        Session.open(family.short[:4], store=store)
    assert any(begun.id in each for each in caught.value.candidates)
    free = family.fork("00000000")
    assert Session.open("00000000", store=store) == free  # no id is like it
    short = family.fork("ab")
    assert Session.open("ab", store=store) == short  # too short for an id


def test_an_empty_store_has_no_latest(store: Store) -> None:
    with pytest.raises(UnknownRevision, match="no session yet"):
        Session.open("@", store=store)
    assert inbox_of(Session("x", store=store).id)
