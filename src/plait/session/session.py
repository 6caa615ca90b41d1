"""The session: an immutable, durable, branchable value.

A `Session` is a place in a log and nothing else: every operation appends and returns the next
value, and the old one keeps answering as before. What it can tell is in `reading.py`; here are its
verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote

import msgspec

from plait.errors import (
    GateUnmet,
    InvalidValue,
    MergeConflict,
    NoCommonBase,
    NoRun,
    NotSettled,
    PlaitError,
    RunOpen,
    StaleHead,
    UnknownKey,
)
from plait.event import Body, Event, Json
from plait.event.codec import check_origin
from plait.event.kinds import (
    ApprovalDenied,
    ApprovalGranted,
    Budget,
    BudgetSet,
    CancelRequested,
    Data,
    EvidenceAttached,
    FactRecorded,
    FactRetracted,
    ForkedFrom,
    GateRequired,
    Linked,
    Merged,
    MessageSaid,
    ModelReplied,
    PendingAdded,
    PendingSettled,
    Place,
    PlacementChanged,
    QuestionAnswered,
    Resolution,
    Rewound,
    ScratchSet,
    SessionArchived,
    SessionClosed,
    SessionOpened,
    SessionPaused,
    SessionResumed,
    Signalled,
    ToolFailed,
    ToolRequested,
    ToolResolved,
    ToolReturned,
    ToolUnknown,
    ValidationRecorded,
)
from plait.event.strict import check_text
from plait.ids import Digest, Micros, digest, is_digest, parse_digest
from plait.session import revision
from plait.session.content import Content, contents, file, image, pack, text_of, unpack
from plait.session.events import Events, along
from plait.session.files import Files, merge_files, path_of, resolved_as
from plait.session.fold import state_at
from plait.session.gates import judge_name
from plait.session.inbox import arrived, ask_now, post, reply, waiting_in, waiting_in_branches
from plait.session.life import Life, check_may, live_on
from plait.session.merge import WORKSPACE, combine, is_about_files, names_of
from plait.session.origins import ORDINARY
from plait.session.ports import UNNAMED, Act, Draft, Position, Value, host, is_bound, writer_of
from plait.session.reading import Reading, address_of
from plait.session.rows import run_of_branch
from plait.session.state import (
    ABSENT,
    Fact,
    FactKind,
    Known,
    Pending,
    PendingKind,
    Ref,
    State,
    Tree,
    share_a_place,
    state_digest,
)
from plait.session.typed import bytes_of, misfit, takes_bytes, to_json
from plait.session.views import Attachment, Effect, Facts, Link, Message, Run, Validation, Waiting
from plait.store import Durability, Store, check_durability

Cause: TypeAlias = (
    "Event | Session | Message | Effect | Attachment | Validation | Link | Run | int | str"
)
# Events, what stands for one (an effect, say, or a run for its end), places of this session,
# sessions for their last event, names of facts, pending work, verdicts and evidence, the id of an
# event, a place as `SHORT@4`, the last result or text.
Because: TypeAlias = "Cause | Sequence[Cause]"
Resolve = Mapping[str, Json] | Callable[[str, Mapping[str, Any]], Json]


NAME_MAX = 300
QUOTE_MIN = 8  # characters that a text must share with another to count as taken from it
_CAUSES = (
    "pass an event or its id, an effect, message, run, attachment, verdict or link, a session, a"
    " place of this session (4) or of another (SHORT@4), the name of a fact, pending work, verdict"
    " or evidence, or the last result or text"
)
_IN_RUN = "do it in the workflow, with the value that its forward has"
_MERGE_INSTEAD = (
    "let the run finish, or end it with session.cancel(); or merge in a fork:"
    " session.fork().merge(…)"
)
_ORIGINS = {"human": "human", "agent": "model"}


class Session(Reading):
    """An immutable value: a place in a log. Every operation returns a new one."""

    __slots__ = ()

    def __init__(
        self,
        *content: Content,
        title: str = "",
        user: str | None = None,
        project: str | None = None,
        tags: Mapping[str, str] | None = None,
        budget: Budget | None = None,
        durability: Literal["full", "async"] | None = None,
        store: str | Path | Store | None = None,
        actor: str | None = None,
    ) -> None:
        """Open a new session and say something in it.

        It is on disk when this returns, unless it is to be written `async`.
        """
        writer, address = writer_of(None), address_of(store)
        check_durability(durability)
        for name, text in (("title", title), ("user", user or ""), ("project", project or "")):
            _check_name(name, text)
        who = actor or (_human(user) if user else writer.principal())
        _check_budget(budget)
        opened = SessionOpened(
            title=title,
            user=user,
            project=project,
            tags=_check_tags(tags),
            budget=budget,
            durability=_kept_as(durability, writer.store(address)),
        )
        parts, blobs = pack(content, "content")
        drafts = [Draft(opened, _act(who))]
        if parts:
            causes = writer.acting(address).causes
            drafts.append(Draft(MessageSaid("user", parts), _act(who, causes)))
        self._become(
            writer.begin(address, drafts, blobs=blobs), life=Life(), user=user or "", busy=False
        )

    # ── saying and knowing ───────────────────────────────────────────────────────────────────

    def say(
        self,
        *content: Content,
        role: Literal["user", "assistant", "system"] = "user",
        name: str = "",
        actor: str | None = None,
        origin: str | None = None,
        because: Because = (),
    ) -> Session:
        """Add a message: texts, paths, `image(…)`, `file(…)`, dicts and lists.

        `origin` says where its content comes from, as in "web", if not from whoever says it.
        """
        if not content:
            raise InvalidValue("content", "nothing is said", "pass a text")
        _check_choice("role", role, ("user", "assistant", "system"))
        parts, blobs = pack(content, "content")
        if actor is None and role != "user":
            actor = (
                f"agent:{_word(name or 'assistant')}" if role == "assistant" else "service:program"
            )
        body = MessageSaid(role, parts, name)
        # Words in a role of the workflow's own are for the workflow to say.
        step = (
            ""
            if role == "user" and not name
            else "say it as a user, without a name: session.send(…)"
        )
        verb = "take messages" if not step else f"take messages as {name or role}"
        return self._append(
            body, verb, actor=actor, origin=origin, because=because, blobs=blobs, instead=step
        )

    def fact(
        self,
        key: str,
        value: Json,
        *,
        review_by: Micros | None = None,
        actor: str | None = None,
        because: Because = (),
    ) -> Session:
        """Record a fact under a key: it survives compaction and merges three ways."""
        return self._record(key, value, "fact", review_by, actor, because)

    def decide(
        self,
        key: str,
        value: Json,
        *,
        reason: str = "",
        review_by: Micros | None = None,
        actor: str | None = None,
        because: Because = (),
    ) -> Session:
        """Record a decision under a key.

        `reason` is in words, `because` names the events behind it.
        """
        return self._record(key, value, "decision", review_by, actor, because, reason)

    def note(
        self, text: str, *, key: str | None = None, actor: str | None = None, because: Because = ()
    ) -> Session:
        """Record a finding.

        Without a key it has one of its own, so that notes of two branches never collide.
        """
        return self._record(
            _key_of("finding", text) if key is None else key, text, "finding", None, actor, because
        )

    def retract(
        self, key: str, *, reason: str = "", actor: str | None = None, because: Because = ()
    ) -> Session:
        """Take a fact, decision or finding back."""
        facts = Facts(self._state.story.facts)
        if key not in facts:
            raise UnknownKey(self.short, "fact", key, tuple(facts))
        return self._append(FactRetracted(key, reason), "take facts", actor=actor, because=because)

    def todo(
        self,
        what: str,
        *,
        key: str | None = None,
        kind: PendingKind = "step",
        actor: str | None = None,
        because: Because = (),
    ) -> Session:
        """Add pending work: a next step, an open question, a hypothesis."""
        _check_choice("kind", kind, ("step", "question", "hypothesis"))
        name = _key_of("todo", what) if key is None else _check_key(key)
        return self._append(
            PendingAdded(name, _check_text("what", what), kind),
            "take pending work",
            actor=actor,
            because=because,
        )

    def settle(
        self, key: str, outcome: str = "", *, actor: str | None = None, because: Because = ()
    ) -> Session:
        """Settle pending work, named by its key or by what it says."""
        pending = {
            each.key: each for each in self._state.story.pending.values() if not each.settled
        }
        found = (
            key
            if key in pending
            else next((each.key for each in pending.values() if each.what == key), None)
        )
        if found is None:
            raise UnknownKey(self.short, "pending work", key, tuple(pending))
        return self._append(
            PendingSettled(found, outcome), "take pending work", actor=actor, because=because
        )

    def scratch(self, key: str, value: Json, *, actor: str | None = None) -> Session:
        """Set working state: forked and rewound, never in a prompt, not merged, dropped at close.

        None clears it.
        """
        return self._append(ScratchSet(_check_key(key), value), "take scratch", actor=actor)

    def attach(
        self,
        name: str,
        content: Content | bytes | float,
        *,
        media_type: str | None = None,
        actor: str | None = None,
        origin: str | None = None,
        because: Because = (),
    ) -> Session:
        """Attach evidence: a file, a figure, a metric.

        `origin` says where it comes from, if not from whoever attaches it.
        """
        _check_key(name, "name")
        if isinstance(content, bytes):
            content = (
                image(content, media_type)
                if (media_type or "").startswith("image/")
                else file(content, name, media_type)
            )
        elif isinstance(content, Path) and media_type:
            content = (
                image(content, media_type)
                if media_type.startswith("image/")
                else file(content, media_type=media_type)
            )
        elif isinstance(content, (int, float)):
            content = Data(content)
        parts, blobs = pack([content], "content")
        body = EvidenceAttached(name, parts)
        return self._append(
            body, "take evidence", actor=actor, origin=origin, because=because, blobs=blobs
        )

    def validate(
        self,
        name: str,
        passed: bool,
        *,
        evidence: Because = (),
        detail: Json = None,
        actor: str | None = None,
        because: Because = (),
    ) -> Session:
        """Record a verdict on this place, with the events that show it.

        Where a gate of that name asks for somebody else's, it is recorded and does not count:
        `unmet` says so.
        """
        if not isinstance(passed, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue("passed", f"{passed!r} is neither True nor False", "say which")
        tree = self._state.story.tree
        shown = self._causes(evidence, "evidence")
        # it comes to the log later, and is about this place
        about = self.seq if self._open_run_of_others() is not None else None
        body = ValidationRecorded(
            _check_key(name, "name"),
            passed,
            shown,
            detail,
            tree.digest if tree else None,
            by=writer_of(self.run).judges(self.id, self.store),
            at=about,
        )
        return self._append(
            body, "take verdicts", actor=actor, because=(*shown, *self._causes(because))
        )

    def require(self, name: str, *, by: object = "", actor: str | None = None) -> Session:
        """Require a verdict of this name, on the place and tree there are then, before this is
        merged or closed.

        `by` is who is to give it: a principal (`"human:ana"`), or a workflow, itself or by its
        class, path or name. Nobody else's counts.
        """
        who = judge_name(
            by, writer_of(self.run).path_of(self.id, by) if not isinstance(by, str) else None
        )
        before = self.gates.get(name)
        if before is not None and before.by and who not in ("", before.by):
            why = (
                f"gate {name!r} asks for the verdict of {before.by}, and is not handed on to {who}"
            )
            raise InvalidValue("by", why, "require a verdict of another name")
        who = who or (before.by if before is not None else "")
        return self._append(GateRequired(_check_key(name, "name"), who), "take gates", actor=actor)

    def link(
        self,
        system: str,
        ref: str,
        *,
        digest: str | None = None,
        note: str = "",
        actor: str | None = None,
        because: Because = (),
    ) -> Session:
        """Point to a record in somebody else's store: a trace, a row, an object, a URL."""
        body = Linked(
            _check_key(system, "system"),
            _check_key(ref, "ref", 4000),
            parse_digest(digest) if digest is not None else None,
            note,
        )
        return self._append(body, "take links", actor=actor, because=because)

    def grant(self, budget: Budget, *, actor: str | None = None) -> Session:
        """Grant a budget from here on, instead of what was left of the one before."""
        _check_budget(budget)
        return self._append(BudgetSet(budget), "be granted a budget", actor=actor)

    # ── branching ────────────────────────────────────────────────────────────────────────────

    def fork(
        self,
        label: str | None = None,
        *,
        at: int | None = None,
        budget: Budget | None = None,
        actor: str | None = None,
    ) -> Session:
        """A branch from here, or from an earlier place: it takes the story along and leaves open
        work behind.
        """
        revision.check_label(label)
        _check_budget(budget)
        if at is not None:
            return self.at(at).fork(label, budget=budget, actor=actor)
        spot = self._position
        body = ForkedFrom(spot.id, spot.seq, label, budget)
        fork = Place(spot.id, spot.seq, spot.head)
        made = writer_of(spot.run).begin(
            spot.store, [Draft(body, self._acting(actor))], fork=fork, run=spot.run
        )
        return self._next(made, Life(), False if spot.run is None else None)

    def detach(
        self, *, title: str | None = None, budget: Budget | None = None, actor: str | None = None
    ) -> Session:
        """A new root with the same story and no lineage: its own life, its own bill."""
        state = self._state
        opened = self._opened(state, title, budget, detached=True)
        made = writer_of(self.run).begin(
            self.store, [Draft(opened, self._acting(actor))], run=self.run
        )
        return Session.of(made)

    def successor(
        self,
        brief: Content | None = None,
        *,
        title: str | None = None,
        budget: Budget | None = None,
        actor: str | None = None,
    ) -> Session:
        """A new session with an empty transcript that carries facts, decisions, pending work and
        files, and links back.
        """
        state, act = self._state, self._acting(actor)
        drafts = [Draft(self._opened(state, title, budget), act)]
        story = state.story
        if story.placement is not None:
            placed = PlacementChanged(story.placement, story.tree.digest if story.tree else None)
            drafts.append(Draft(placed, self._taken_over(act, story.tree) if story.tree else act))
        for fact in story.facts.values():
            if fact.json is not None:
                said = self._store.event(fact.at.id).body
                reason = said.reason if isinstance(said, FactRecorded) else ""
                body = FactRecorded(fact.key, fact.value, fact.kind, fact.review_by, reason)
                drafts.append(Draft(body, self._taken_over(act, fact)))
        for work in story.pending.values():
            if not work.settled:
                body = PendingAdded(work.key, work.what, work.kind)
                drafts.append(Draft(body, self._taken_over(act, work)))
        parts, blobs = pack([brief] if brief is not None else [], "brief")
        if parts:
            quoted = (self.head,) if self._is_quoted(text_of(parts)) else ()
            causes = tuple(dict.fromkeys((*act.causes, *quoted)))
            drafts.append(Draft(MessageSaid("user", parts), act._replace(causes=causes)))
        return Session.of(writer_of(self.run).begin(self.store, drafts, blobs=blobs, run=self.run))

    def rewind(self, to: int | Event, *, reason: str = "", actor: str | None = None) -> Session:
        """Go on from the story at an earlier place.

        The whole past stays on record, and what was spent stays spent.
        """
        place = to.seq if isinstance(to, Event) else to
        if isinstance(to, Event) and to not in Events(self._position):
            raise InvalidValue(
                "to", f"{to!r} is not an event of this session", "rewind to one of session.events"
            )
        wanted = revision.place_in(self.id, place, self.seq)
        if wanted == self.seq:
            raise InvalidValue(
                "to", f"the session is at {wanted} already", "rewind to an earlier place"
            )
        step = (
            "let it finish, or end it with session.cancel(); or rewind a fork:"
            " session.fork().rewind(…)"
        )
        return self._append(
            Rewound(wanted, reason, self._not_undone(wanted)),
            "be rewound",
            actor=actor,
            instead=step,
            unheld=True,
        )

    def merge(
        self,
        *others: Session,
        resolve: Resolve | None = None,
        base: Session | None = None,
        actor: str | None = None,
    ) -> Session:
        """Take the results of other branches in: one event with several parents.

        What is in here already adds nothing.
        """
        check_may(self.short, self.status, "be merged into")
        self._refuse_if_busy("be merged into", _MERGE_INSTEAD)
        self._check_others(others, base)
        state, theirs, root = (
            self._state,
            [other._state for other in others],
            base._state if base else None,
        )
        for other, their in zip(others, theirs, strict=True):
            if their.run or their.calls:
                raise NotSettled(
                    other.short,
                    "an open run" if their.run else f"{len(their.calls)} open calls",
                    "merged",
                )
            if root is None and not share_a_place(state, their):
                raise NoCommonBase(self.short, other.short)
        outcome = combine(state, theirs, base=root)
        if not outcome.added and not outcome.covers:
            _resolutions({}, resolve)
            return self
        gated = (self, *others)
        # a run has heard a verdict meanwhile: as it stands now
        if (past := self._past_gates(gated, "merged")) != gated:
            return past[0].merge(*past[1:], resolve=resolve, base=base, actor=actor)
        files = self._merged_files(outcome.conflicts, theirs, root, resolve)
        disputed = {
            key: sides
            for key, sides in outcome.conflicts.items()
            if key != WORKSPACE or files is None
        }
        resolved = _resolutions(disputed, resolve, files)
        left = {key: sides for key, sides in disputed.items() if key not in resolved}
        if left or (files is not None and files.conflicts):
            disputes = {**left, **_told_apart(files.conflicts if files is not None else {}, left)}
            step = (
                f"choose with resolve={{{next(iter(disputes))!r}: text}}, or merge --resolve"
                " PATH=SIDE|@FILE in the shell"
            )
            raise MergeConflict(self.short, disputes, None if left else step)
        news = list(
            {
                other.head: other
                for other, their in zip(others, theirs, strict=True)
                if _is_news(state, their)
            }.values()
        )
        tree = outcome.tree
        if WORKSPACE in resolved:
            chosen = parse_digest(resolved[WORKSPACE].value, "resolve")
        elif files is not None:
            chosen = files.tree
        else:
            chosen = (
                tree.digest
                if tree is not None and (state.story.tree is None or tree.at != state.story.tree.at)
                else None
            )
        body = Merged(
            branches=tuple([Place(other.id, other.seq, other.head) for other in news]),
            covers=outcome.covers,
            resolved=resolved,
            base=Place(base.id, base.seq, base.head) if base else None,
            tree=chosen,
        )
        blobs = files.blobs if files is not None else None
        after = self._append(
            body,
            "be merged into",
            actor=actor,
            instead=_MERGE_INSTEAD,
            merges=tuple([other.head for other in news]),
            blobs=blobs,
        )
        # The branches' states are at hand now; whoever asks later would have to fold them again.
        with suppress(PlaitError):
            object.__setattr__(
                after,
                "_near",
                state_at(self._store, after.id, after.seq, near=state, known=theirs),
            )
        return after

    def _merged_files(
        self,
        conflicts: Mapping[str, Any],
        theirs: Sequence[State],
        base: State | None,
        resolve: Resolve | None,
    ) -> Files | None:
        """The files of all branches, merged by path.

        None: there is nothing to merge, or one tree is chosen whole.
        """
        if WORKSPACE not in conflicts or (not callable(resolve) and WORKSPACE in (resolve or {})):
            return None
        # What a fact in dispute is called by is the fact; a file of the same name is spelled out.
        if callable(resolve):
            chosen: Resolve | None = lambda path, sides: resolve(  # noqa: E731
                f"{WORKSPACE}/{path}" if path in conflicts else path, sides
            )
        else:
            chosen = (
                {key: value for key, value in resolve.items() if key not in conflicts}
                if resolve is not None
                else None
            )
        return merge_files(
            self._store, self._state, theirs, base, names_of([self._state, *theirs]), chosen
        )

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def pause(self, *, reason: str = "", actor: str | None = None) -> Session:
        """Let it rest.

        While a run is open this goes to the inbox, and takes effect where the run next looks there.
        """
        return self._rest(SessionPaused(reason), "be paused", actor)

    def unpause(self, *, reason: str = "", actor: str | None = None) -> Session:
        """Take it up again; while a run is open, through the inbox."""
        return self._rest(SessionResumed(reason), "be unpaused", actor)

    def _rest(self, body: Body, verb: str, actor: str | None) -> Session:
        run = self.reload().open_run
        if run is None or (run == self.run and is_bound(run)):
            return self._append(body, verb, actor=actor)
        return self._post(Draft(body, self._acting(actor)), verb)

    def close(self, *, reason: str = "", actor: str | None = None) -> Session:
        """End it: nothing is appended any more but `archive()`.

        Required verdicts must be there, and no run open.
        """
        check_may(self.short, self.status, "be closed")
        state = self._state
        if state.run or state.calls:
            raise NotSettled(
                self.short,
                "an open run" if state.run else f"{len(state.calls)} open calls",
                "closed",
            )
        self._past_gates((self,), "closed")
        step = "let the run finish, or end it with session.cancel()"
        return self._append(
            SessionClosed(reason, state_digest(state)), "be closed", actor=actor, instead=step
        )

    def archive(self, *, reason: str = "", actor: str | None = None) -> Session:
        return self._append(
            SessionArchived(reason),
            "be archived",
            actor=actor,
            instead="let the run finish, and close it first",
        )

    def flush(self) -> Session:
        """Bring everything that was appended so far to the disk, in all sessions of the store.
        Appends nothing.

        Only sessions that are written `async` need it.
        """
        self._store.flush()
        return self

    # ── what others say to it ────────────────────────────────────────────────────────────────
    #
    # These go to its inbox, so that a run that holds it is not disturbed, and are delivered when
    # one next looks there. Its own
    # log does not change, so each returns the very same value.

    def send(self, *content: Content, actor: str | None = None) -> Session:
        """Say something to it as a user, whoever holds it: it is heard at the next safe point."""
        if not content:
            raise InvalidValue("content", "nothing is said", "pass a text")
        parts, blobs = pack(content, "content")
        return self._post(
            Draft(MessageSaid("user", parts), self._acting(actor)), "take messages", blobs
        )

    def cancel(self, reason: str = "", *, actor: str | None = None) -> Session:
        """Ask the open run to end before its next effect."""
        if self.reload().open_run is None:
            raise NoRun(self.short, "be cancelled")
        asked = self._post(Draft(CancelRequested(reason), self._acting(actor)), "be cancelled")
        host("be cancelled").cancel(self, reason)
        return asked

    def signal(self, name: str, value: Json = None, *, actor: str | None = None) -> Session:
        """Say that something has happened which a run may wait for."""
        return self._post(
            Draft(Signalled(_check_key(name, "name"), value), self._acting(actor)), "take signals"
        )

    def approve(
        self,
        ask: Waiting | Event | str,
        *,
        edited: Json = None,
        note: str = "",
        actor: str | None = None,
    ) -> Session:
        """Allow what is asked for, exactly as it was shown, or with other arguments.

        An ask is named by itself or the start of its id.
        """
        found = ask_now(self._position, ask, "approval")
        if edited is not None and not isinstance(edited, Mapping):
            raise InvalidValue(
                "edited",
                f"{_told(edited)} is not an object",
                "pass the corrected arguments by name",
            )
        return self._reply(
            found,
            ApprovalGranted(_binding(found), dict(edited) if edited is not None else None, note),
            actor,
        )

    def deny(
        self, ask: Waiting | Event | str, reason: str = "", *, actor: str | None = None
    ) -> Session:
        """Refuse what is asked for. Whoever asked is told the reason."""
        found = ask_now(self._position, ask, "approval")
        return self._reply(found, ApprovalDenied(_binding(found), reason), actor)

    def answer(
        self, question: Waiting | Event | str, value: Json, *, actor: str | None = None
    ) -> Session:
        """Answer a question."""
        found = ask_now(self._position, question, "question")
        if found.choices and value not in found.choices:
            raise InvalidValue(
                "value",
                f"{_told(value)} is not among the choices",
                f"answer with one of {', '.join(found.choices)}",
            )
        return self._reply(found, QuestionAnswered(found.event, value), actor)

    def resolve(
        self,
        call: Waiting | Event | str,
        verdict: Literal["happened", "did_not_happen", "compensated"],
        value: Any = None,
        note: str = "",
        *,
        actor: str | None = None,
    ) -> Session:
        """Say what became of an effect whose outcome is not known, named by the ask, its request or
        its call.

        `value` is what it returned, of the type that its tool returns: a number, a text, a
        dataclass, a model.
        """
        _check_choice("verdict", verdict, ("happened", "did_not_happen", "compensated"))
        found = ask_now(self._position, call, "unknown")
        parts, blobs = pack(
            _result_parts(found, value) if verdict == "happened" or value is not None else [],
            "value",
        )
        return self._reply(
            found, ToolResolved(cast("Digest", found.request), verdict, parts, note), actor, blobs
        )

    @property
    def inbox(self) -> list[Event]:
        """What others wrote to it, in the store as it is now, delivered or not."""
        return arrived(self._store, self.id)

    @property
    def waiting(self) -> list[Waiting]:
        """What it waits for at this place, less what was answered in the store as it is now.

        At its tip that includes what the branches of its run wait for.
        """
        own = self._store.log(self.id)
        found = (
            waiting_in(self._store, self.id, own.place + 1, self.seq)
            if self.seq > own.place
            else []
        )
        run = self._state.run if self.seq == own.tip else None
        return (
            [*found, *waiting_in_branches(self._store, run, self.id)] if run is not None else found
        )

    def _post(self, draft: Draft, verb: str, blobs: dict[Digest, bytes] | None = None) -> Session:
        now = self.reload()
        life = now._living()
        for event in arrived(self._store, self.id, now._state.delivered):
            life = live_on(life, event.kind)
        check_may(self.short, life.status, verb)
        post(self.store, self.id, [draft], blobs=blobs, run=self.run if self._is_lent() else None)
        return self

    def _reply(
        self, ask: Waiting, body: Body, actor: str | None, blobs: dict[Digest, bytes] | None = None
    ) -> Session:
        check_may(self.short, self.reload().status, "take answers")
        reply(self._position, ask, body, self._acting(actor), blobs=blobs)
        return self

    # ── what others do for it ────────────────────────────────────────────────────────────────

    def use(self, tool: object, /, **arguments: Json) -> Session:
        """Run a tool as the program's own act; `session.result` is what it returned.

        `reason=` says why, in words, and is recorded with the call, unless the tool has a parameter
        of that name.
        """
        self._refuse_if_busy("use a tool", "use it in a fork: session.fork().use(…)")
        return self._given(host("use a tool").use(self, tool, arguments))

    async def ause(self, tool: object, /, **arguments: Json) -> Session:
        """The same, for whoever has an event loop."""
        self._refuse_if_busy("use a tool", "use it in a fork: session.fork()")
        return self._given(await host("use a tool").ause(self, tool, arguments))

    def ask(self, question: str, choices: Sequence[str] = ()) -> Session:
        """Ask a person, in a workflow; `session.result` is the answer.

        A run that nobody answers at once is parked.
        """
        _check_text("question", question)
        if isinstance(choices, str) or not all(isinstance(each, str) for each in choices):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                "choices", f"{_told(choices)} is not a list of texts", 'pass ["eu", "us"]'
            )
        self._refuse_if_busy("ask a person", _IN_RUN)
        return self._next(host("ask a person").ask(self, question, choices), None)

    def sleep(self, seconds: float) -> Session:
        """Wait so long, in a workflow.

        A long sleep holds no process: the run is parked until its time.
        """
        _check_seconds("seconds", seconds)
        self._refuse_if_busy("sleep", _IN_RUN)
        return self._next(host("sleep").sleep(self, seconds), None)

    def wait_for(self, name: str, timeout_s: float | None = None) -> Session:
        """Wait, in a workflow, until somebody signals this (`session.signal(name, value)`, `plait
        signal`), or so long.

        `session.result` is what came with the signal; None: nobody signalled in time.
        """
        _check_key(name, "name")
        if timeout_s is not None:
            _check_seconds("timeout_s", timeout_s)
        self._refuse_if_busy("wait", _IN_RUN)
        return self._next(host("wait").wait_for(self, name, timeout_s), None)

    def to(self, backend: str, where: str | Path | None = None, **options: Any) -> Session:
        """Place it: where its tools run, on which files. Without a folder it keeps those it has, or
        begins with none.

        What it may do there: `network="on"`, `isolation=` a rung by name, `limits=Limits(…)`,
        `env=`, `egress=` hosts for the `http` tool; what is not recorded: `heavy=` folders,
        `ignore=` names; `in_place=True` works on the folder itself, without a way back;
        `clean=True` is a fresh sandbox with the same files and nothing else.
        """
        check_may(self.short, self.status, "be placed")
        self._refuse_if_busy("be placed", "place a fork: session.fork().to(…)")
        return self._next(
            host("place it").place(
                self, backend, str(where) if where is not None else None, options
            ),
            None,
        )

    def apply(self, *, resolve: Resolve | None = None) -> Session:
        """Publish its files to the folder they came from, merged with what that is now; files in
        dispute raise MergeConflict.
        """
        self._refuse_if_busy("publish its files", "publish those of a fork: session.fork().apply()")
        (past,) = self._past_gates((self,), "applied")
        return past._given(host("publish its files").publish(past, resolve))

    # ── helpers ─────────────────────────────────────────────────────────────────────────────

    def _given(self, back: Position | Value) -> Session:
        """What a host gave back: where the session stands, or the value itself, which knows what
        this one knew and more.
        """
        return (
            back
            if isinstance(back, Session)
            else self._next(back if isinstance(back, Position) else back.position, None)
        )

    def _append(
        self,
        body: Body,
        verb: str,
        *,
        actor: str | None = None,
        origin: str | None = None,
        because: Because = (),
        blobs: dict[Digest, bytes] | None = None,
        merges: tuple[Digest, ...] = (),
        instead: str = "",  # what to do while a run is open; "": it goes to the inbox
        # whether it may be appended all the same while no process holds that run
        unheld: bool = False,
    ) -> Session:
        life = self._living()
        check_may(self.short, life.status, verb)
        draft = Draft(body, self._acting(actor, because, origin))
        if (run := self._open_run_of_others()) is not None and not (
            unheld and not host(verb).is_held(self, run)
        ):
            if instead:
                raise RunOpen(self.short, run, verb, instead)
            return self._post(draft, verb, blobs)
        try:
            spot = writer_of(self.run).append(self._position, [draft], merges=merges, blobs=blobs)
        except StaleHead as error:
            now = self.reload()
            # taken over by a run since: the error says so
            if (run := now._open_run_of_others()) is not None:
                raise StaleHead(error.log, error.expected, error.found, error.seq, run) from None
            raise
        after = self._next(spot, live_on(life, type(body).__name__), self._busy)
        # it is written: whatever goes wrong with a cache must not look as if it were not
        after.keep_state(since=self.seq)
        return after

    def _open_run_of_others(self) -> str | None:
        """The run that is open in this session as it is now, if this value is not one of its own.

        None: nobody is disturbed.
        """
        if self._is_lent():
            return self.reload().open_run or self._position.run
        if self._busy is False or is_bound(self._position.run) or not self._is_busy():
            return None
        now = self.reload()
        return now.open_run or run_of_branch(self._store, self.id)

    def _is_lent(self) -> bool:
        """Whether this is a value of a run that goes on, in the hands of a thread that the run does
        not go by.
        """
        run = self._position.run
        return run is not None and is_bound(run) and not writer_of(run).has_in_hand(self._position)

    def _refuse_if_busy(self, verb: str, instead: str) -> None:
        if (run := self._open_run_of_others()) is not None:
            raise RunOpen(self.short, run, verb, instead)

    def _record(
        self,
        key: str,
        value: Json,
        kind: FactKind,
        review_by: Micros | None,
        actor: str | None,
        because: Because,
        reason: str = "",
    ) -> Session:
        if isinstance(key, str) and is_about_files(key):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                "key", f"{key!r} is what a merge calls the files", "use another name"
            )
        if not isinstance(reason, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue("reason", f"{_told(reason)} is not a text", "say it in words")
        body = FactRecorded(_check_key(key), value, kind, review_by, reason)
        return self._append(body, "take facts", actor=actor, because=because)

    def _acting(
        self, actor: str | None = None, because: Because = (), origin: str | None = None
    ) -> Act:
        """Who acts, from where and because of what: as the caller says, else as the
        writer knows.
        """
        known = writer_of(self._position.run).acting(self._position.store, self._position)
        if known is UNNAMED:  # as outside of runs
            return _act(
                actor or self._principal(), self._causes(because) if because != () else (), origin
            )
        causes = (*self._causes(because), *known.causes)
        act = _act(actor or known.actor or self._principal(), tuple(dict.fromkeys(causes)), origin)
        if origin is None and known.origin and (actor is None or known.origin not in ORDINARY):
            act = act._replace(origin=known.origin)
        return act._replace(call=known.call)

    def _principal(self) -> str:
        """Who acts unless somebody else is named: in a run its workflow, else the session's user,
        else whoever runs the program.
        """
        if is_bound(self.run):
            return writer_of(self.run).principal(self.id)
        if self._user is None:
            object.__setattr__(self, "_user", self._opening.user or "")
        return _human(self._user) if self._user else writer_of(self.run).principal()

    def _causes(self, because: Because, where: str = "because") -> tuple[Digest, ...]:
        """The ids of the events that something rests on; `where` is the argument
        that names them.
        """
        if because == ():
            return ()
        items = (
            because
            if isinstance(because, Sequence) and not isinstance(because, (str, bytes))
            else [because]
        )
        try:
            found = [self._cause(item, where) for item in items]
        except InvalidValue:
            shown = self._last_shown(because)  # a result may be a list
            if shown is None:
                raise
            found = [shown.id]
        for id in found:
            self._store.event(id)  # a cause that is nowhere would be a lie
        return tuple(dict.fromkeys(found))

    def _cause(self, item: object, where: str) -> Digest:
        if isinstance(item, Session):
            return item.head
        if isinstance(item, (Event, Message)):
            return item.id
        if isinstance(item, (Effect, Attachment, Validation, Link, Run)):
            return self._events_about(item, where)[0][0].id
        if isinstance(item, int) and not isinstance(item, bool):
            return Events(self._position)[revision.place_in(self.id, item, self.seq) - 1].id
        if isinstance(item, str):
            if (named := self._named(item)) is not None:
                return named[0][0].id
            if is_digest(item):
                return Digest(item)
        if (shown := self._last_shown(item)) is not None:
            return shown.id
        if (
            isinstance(item, str)
            and item.rpartition("@")[0]
            and (place := self._place_called(item)) is not None
        ):
            return place
        raise InvalidValue(where, f"{_told(item)} stands for no event", _CAUSES)

    def _place_called(self, name: str) -> Digest | None:
        """The id of the event at a place that is written as `SHORT@4`. None: there is none."""
        try:
            return Session.open(name, store=self._store).head
        except PlaitError:
            return None

    def _is_quoted(self, text: str) -> bool:
        """Whether a text is, or repeats, what was said or returned here, if any of that comes from
        outside.
        """
        if self.origins <= ORDINARY:
            return False
        kinds = {kind.__name__ for kind in (MessageSaid, ModelReplied, ToolReturned, ToolResolved)}
        for _, event in along(self._store, self._state.story.path, kinds):
            said = text_of(unpack(getattr(event.body, "parts", ()), self._store.get_blob))
            if min(len(said), len(text)) >= QUOTE_MIN and (said in text or text in said):
                return True
        return False

    def _taken_over(self, act: Act, from_: Fact | Pending | Tree) -> Act:
        """How a successor records what the session knows: with its origin, because of every event
        that says it.
        """
        causes = (from_.at.id, *(ref.id for ref in from_.also), *act.causes)
        origin = self._store.event(from_.at.id).header.origin
        return act._replace(origin=origin, causes=tuple(dict.fromkeys(causes)))

    def _opened(
        self, state: State, title: str | None, budget: Budget | None, *, detached: bool = False
    ) -> SessionOpened:
        left = budget or self._left()  # a change of session is no way to a new budget
        return SessionOpened(
            title=state.title if title is None else title,
            user=state.user,
            project=state.project,
            tags={**state.tags},
            budget=left,
            continues=Place(self.id, self.seq, self.head),
            detached=detached,
            durability=_kept_as(self.durability, self._store),
            # of what a run opens its header says it
            draws=budget is None and left is not None and self.run is None,
        )

    def _left(self) -> Budget | None:
        """Return what a session that follows is granted: in a run, which must say the same when it
        is replayed, as its own log tells.
        """
        return self.left if self.run is not None else self.left_now

    def _not_undone(self, to: int) -> tuple[Digest, ...]:
        """Outcomes on the path that is left, and not on the one gone back to, of effects that
        reached beyond the workspace.
        """
        kept = Known(self.at(to)._state.story.path)
        effects: dict[str | None, str] = {}
        found: list[Digest] = []
        kinds = {
            kind.__name__
            for kind in (ToolRequested, ToolReturned, ToolFailed, ToolUnknown, ToolResolved)
        }
        for _, event in along(self._store, self._state.story.path, kinds):
            body = event.body
            if isinstance(body, ToolRequested):
                effects[event.header.call] = body.effect
            elif (
                effects.get(event.header.call) in ("pure", "workspace")
                or Ref(event.log, event.seq, event.id) in kept
            ):
                continue
            elif not (isinstance(body, ToolResolved) and body.verdict == "did_not_happen"):
                found.append(event.id)
        for _, event in along(self._store, self._state.story.path, {ToolRequested.__name__}):
            open_since = self._state.calls.get(event.header.call or "")
            if (
                open_since == event.seq
                and event.log == self._state.log
                and effects.get(event.header.call) not in ("pure", "workspace")
            ):
                found.append(event.id)  # asked for and never answered: it may have happened
        return tuple(found)

    def _check_others(self, others: Sequence[Session], base: Session | None) -> None:
        if not others:
            raise InvalidValue(
                "merge", "there is nothing to merge", "name at least one other session"
            )
        for other in (*others, *([base] if base is not None else [])):
            if not isinstance(other, Session):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
                raise InvalidValue(
                    "merge", f"a {type(other).__name__} is not a session", "open it first"
                )
            if other.store != self.store:
                raise InvalidValue(
                    "merge",
                    f"{other.short} lives in another store, {other.store}",
                    "merge sessions of one store",
                )
        if len({other.id for other in others}) != len(others):
            raise InvalidValue("merge", "the same session is named twice", "name each branch once")
        if not writer_of(self.run).is_current(self._position):
            now = writer_of(self.run).latest(self._position)
            raise StaleHead(self.id, self.head, now.head, now.seq)

    def _past_gates(self, gated: tuple[Session, ...], verb: str) -> tuple[Session, ...]:
        """These sessions as they stand once every verdict is there that this one needs of them; in
        a run it waits for them.
        """
        held = next(((each, name, why) for each in gated for name, why in each.unmet.items()), None)
        if held is None:
            return gated
        if is_bound(self.run):
            return tuple(
                [
                    cast("Session", each)
                    for each in host("wait for a verdict").past_gates(self, gated, verb)
                ]
            )
        raise GateUnmet(held[0].short, held[1], held[2], verb)


# ── small helpers ────────────────────────────────────────────────────────────────────────────


def _result_parts(ask: Waiting, value: Any) -> list[Any]:
    """What a person says an effect returned, as the tool itself would have it recorded."""
    of_bytes = takes_bytes(ask.returns)
    if isinstance(value, Path) and (of_bytes or ask.returns is None):
        return [value]
    try:
        plain = to_json(value) if ask.returns is not None else None
        why = misfit(plain, ask.returns)
        if (
            why is None
            and ask.returns is not None
            and isinstance(value, (bytes, bytearray, memoryview))
            and not of_bytes
        ):
            why = "it is bytes"  # as JSON it would pass for a text
        if why is None and of_bytes and isinstance(value, str):
            value = bytes_of(value)
        parts = contents(value)
    except (TypeError, ValueError) as error:
        raise InvalidValue("value", str(error), "pass plain data") from error
    if why is not None:
        shape = msgspec.json.encode(ask.returns).decode()
        raise InvalidValue(
            "value",
            f"that is not what the call returns: {why}",
            f"pass a value that has this JSON schema: {shape}",
        )
    return parts


def _binding(ask: Waiting) -> Digest:
    assert ask.binding is not None  # an approval has one
    return ask.binding


def _act(actor: str, causes: tuple[Digest | int, ...] = (), origin: str | None = None) -> Act:
    """`origin`: None is the one that goes with who acts."""
    known = (
        check_origin(origin)
        if origin is not None
        else _ORIGINS.get(actor.partition(":")[0], "program")
    )
    return Act(actor, known, causes=causes)


def _kept_as(durability: Durability | None, store: Store) -> Literal["full", "async"] | None:
    """What a session records of how it is written: in memory there is nothing to record."""
    if store.durability == "memory":
        return None
    return "async" if (durability or store.durability) == "async" else "full"


def _human(user: str) -> str:
    return f"human:{_word(user)}"


def _word(name: str) -> str:
    """A name as a principal can carry it: without spaces and invisible characters."""
    return (
        name
        if name.isprintable() and not any(c.isspace() for c in name) and len(name) <= 200
        else quote(name, safe="")[:200]
    )


def _key_of(what: str, text: str) -> str:
    """A key that follows from the text, so that the same work noted twice is one, and different
    work never collides.
    """
    return f"{what}-{digest(b'plait/key/1', _check_text('text', text).encode('utf-8', 'surrogatepass'))[:12]}"  # noqa: E501


def _check_key(key: str, where: str = "key", size: int = 200) -> str:
    if not isinstance(key, str) or not key.strip() or len(key) > size:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            where, f"{_told(key)} is not a name", f"pass a text of 1 to {size} characters"
        )
    return key


def _check_text(where: str, text: str) -> str:
    if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(where, f"{_told(text)} says nothing", "pass a text")
    return text


def _told(value: object) -> str:
    """A text as it is, anything else by its type: it may be too deep for a repr, or refuse to give
    one.
    """
    return f"{value[:200]!r}" if type(value) is str else f"a {type(value).__name__}"


def _check_seconds(where: str, seconds: float) -> None:
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))  # pyright: ignore[reportUnnecessaryIsInstance]
        or not 0 <= seconds < 10**10
    ):
        raise InvalidValue(where, f"{_told(seconds)} is not a time", "pass seconds, from 0")


def _check_choice(where: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidValue(where, f"{value!r} is not one", f"use one of {', '.join(choices)}")


def _check_name(where: str, text: str) -> None:
    """A title, a user or a project: it stands in rows and lists, and goes along with every fork."""
    if not isinstance(text, str) or len(text) > NAME_MAX:  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue(
            where,
            f"it is not a text of at most {NAME_MAX} characters",
            "shorten it, and say the rest",
        )
    check_text(text, where)


def _check_budget(budget: Budget | None) -> None:
    if budget is None:
        return
    if not isinstance(budget, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue(
            "budget", f"a {type(budget).__name__} is not a budget", "pass Budget(tokens_max=…)"
        )
    for name in budget.__struct_fields__:
        limit = getattr(budget, name)
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit < inf
        ):
            raise InvalidValue(
                name, f"{limit!r} is not a limit", "pass a number from 0, or None for no limit"
            )


def _check_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    if not isinstance(tags or {}, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue(
            "tags", f"a {type(tags).__name__} is not a mapping", 'pass {"team": "web"}'
        )
    return dict(tags or {})


def _told_apart(
    files: Mapping[str, dict[str, Any]], facts: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Files in dispute by path; one that is called like a fact in dispute is spelled out."""
    return {
        f"{WORKSPACE}/{path}" if path in facts else path: sides for path, sides in files.items()
    }


def _resolutions(
    conflicts: dict[str, dict[str, Any]], resolve: Resolve | None, files: Files | None = None
) -> dict[str, Resolution]:
    """What was chosen, for what is in dispute and nothing else."""
    settled = files.resolved if files is not None else {}
    if resolve is None:
        return {}
    if callable(resolve):
        chosen = {key: resolve(key, sides) for key, sides in conflicts.items()}
    else:
        of_files = [key for key in resolve if resolved_as(path_of(key)) in settled]
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


def _is_news(ours: State, theirs: State) -> bool:
    """Whether a branch adds anything; a parent that adds nothing is not named."""
    outcome = combine(ours, [theirs])
    return bool(outcome.added or outcome.covers)
