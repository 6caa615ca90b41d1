"""The claims of a dossier about work: asked, judged, rejected, failed. Each rests on a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from plait.calls.tool_call import SERVICE
from plait.dossier.markup import object_of
from plait.dossier.reading import FamilyReading, call_line, parts_text, ref_of
from plait.dossier.shapes import (
    AskedMessage,
    Consent,
    DossierFailure,
    DossierRejection,
    DossierVerdict,
    KnownFact,
    OpenWork,
    WorldEffect,
)
from plait.event.effect_classes import NOT_RUN, OUTWARD
from plait.ids import Digest
from plait.outline.shapes import BranchShape, SeqRef, StepDetail
from plait.outline.texts import first_argument, json_text
from plait.outline.track import verdicts_on
from plait.session.value import core_of
from plait.workspace.changes import Changes
from plait.workspace.tree import TreeReader, shown_path


def asked_messages(reading: FamilyReading) -> Iterator[AskedMessage]:
    """Yield the messages of people and programs in the story, the first one first."""
    for detail in reading.details:
        step = detail.step
        if step.type != "message" or step.actor.startswith("agent:"):
            continue
        if detail.fields.get("role", "user") == "user" and reading.is_in_story(detail):
            yield AskedMessage(ref_of(detail), step.actor, step.time, parts_text(detail))


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────


def verdicts(reading: FamilyReading) -> Iterator[DossierVerdict]:
    """Yield every verdict of the family, with the events that show it."""
    given = [detail for detail in reading.details if detail.step.type == "verdict"]
    path = core_of(reading.session).state.story.path
    last = {SeqRef(at.log, at.seq) for at, _ in verdicts_on(reading.store, path).values()}
    for detail in given:
        fields: dict[str, Any] = detail.fields
        before = _call_before(reading, detail)
        yield DossierVerdict(
            at=ref_of(detail),
            name=_name(detail),
            passed=bool(fields.get("passed")),
            actor=detail.step.actor,
            by=tuple(fields.get("by", ())),
            time=detail.step.time,
            detail=fields.get("detail"),
            tree=fields.get("tree"),
            evidence=reading.evidence(tuple(fields.get("evidence", ()))),
            stands=ref_of(detail) in last,
            changed_since=_changed_since(reading, fields.get("tree"))
            if ref_of(detail) in last
            else (),
            call_before=ref_of(before) if before is not None else None,
            call_says=call_line(before) if before is not None else "",
        )


def _changed_since(reading: FamilyReading, tree: Digest | None) -> tuple[str, ...]:
    """Return the paths at which the files of a verdict are not those of the session."""
    now = core_of(reading.session).state.story.tree
    if tree is None or now is None or tree == now.digest:
        return ()
    changes = Changes(TreeReader(reading.store), tree, now.digest)
    return tuple([shown_path(each.path) for each in changes])


def _call_before(reading: FamilyReading, verdict: StepDetail) -> StepDetail | None:
    """Return the last call of a tool before a verdict, in the log of the verdict."""
    steps = reading.by_log[verdict.step.log]
    for detail in reversed(steps[: verdict.step.index]):
        if detail.step.type == "tool":
            return detail
    return None


def _name(detail: StepDetail) -> str:
    return str(detail.fields.get("name", detail.step.verb))


# ── facts ────────────────────────────────────────────────────────────────────────────────────


def known_facts(reading: FamilyReading) -> Iterator[KnownFact]:
    """Yield the facts, decisions and findings of the session, with the words of their authors."""
    facts = reading.session.facts
    for key in facts:
        fact = facts.of(key)
        at = reading.index_at(fact.at.log, fact.at.seq)
        detail = reading.details[at] if at is not None else None
        reason = str(detail.fields.get("reason", "")) if detail is not None else ""
        actor = detail.step.actor if detail is not None else ""
        place = SeqRef(fact.at.log, fact.at.seq)
        yield KnownFact(place, key, fact.kind, fact.value, reason, actor)


def open_work(reading: FamilyReading) -> Iterator[OpenWork]:
    """Yield the work that is pending."""
    for key, each in reading.session.pending.items():
        yield OpenWork(SeqRef(each.at.log, each.at.seq), key, each.kind, each.what)


# ── rejected ─────────────────────────────────────────────────────────────────────────────────


def rejections(reading: FamilyReading) -> Iterator[DossierRejection]:
    """Yield what was tried or asked for, and not taken."""
    family = reading.family.branches if reading.family is not None else ()
    branches = [each for branch in family for each in _left_branch(reading, branch)]
    yield from branches
    # the verdict by which a branch was left is told with the branch
    told = {each.at for each in branches}
    for detail in reading.details:
        if detail.step.type != "verdict" or ref_of(detail) not in told:
            yield from _rejection_of(reading, detail)


def _left_branch(reading: FamilyReading, branch: BranchShape) -> Iterator[DossierRejection]:
    """Yield a branch that no session took in, and that is not the session itself."""
    lineage = {span.log for span in reading.store.lineage(reading.session.id)}
    if branch.parent is None or branch.merged_into or branch.log in lineage:
        return
    if branch.log in reading.what_ifs:
        return
    steps = reading.by_log.get(branch.log, [])
    failed = [each for each in steps if each.step.type == "verdict" and "failed" in each.step.marks]
    ended = [each for each in steps if each.step.type == "ended" and each.step.state == "failed"]
    if failed:
        verdict = failed[-1]
        why = f"the verdict {verdict.step.verb} failed: {_verdict_reason(reading, verdict)}"
        why = why.removesuffix(": ")
        yield DossierRejection(ref_of(verdict), "branch", branch.name, why, verdict.step.actor)
    elif ended:
        step = ended[-1].step
        why = f"{step.verb}: {step.says}"
        yield DossierRejection(ref_of(ended[-1]), "branch", branch.name, why, step.actor)
    elif steps:
        actor = steps[0].step.actor
        yield DossierRejection(ref_of(steps[0]), "branch", branch.name, "", actor)


def _verdict_reason(reading: FamilyReading, detail: StepDetail) -> str:
    """Return why a verdict failed: its own words, else the call that came before it."""
    if detail.step.says:
        return detail.step.says
    before = _call_before(reading, detail)
    if before is not None:
        return call_line(before)
    value = detail.fields.get("detail")
    return "" if value is None else json_text(value)[:300]


def _rejection_of(reading: FamilyReading, detail: StepDetail) -> Iterator[DossierRejection]:
    step, at = detail.step, ref_of(detail)
    what = f"{step.verb} {step.subject}".strip()
    if step.type == "verdict" and "failed" in step.marks:
        yield DossierRejection(
            at, "verdict", _name(detail), _verdict_reason(reading, detail), step.actor
        )
    elif step.type == "rewind":
        yield DossierRejection(
            at, "rewind", f"everything after event {step.subject}", step.says, step.actor
        )
    elif step.type == "tool" and detail.fields.get("decision") == "refuse":
        yield DossierRejection(at, "policy", what, detail.failure, "the policy of the run")
    for word in detail.approvals:
        if word.how == "denied":
            yield DossierRejection(at, "consent", what, word.words, word.actor)
        elif word.how == "expired":
            yield DossierRejection(at, "consent", what, "nobody answered in time", word.actor)
        elif word.how == "corrected":
            words = word.words or "other arguments were allowed"
            asked = object_of(detail.fields.get("shown")).get("arguments")
            what = f"{step.verb} {first_argument(asked)}".strip()
            yield DossierRejection(at, "consent", what, words, word.actor)


# ── people ───────────────────────────────────────────────────────────────────────────────────


def consents(reading: FamilyReading) -> Iterator[Consent]:
    """Yield the calls and questions that people were asked about."""
    for detail in reading.details:
        step = detail.step
        is_resolved = step.type == "tool" and step.says.startswith(_RESOLVED)
        if is_resolved and _found_by_tool(detail) and not detail.approvals:
            continue  # nobody was asked
        if detail.approvals:
            yield _consent(detail, "approval")
        elif step.type == "question":
            yield _consent(detail, "question", parts_text(detail))
        elif is_resolved or (step.type == "tool" and step.state == "unknown"):
            yield _consent(detail, "resolution", step.says if is_resolved else "")


_RESOLVED = ("happened, says ", "did not happen, says ", "compensated, says ")
_BY_TOOL = {
    "happened": "its probe found that it had happened",
    "did not happen": "its probe found that it had not happened",
    "compensated": "the tool itself undid it",
}


def _found_by_tool(detail: StepDetail) -> str:
    """Return what the tool itself found out about a call in doubt; "": a person decided."""
    how, _, by = detail.step.says.partition(", says ")
    return _BY_TOOL.get(how, "") if by.partition(": ")[0] == SERVICE else ""


def _consent(detail: StepDetail, sort: Any, answer: str = "") -> Consent:
    step, fields = detail.step, detail.fields
    choices: Any = fields.get("choices", ())
    by = [word.actor for word in detail.approvals if word.how not in ("requested", "expired")]
    if sort == "resolution" and answer:
        by = [answer.partition(", says ")[2].partition(": ")[0]]
    return Consent(
        at=ref_of(detail),
        sort=sort,
        asked_by=step.actor,
        time=step.time,
        tool=step.verb if step.type == "tool" else "",
        arguments=detail.arguments,
        shown=fields.get("shown"),
        question="\n".join([part.text for part in detail.asked_parts]),
        choices=tuple([str(choice) for choice in choices]),
        words=detail.approvals,
        answer=answer,
        answered_by=by[-1] if by else "",
        state=step.state,
    )


# ── failures ─────────────────────────────────────────────────────────────────────────────────


def failures(reading: FamilyReading) -> Iterator[DossierFailure]:
    """Yield what failed, and what was done about it."""
    for at, detail in enumerate(reading.details):
        step = detail.step
        if step.type == "tool" and step.state != "denied":
            yield from _tool_failure(reading, at, detail)
        elif step.type in ("reply", "failure"):
            yield from _model_failure(reading, at, detail)
        elif step.type == "ended" and step.state == "failed":
            yield _run_failure(reading, at, detail)
        elif "kill" in step.marks:
            what = "the process of the run was killed"
            then = f"taken up again by {step.actor}; what is on record was not done again"
            yield DossierFailure(ref_of(detail), "kill", what, step.says, then, ref_of(detail))
        elif step.type == "budget" and step.state == "failed":
            what = f"{step.verb} {step.subject}".strip()
            then, after = _what_followed(reading, at)
            yield DossierFailure(ref_of(detail), "budget", what, step.says, then, after)


def _tool_failure(reading: FamilyReading, at: int, detail: StepDetail) -> Iterator[DossierFailure]:
    step = detail.step
    what = f"{step.verb} {step.subject}".strip()
    failed = [attempt for attempt in detail.attempts if attempt.state in ("failed", "unknown")]
    if step.says.startswith(_RESOLVED):
        error = detail.reason if not failed else failed[0].words
        then = _found_by_tool(detail) or f"a person decided: {step.says}"
        yield DossierFailure(ref_of(detail), "tool", what, error, then, ref_of(detail))
    elif step.state == "unknown":
        then = "nothing yet: a person has to say what happened"
        yield DossierFailure(ref_of(detail), "tool", what, step.says, then)
    elif step.state == "failed":
        exit_code = f"exit code {step.exit_code}" if step.exit_code else ""
        error = detail.failure or ": ".join(filter(None, [exit_code, step.says]))
        then, after = _what_followed(reading, at)
        yield DossierFailure(ref_of(detail), "tool", what, error, then, after)
    elif failed and step.state == "done":
        then = f"made again: attempt {detail.attempts[-1].number} succeeded"
        error = failed[0].words or "no outcome is on record"
        yield DossierFailure(ref_of(detail), "tool", what, error, then, ref_of(detail))


def _model_failure(reading: FamilyReading, at: int, detail: StepDetail) -> Iterator[DossierFailure]:
    step = detail.step
    failed = [attempt for attempt in detail.attempts if attempt.state == "failed"]
    if not failed:
        return
    what = f"{detail.model or 'a model'} did not answer"
    if step.type == "reply" and not detail.failure:
        then = f"asked again: attempt {len(failed) + 1} was answered"
        yield DossierFailure(ref_of(detail), "model", what, failed[0].words, then, ref_of(detail))
        return
    then, after = _what_followed(reading, at)
    yield DossierFailure(ref_of(detail), "model", what, failed[-1].words, then, after)


def _run_failure(reading: FamilyReading, at: int, detail: StepDetail) -> DossierFailure:
    step = detail.step
    later = reading.details[at + 1 :]
    taken = next((each for each in later if each.step.type == "taken"), None)
    then = "taken up again" if taken is not None else "nothing: the run stays failed"
    error = ": ".join(filter(None, [step.subject, step.says]))
    after = ref_of(taken) if taken is not None else None
    return DossierFailure(ref_of(detail), "run", "the run", error, then, after)


def _what_followed(reading: FamilyReading, at: int) -> tuple[str, SeqRef | None]:
    """Return the step that came after a failure, in words, and its place."""
    after = reading.next_step(at)
    if after is None:
        return "nothing followed in this branch", None
    step = after.step
    line = " ".join(filter(None, [step.verb, step.subject])) or step.says[:120]
    is_agent = reading.details[at].step.actor.startswith("agent:")
    told = "the agent was told, and went on" if is_agent else "the program went on"
    return f"{told}: {line}", ref_of(after)


# ── effects ──────────────────────────────────────────────────────────────────────────────────


def world_effects(reading: FamilyReading) -> Iterator[WorldEffect]:
    """Yield the calls of tools that reach beyond the files, and may have had an effect."""
    for detail in reading.details:
        step = detail.step
        if step.type != "tool" or detail.effect not in OUTWARD:
            continue
        state = _effect_state(detail)
        if state is None:
            continue
        if reading.is_in_story(detail):
            standing = "in the story"
        else:
            standing = "rewound" if step.is_rewound else "in a branch that was not merged"
        says = _found_by_tool(detail) or step.says
        yield WorldEffect(
            ref_of(detail), step.verb, detail.arguments, detail.effect, state, standing, says
        )


def _effect_state(detail: StepDetail) -> Any:
    """Return whether an effect happened. None: it certainly did not."""
    step = detail.step
    if step.says.startswith("compensated, says "):
        return "compensated"
    if step.state == "unknown" or (step.state == "open" and detail.attempts):
        return "may have happened"
    if step.state == "failed":
        return None if detail.failure.partition(":")[0] in NOT_RUN else "failed"
    if step.state != "done" or step.says.startswith("did not happen, says "):
        return None
    return "happened"


def used_paths(details: Iterable[StepDetail]) -> dict[str, SeqRef]:
    """Return for each path the last step that changed it."""
    found = dict[str, tuple[int, SeqRef]]()
    for detail in details:
        for path in detail.step.files:
            time = detail.step.time
            if path not in found or found[path][0] <= time:
                found[path] = (time, ref_of(detail))
    return {path: at for path, (_, at) in found.items()}
