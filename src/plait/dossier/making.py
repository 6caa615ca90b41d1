"""Make a dossier: read the family once, and put every claim beside the step that it rests on.

A part that the store refuses to give (it was erased, or changed behind the store's back) is named,
and the rest is told all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from plait import __version__
from plait.dossier import claims, remembering, work
from plait.dossier.reading import FamilyReading, ref_of
from plait.dossier.record import PROGRAM, record_shape
from plait.dossier.shapes import (
    FORMAT,
    AcceptedPatch,
    CheckShape,
    Dossier,
    DossierNotice,
    LeanDetail,
    LeanPart,
    LeanSpent,
    LeanStep,
    RecordShape,
    StepDiff,
)
from plait.errors import ContentGone, PlaitError, UnknownBlob
from plait.event.effect_classes import OUTWARD
from plait.ids import Digest, LogId, Micros
from plait.outline.files import files_diff
from plait.outline.shapes import FilesDiff, PartShape, SeqRef, StepDetail
from plait.server.params import SessionParams
from plait.server.reading import read_session
from plait.server.shapes import FaultRow, MemoryPage, UncheckedRow, VerifyShape
from plait.session import Session
from plait.session.audit import Audit, logs_behind
from plait.session.files import first_tree
from plait.session.value import core_of
from plait.workspace.changes import Changes
from plait.workspace.tree import TreeReader

PATCH_MAX = 400_000  # characters of a patch
DIFF_LINES = 2_000  # lines of the differences of all steps
BRIEF = 2_000  # steps; beyond it those that left nothing behind have no texts
LONG = 5_000  # steps; beyond it a page shows most of them as one line
TEXTS_MAX = 1_200_000  # characters of all texts of steps
_CUTS = (
    65_536,
    16_384,
    4_096,
    1_024,
    320,
    160,
)  # the longest text of a part, by how many there are


def make_dossier(session: Session, *, made: Micros) -> Dossier:
    """Return the dossier of a session, at its place, with its family as it stands now."""
    reading = FamilyReading(session)
    part = reading.part
    pages: list[MemoryPage] = part("memories", lambda: remembering.memory_pages(reading), [])
    check = _check(reading)
    steps, cut_at = lean_steps(reading.details)
    status = part("the status", lambda: str(session.status), "unknown")
    shape = part(
        "the state",
        lambda: read_session(reading.desk, SessionParams(session=f"{session.id}@{session.seq}")),
        None,
    )
    # what is said at the top depends on all that could not be read
    body: dict[str, Any] = {
        "session": shape,
        "asked": part("messages", lambda: tuple(claims.asked_messages(reading)), ()),
        "answer": work.last_answer(reading),
        "runs": part("runs", lambda: tuple(work.runs(reading)), ()),
        "tools": part("tools", lambda: tuple(work.used_tools(reading)), ()),
        "models": part("models", lambda: tuple(work.used_models(reading)), ()),
        "workflow": part("the workflow", lambda: tuple(work.call_paths(reading)), ()),
        "rejected": part("rejections", lambda: tuple(claims.rejections(reading)), ()),
        "patch": part("files", lambda: _patch(reading), None),
        "verdicts": part("verdicts", lambda: tuple(claims.verdicts(reading)), ()),
        "facts": part("facts", lambda: tuple(claims.known_facts(reading)), ()),
        "open_work": part("open work", lambda: tuple(claims.open_work(reading)), ()),
        "diffs": part("differences", lambda: tuple(_step_diffs(reading)), ()),
        "memory_read": part(
            "recalls", lambda: tuple(remembering.memories_read(reading, pages)), ()
        ),
        "memory_written": part(
            "proposals", lambda: tuple(remembering.memories_written(reading, pages)), ()
        ),
        "consents": part("approvals", lambda: tuple(claims.consents(reading)), ()),
        "usage": part("amounts", lambda: work.usage(reading), None),
        "failures": part("failures", lambda: tuple(claims.failures(reading)), ()),
        "effects": part("effects", lambda: tuple(claims.world_effects(reading)), ()),
    }
    title = _title(reading, body["asked"])
    return Dossier(
        format=FORMAT,
        plait=__version__,
        made=made,
        store=reading.store.id,
        place=SeqRef(session.id, session.seq),
        title=title,
        status=status,
        notices=tuple(_notices(reading, check, status)),
        family=reading.family,
        steps=steps,
        check=check,
        missing=tuple(dict.fromkeys(reading.missing)),
        is_brief=len(steps) > BRIEF,
        placements={
            each.placement_text: each.placement for each in reading.details if each.placement_text
        },
        texts_cut_at=cut_at,
        what_ifs=part("what-ifs", lambda: reading.what_ifs, ()),
        **body,
    )


def _title(reading: FamilyReading, asked: tuple[claims.AskedMessage, ...]) -> str:
    title = reading.part("the title", lambda: reading.session.title, "")
    if title:
        return title
    first = asked[0].text.strip().partition("\n")[0] if asked else ""
    return (first if len(first) <= 90 else f"{first[:89]}…") or reading.session.short


# ── steps ────────────────────────────────────────────────────────────────────────────────────


def lean_steps(details: list[StepDetail]) -> tuple[tuple[LeanDetail, ...], int]:
    """Return steps without blanks, and the length at which their texts are cut; 0: at none."""
    limit = _text_limit(details)
    is_brief = len(details) > BRIEF
    steps = [
        _lean(each, limit) if not is_brief or is_notable(each) else _brief(each) for each in details
    ]
    if is_brief:
        steps = [
            msgspec.structs.replace(lean, parts=()) if _is_plain_edit(each) else lean
            for lean, each in zip(steps, details, strict=True)
        ]
    return tuple(steps), limit if limit < _CUTS[0] else 0


def is_notable(detail: StepDetail) -> bool:
    """True if a step left something behind: words, files, a verdict, a decision, a failure."""
    step = detail.step
    return step.type not in ("tool", "reply") or step.state != "done" or bool(step.marks)


def _is_plain_edit(detail: StepDetail) -> bool:
    """True if all that a call left behind are files, which its difference tells."""
    return detail.step.type == "tool" and detail.step.marks == ("files",)


def _text_limit(details: list[StepDetail]) -> int:
    """Return the longest text that lets all texts together be as long as they may."""
    sizes = [len(part.text) for detail in details for part in _parts(detail)]
    for limit in _CUTS:
        if sum([min(size, limit) for size in sizes]) <= TEXTS_MAX:
            return limit
    return _CUTS[-1]


def _parts(detail: StepDetail) -> Iterable[PartShape]:
    return (*detail.parts, *detail.asked_parts, *detail.kept)


_STEP_FIELDS = LeanStep.__struct_fields__
_SPENT_FIELDS = LeanSpent.__struct_fields__
_DETAIL_FIELDS = LeanDetail.__struct_fields__


def _lean(detail: StepDetail, limit: int) -> LeanDetail:
    fields = {name: getattr(detail, name) for name in _DETAIL_FIELDS}
    for name in ("parts", "asked_parts", "kept"):
        fields[name] = tuple([_lean_part(part, limit) for part in fields[name]])
    fields["step"] = _lean_step(detail)
    if detail.usage is not None:
        fields["usage"] = LeanSpent(*[getattr(detail.usage, name) for name in _SPENT_FIELDS])
    if detail.tree_before == detail.tree_after:
        fields["tree_before"] = fields["tree_after"] = None
    if len(detail.attempts) == 1 and detail.attempts[0].state == detail.step.state:
        fields["attempts"] = ()
    if detail.effect not in OUTWARD:
        fields["idempotency_key"] = ""
        fields["delta"] = None
    fields["placement"] = None
    if detail.traceback and len(detail.traceback) > limit:
        fields["traceback"] = f"…{detail.traceback[-limit:]}"
    return LeanDetail(**fields)


def _brief(detail: StepDetail) -> LeanDetail:
    """Return a step that left nothing behind: its line, and the arguments of its call."""
    return LeanDetail(
        step=_lean_step(detail),
        branch=detail.branch,
        arguments=detail.arguments,
    )


def _lean_step(detail: StepDetail) -> LeanStep:
    return LeanStep(*[getattr(detail.step, name) for name in _STEP_FIELDS])


def _lean_part(part: PartShape, limit: int) -> LeanPart:
    is_cut = part.is_cut or len(part.text) > limit
    return LeanPart(
        part.type, part.text[:limit], part.name, part.media_type, part.blob, part.size, is_cut
    )


# ── files ────────────────────────────────────────────────────────────────────────────────────


def _patch(reading: FamilyReading) -> AcceptedPatch | None:
    """Return the difference between the files that the story began with, and those it has."""
    state, store = core_of(reading.session).state, reading.store
    tree = state.story.tree.digest if state.story.tree is not None else None
    base = first_tree(store, state)
    if tree is None:
        return None
    diff: FilesDiff = files_diff(store, base, tree)
    changes = Changes(TreeReader(store), base, tree)
    patch = changes.patch() if len(diff.files) < 500 else ""
    in_story = [detail for detail in reading.details if reading.is_in_story(detail)]
    last = claims.used_paths(in_story)
    names: set[str] = {each.path for each in diff.files}
    return AcceptedPatch(
        base=base,
        tree=tree,
        added=sum([each.added for each in diff.files]),
        removed=sum([each.removed for each in diff.files]),
        files=diff,
        writers={path: at for path, at in last.items() if path in names},
        patch=patch if len(patch) <= PATCH_MAX else "",
        is_cut=len(patch) > PATCH_MAX,
    )


def _step_diffs(reading: FamilyReading) -> Iterable[StepDiff]:
    """Yield the differences of the steps that changed files, up to a number of lines in all."""
    left, known = DIFF_LINES, dict[tuple[Digest, Digest], FilesDiff]()
    for detail in reading.details:
        before, after = detail.tree_before, detail.tree_after
        if detail.step.type != "tool" or before is None or after is None or before == after:
            continue
        if (before, after) not in known:
            known[before, after] = files_diff(reading.store, before, after)
        diff = known[before, after]
        left -= sum([len(hunk) for file in diff.files for hunk in file.hunks]) + len(diff.files)
        if left < 0:
            return
        yield StepDiff(ref_of(detail), diff)


# ── checking ─────────────────────────────────────────────────────────────────────────────────


def _check(reading: FamilyReading) -> CheckShape:
    session, store = reading.session, reading.store
    empty = RecordShape((), 0, 0, "", False)
    record = reading.part(
        "the record", lambda: record_shape(store, reading.family, session.id), empty
    )
    verify = reading.part("the verification", lambda: _verify(reading), None)
    return CheckShape(session.head, verify, record, PROGRAM)


def _verify(reading: FamilyReading) -> VerifyShape:
    """Check every event of the family, and of all that it is made of."""
    session, store = reading.session, reading.store
    wanted = [branch.log for branch in reading.family.branches] if reading.family else [session.id]
    logs = logs_behind(store, wanted)
    audit = Audit(store, logs, state=False)
    faults = [FaultRow(fault.log, fault.seq, fault.what) for fault in audit.faults()]
    faults.sort(key=lambda fault: (fault.session != session.id, fault.seq or 0))
    unchecked = [UncheckedRow(each.what, each.why) for each in audit.unchecked_parts()]
    count = sum([_own_events(reading, log) for log in logs])
    return VerifyShape(session.id, session.seq, not faults, count, tuple(faults), tuple(unchecked))


def _own_events(reading: FamilyReading, log: LogId) -> int:
    try:
        info = reading.store.log(log)
    except PlaitError:
        return 0
    return info.tip - info.place


# ── at the top ───────────────────────────────────────────────────────────────────────────────

_STATES: dict[str, tuple[Any, str]] = {
    "running": ("running", "A run is at work on this session while this is written: it goes on."),
    "waiting": ("waiting", "The run waits, for a person, a time or a signal: it is not over."),
    "paused": ("waiting", "The session is paused: its run is not over."),
    "interrupted": (
        "killed",
        "The process of the run ended without a word, and no other has taken the run up: what was "
        "under way then is told as far as it is on record.",
    ),
    "failed": ("failed", "The run failed."),
    "cancelled": ("cancelled", "The run was cancelled."),
    "open": ("open", "The session is open: more may be said and done in it."),
}


def _notices(reading: FamilyReading, check: CheckShape, status: str) -> Iterable[DossierNotice]:
    """Yield what a reader has to know before anything else."""
    gone = _erased_places(reading)
    verify = check.verify
    erased_only = verify is not None and all((f.session, f.seq) in gone for f in verify.faults)
    if verify is None:
        yield DossierNotice("tampered", "The record could not be checked. Believe nothing in here.")
    elif not verify.ok and not erased_only:
        fault = verify.faults[0]
        at = SeqRef(fault.session, fault.seq or 1) if fault.session is not None else None
        where = f"event {fault.seq} of {fault.session}" if fault.session else "the store"
        text = (
            f"The record is not the one that was written. The first fault is {where}: "
            f"{fault.what}. What follows it cannot be believed."
        )
        yield DossierNotice("tampered", text, at)
    if gone:
        first = next(iter(gone))
        count = f"{len(gone):,} events" if len(gone) > 1 else "1 event"
        text = f"The content of {count} was erased. Headers and hashes are there."
        yield DossierNotice("erased", text, SeqRef(*first))
    if reading.missing:
        yield DossierNotice(
            "partial", "Parts of it could not be read. The last section names them."
        )
    if status in _STATES:
        kind, text = _STATES[status]
        waits = [each for each in reading.details if each.step.state in ("waiting", "unknown")]
        yield DossierNotice(kind, text, ref_of(waits[-1]) if kind == "waiting" and waits else None)
    tip = reading.part("the tip", lambda: reading.store.log(reading.session.id).tip, 0)
    if tip > reading.session.seq:
        yield DossierNotice(
            "past",
            f"It is about event {reading.session.seq:,}; the session has {tip:,}. State, files and "
            "amounts are told as they were then; steps of later events are told, too.",
        )
    if len(reading.details) > LONG:
        yield DossierNotice(
            "long",
            f"It has {len(reading.details):,} steps. Most are shown as one line; run.html and the "
            "store have their details.",
        )


def _erased_places(reading: FamilyReading) -> dict[tuple[LogId, int], None]:
    """Return the events whose content is gone, the first ones."""
    found = dict[tuple[LogId, int], None]()
    for detail in reading.details:
        if detail.step.says != "(erased or unreadable)" and detail.step.says:
            continue
        for seq in _unreadable(reading, detail):
            found[detail.step.log, seq] = None
    return found


def _unreadable(reading: FamilyReading, detail: StepDetail) -> Iterable[int]:
    step = detail.step
    for event in reading.store.read(step.log, step.first, step.seq):
        try:
            _ = event.content
        except (ContentGone, UnknownBlob):
            yield event.seq
        except PlaitError:  # other bytes stand there: the verification tells
            continue


def encode_dossier(dossier: Dossier) -> bytes:
    """Return a dossier as JSON."""
    return msgspec.json.encode(dossier)


def digests_of(dossier: Dossier) -> list[Digest]:
    """Return the heads that a dossier names."""
    return [head.head for head in dossier.check.record.heads]
