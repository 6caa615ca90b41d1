"""Merges branches into a session: one event with several parents, files merged by path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from plait.errors import (
    InvalidValue,
    MergeConflict,
    NoCommonBase,
    NotSettled,
    PlaitError,
    StaleHead,
)
from plait.event import Json
from plait.event.kinds import Merged, Place, Resolution
from plait.ids import Digest, parse_digest
from plait.session.appending import append_to, refuse_if_busy, wait_for_gates
from plait.session.files import MergedFiles, merge_files, path_of_key, resolution_key
from plait.session.fold import state_at
from plait.session.merge import WORKSPACE, MergeOutcome, combine, side_names
from plait.session.moves import check_may
from plait.session.ports import BINDINGS, Draft, writer_of
from plait.session.state import ABSENT, Fact, State, share_a_place
from plait.session.value import S, SessionValue, core_of, position_of, state_of

Resolve = Mapping[str, Json] | Callable[[str, Mapping[str, Any]], Json]

_INSTEAD = (
    "let the run finish, or end it with session.inbox.cancel(); or merge in a fork:"
    " session.fork().merge(…)"
)


class MergePlan(NamedTuple):
    """A merge that can be written: its event, and all that is written with it."""

    body: Merged
    heads: tuple[Digest, ...]  # further parents of the event
    blobs: dict[Digest, bytes] | None
    decisions: Sequence[Draft]  # about memories that the branches propose
    theirs: Sequence[State]


def merge_into(
    session: S,
    others: tuple[S, ...],
    resolve: Resolve | None,
    base: S | None,
    actor: str | None,
) -> S:
    """Merge other branches into a session; see `Session.merge`."""
    session, plan = plan_merge(session, others, resolve, base)
    if plan is None:
        return session
    core, state = core_of(session), state_of(session)
    after = append_to(
        session,
        plan.body,
        "be merged into",
        actor=actor,
        instead=_INSTEAD,
        merges=plan.heads,
        blobs=plan.blobs,
        more=plan.decisions,
    )
    # The branches' states are at hand now; a later reader would have to fold them again.
    with suppress(PlaitError):
        core_of(after).near = state_at(
            core.store, after.id, after.seq, near=state, known=plan.theirs
        )
    return after


def plan_merge(
    session: S, others: tuple[S, ...], resolve: Resolve | None = None, base: S | None = None
) -> tuple[S, MergePlan | None]:
    """Return the merge of other branches into a session, and the value to write it after.

    None: the session has all of it already.
    """
    core = core_of(session)
    check_may(core, "be merged into")
    refuse_if_busy(session, "be merged into", _INSTEAD)
    _check_others(session, others, base)
    state, theirs = core.state, [state_of(other) for other in others]
    root = state_of(base) if base else None
    _check_settled(session, others, has_base=root is not None)
    outcome = combine(state, theirs, base=root)
    if not outcome.added and not outcome.covers:
        _resolutions({}, resolve)
        return session, None
    gated = (session, *others)
    # a run has heard a verdict meanwhile: as it stands now
    if (waited := wait_for_gates(session, gated, "merged")) != gated:
        return plan_merge(waited[0], waited[1:], resolve, base)
    files = _merged_files(session, outcome.conflicts, theirs, root, resolve)
    resolved = _resolve_disputes(session, outcome.conflicts, files, resolve)
    news = list(
        {
            other.head: other
            for other, their in zip(others, theirs, strict=True)
            if _adds_to(state, their)
        }.values()
    )
    body = Merged(
        branches=tuple([Place(other.id, other.seq, other.head) for other in news]),
        covers=outcome.covers,
        resolved=resolved,
        base=Place(base.id, base.seq, base.head) if base else None,
        tree=_merged_tree(state, outcome, files, resolved),
    )
    return session, MergePlan(
        body,
        tuple([other.head for other in news]),
        files.blobs if files is not None else None,
        _memory_decisions(session, news),
        theirs,
    )


def merged_facts(session: SessionValue, branch: SessionValue) -> list[Fact]:
    """Return the facts that a branch changes in a session, merged as `Session.merge` does."""
    state = state_of(session)
    outcome = combine(state, [state_of(branch)])
    disputed = {key: sides for key, sides in outcome.conflicts.items() if key != WORKSPACE}
    if disputed:
        raise MergeConflict(session.short, disputed)
    known = state.story.facts
    return [fact for key, fact in outcome.facts.items() if fact != known.get(key)]


def merged_files(
    session: SessionValue, branch: SessionValue
) -> tuple[Digest | None, dict[Digest, bytes]]:
    """Return the tree of a session with the changes of a branch, and its new blobs, merged as
    `Session.merge` does. None: the tree stays as it is.
    """
    state, their = state_of(session), state_of(branch)
    outcome = combine(state, [their])
    disputed = {key: side for key, side in outcome.conflicts.items() if key == WORKSPACE}
    files = _merged_files(session, disputed, [their], None, None)
    resolved = _resolve_disputes(session, disputed, files, None)
    blobs = files.blobs if files is not None else {}
    return _merged_tree(state, outcome, files, resolved), blobs


def _memory_decisions(session: SessionValue, branches: Sequence[SessionValue]) -> Sequence[Draft]:
    """The decisions about memories that the branches propose beyond their own session."""
    rules = BINDINGS.memory_rules
    return rules.decisions_at_merge(session, branches) if rules is not None else ()


def _check_others(
    session: SessionValue, others: Sequence[SessionValue], base: SessionValue | None
) -> None:
    if not others:
        raise InvalidValue("merge", "there is nothing to merge", "name at least one other session")
    for other in (*others, *([base] if base is not None else [])):
        if not isinstance(other, SessionValue):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                "merge", f"a {type(other).__name__} is not a session", "open it first"
            )
        if other.store != session.store:
            raise InvalidValue(
                "merge",
                f"{other.short} lives in another store, {other.store}",
                "merge sessions of one store",
            )
    if len({other.id for other in others}) != len(others):
        raise InvalidValue("merge", "the same session is named twice", "name each branch once")
    here, writer = position_of(session), writer_of(session.run)
    if not writer.is_current(here):
        now = writer.latest(here)
        raise StaleHead(here.id, here.head, now.head, now.seq)


def _check_settled(
    session: SessionValue, others: Sequence[SessionValue], *, has_base: bool
) -> None:
    for other in others:
        their = state_of(other)
        if their.run or their.calls:
            unsettled = "an open run" if their.run else f"{len(their.calls)} open calls"
            raise NotSettled(other.short, unsettled, "merged")
        if not has_base and not share_a_place(state_of(session), their):
            raise NoCommonBase(session.short, other.short)


def _merged_files(
    session: SessionValue,
    conflicts: Mapping[str, Any],
    theirs: Sequence[State],
    base: State | None,
    resolve: Resolve | None,
) -> MergedFiles | None:
    """The files of all branches, merged by path.

    None: there is nothing to merge, or one tree is chosen whole.
    """
    if WORKSPACE not in conflicts or (not callable(resolve) and WORKSPACE in (resolve or {})):
        return None
    # A key of a fact in dispute names the fact; a file of the same name is spelled out.
    chosen: Resolve | None
    if callable(resolve):
        chosen = lambda path, sides: resolve(  # noqa: E731
            f"{WORKSPACE}/{path}" if path in conflicts else path, sides
        )
    elif resolve is not None:
        chosen = {key: value for key, value in resolve.items() if key not in conflicts}
    else:
        chosen = None
    core = core_of(session)
    names = side_names([core.state, *theirs])
    return merge_files(core.store, core.state, theirs, base, names, chosen)


def _resolve_disputes(
    session: SessionValue,
    conflicts: Mapping[str, dict[str, Any]],
    files: MergedFiles | None,
    resolve: Resolve | None,
) -> dict[str, Resolution]:
    """The choices for all disputes; raises MergeConflict if one has none."""
    disputed = {key: sides for key, sides in conflicts.items() if key != WORKSPACE or files is None}
    resolved = _resolutions(disputed, resolve, files)
    left = {key: sides for key, sides in disputed.items() if key not in resolved}
    if left or (files is not None and files.conflicts):
        disputes = {**left, **_distinct_names(files.conflicts if files is not None else {}, left)}
        step = (
            f"choose with resolve={{{next(iter(disputes))!r}: text}}, or merge --resolve"
            " PATH=SIDE|@FILE in the shell"
        )
        raise MergeConflict(session.short, disputes, None if left else step)
    return resolved


def _merged_tree(
    state: State,
    outcome: MergeOutcome,
    files: MergedFiles | None,
    resolved: Mapping[str, Resolution],
) -> Digest | None:
    """The tree after the merge. None: it stays as it was."""
    if WORKSPACE in resolved:
        return parse_digest(resolved[WORKSPACE].value, "resolve")
    if files is not None:
        return files.tree
    tree, ours = outcome.tree, state.story.tree
    return tree.digest if tree is not None and (ours is None or tree.at != ours.at) else None


def _distinct_names(
    files: Mapping[str, dict[str, Any]], facts: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Files in dispute by path; one that is called like a fact in dispute is spelled out."""
    return {
        f"{WORKSPACE}/{path}" if path in facts else path: sides for path, sides in files.items()
    }


def _resolutions(
    conflicts: dict[str, dict[str, Any]], resolve: Resolve | None, files: MergedFiles | None = None
) -> dict[str, Resolution]:
    """The choices as they are recorded; raises for a choice where nothing is in dispute."""
    settled = files.resolved if files is not None else {}
    if resolve is None:
        return {}
    if callable(resolve):
        chosen = {key: resolve(key, sides) for key, sides in conflicts.items()}
    else:
        of_files = [key for key in resolve if resolution_key(path_of_key(key)) in settled]
        chosen = {
            key: value for key, value in resolve.items() if key in conflicts or key not in of_files
        }
        needless = [key for key in chosen if key not in conflicts]
        if needless:
            there = (
                f"in dispute: {', '.join(map(repr, conflicts))}"
                if conflicts
                else "nothing is in dispute"
            )
            raise InvalidValue(
                "resolve",
                f"{', '.join(map(repr, needless))} needs no choice, {there}",
                "leave it out, or record it as a fact",
            )
    return {
        **settled,
        **{
            key: Resolution(absent=True) if value is ABSENT else Resolution(value)
            for key, value in chosen.items()
        },
    }


def _adds_to(ours: State, theirs: State) -> bool:
    """True if a branch adds anything; a parent that adds nothing is not named."""
    outcome = combine(ours, [theirs])
    return bool(outcome.added or outcome.covers)
