"""The session: an immutable, durable, branchable value.

A `Session` is a place in a log and nothing else: every operation appends and returns the next
value, and the old one keeps answering as before. Its readers are in `reading.py`, the
verbs that act in `acts.py`; here are the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Literal, Never

from plait.errors import InvalidValue, NotSettled, UnknownKey
from plait.errors.spelling import VALUES_STEP, answer_other_names, check_argument_names
from plait.event import Body, Event, Json
from plait.event.kinds import (
    Budget,
    Data,
    EvidenceAttached,
    FactRecorded,
    FactRetracted,
    MessageSaid,
    PendingAdded,
    PendingSettled,
    ScratchSet,
    SessionArchived,
    SessionClosed,
    SessionOpened,
    SessionPaused,
    SessionResumed,
)
from plait.ids import Micros
from plait.session.acting import Because, act_of, acting_in
from plait.session.acts import Acting
from plait.session.appending import (
    append_to,
    post_to_inbox,
    wait_for_gates,
)
from plait.session.arguments import (
    check_budget,
    check_choice,
    check_key,
    check_name,
    check_tags,
    check_text,
    key_from_text,
    principal_of,
    principal_word,
    value_text,
)
from plait.session.branching import (
    detach_from,
    fork_from,
    open_successor,
    recorded_durability,
    rewind_to,
)
from plait.session.content import Content, file, image, pack
from plait.session.core import Core
from plait.session.finding import address_of
from plait.session.life import Life
from plait.session.merge import is_about_files
from plait.session.merging import Resolve, merge_into
from plait.session.moves import check_may
from plait.session.pauses import has_unheard_word
from plait.session.ports import UNNAMED, Draft, Position, is_bound, writer_of
from plait.session.reading import Reading
from plait.session.state import FactKind, PendingKind, state_digest
from plait.session.turn_rows import queue_condition
from plait.session.value import core_of, open_run_of, value_with
from plait.session.views import Facts
from plait.store import Store, check_durability


class Session(Acting):
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
        **unknown: Never,
    ) -> None:
        """Open a new session and say something in it.

        It is on disk when this returns, unless it is to be written `async`.
        """
        if unknown:
            check_argument_names(
                "a Session", unknown, Session.__init__.__kwdefaults__ or (), _OTHER_ARGUMENTS
            )
        writer, address = writer_of(None), address_of(store)
        check_durability(durability)
        for name, text in (("title", title), ("user", user or ""), ("project", project or "")):
            check_name(name, text)
        who = actor or (principal_of(user) if user else writer.principal())
        check_budget(budget)
        opened = SessionOpened(
            title=title,
            user=user,
            project=project,
            tags=check_tags(tags),
            budget=budget,
            durability=recorded_durability(durability, writer.store(address)),
        )
        parts, blobs = pack(content, "content")
        known = writer.acting(address)
        # code of a run may open a session in the name of a person; its words are the program's
        origin = "program" if known is not UNNAMED else None
        drafts = [Draft(opened, act_of(who, origin=origin))]
        if parts:
            drafts.append(Draft(MessageSaid("user", parts), act_of(who, known.causes, origin)))
        position = writer.begin(address, drafts, blobs=blobs)
        core = Core(position, life=Life(), user=user or "", busy=False)
        object.__setattr__(self, "_core", core)

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

        `origin` says where its content comes from, as in "web", if not from the actor.
        """
        if not content:
            raise InvalidValue("content", "nothing is said", "pass a text")
        check_choice("role", role, ("user", "assistant", "system"))
        parts, blobs = pack(content, "content")
        if actor is None and role != "user":
            actor = (
                f"agent:{principal_word(name or 'assistant')}"
                if role == "assistant"
                else "service:program"
            )
        body = MessageSaid(role, parts, name)
        # Words in a role of the workflow's own are for the workflow to say.
        step = (
            ""
            if role == "user" and not name
            else "say it as a user, without a name: session.inbox.send(…)"
        )
        verb = "take messages" if not step else f"take messages as {name or role}"
        return append_to(
            self, body, verb, actor=actor, origin=origin, because=because, blobs=blobs, instead=step
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
            key_from_text("finding", text) if key is None else key,
            text,
            "finding",
            None,
            actor,
            because,
        )

    def retract(
        self, key: str, *, reason: str = "", actor: str | None = None, because: Because = ()
    ) -> Session:
        """Take a fact, decision or finding back."""
        facts = Facts(self._core.state.story.facts)
        if key not in facts:
            raise UnknownKey(self.short, "fact", key, tuple(facts))
        return append_to(
            self, FactRetracted(key, reason), "take facts", actor=actor, because=because
        )

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
        check_choice("kind", kind, ("step", "question", "hypothesis"))
        name = key_from_text("todo", what) if key is None else check_key(key)
        return append_to(
            self,
            PendingAdded(name, check_text("what", what), kind),
            "take pending work",
            actor=actor,
            because=because,
        )

    def settle(
        self, key: str, outcome: str = "", *, actor: str | None = None, because: Because = ()
    ) -> Session:
        """Settle pending work, named by its key or by its text."""
        pending = {
            each.key: each for each in self._core.state.story.pending.values() if not each.settled
        }
        found = (
            key
            if key in pending
            else next((each.key for each in pending.values() if each.what == key), None)
        )
        if found is None:
            raise UnknownKey(self.short, "pending work", key, tuple(pending))
        return append_to(
            self, PendingSettled(found, outcome), "take pending work", actor=actor, because=because
        )

    def scratch(self, key: str, value: Json, *, actor: str | None = None) -> Session:
        """Set working state: forked and rewound, never in a prompt, not merged, dropped at close.

        None clears it.
        """
        return append_to(self, ScratchSet(check_key(key), value), "take scratch", actor=actor)

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

        `origin` says where it comes from, if not from the actor.
        """
        check_key(name, "name")
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
        return append_to(
            self, body, "take evidence", actor=actor, origin=origin, because=because, blobs=blobs
        )

    # ── branching ────────────────────────────────────────────────────────────────────────────

    def fork(
        self,
        label: str | None = None,
        *,
        at: int | None = None,
        budget: Budget | None = None,
        actor: str | None = None,
    ) -> Session:
        """Fork a branch from here, or from an earlier place: it takes the story along and leaves
        open work behind.
        """
        return fork_from(self, label, at=at, budget=budget, actor=actor)

    def detach(
        self, *, title: str | None = None, budget: Budget | None = None, actor: str | None = None
    ) -> Session:
        """Open a new root with the same story and no lineage: its own life, its own bill."""
        return detach_from(self, title, budget, actor)

    def successor(
        self,
        brief: Content | None = None,
        *,
        title: str | None = None,
        budget: Budget | None = None,
        actor: str | None = None,
    ) -> Session:
        """Open a new session with an empty transcript that carries facts, decisions, pending work
        and files, and links back.
        """
        return open_successor(self, brief, title=title, budget=budget, actor=actor)

    def rewind(self, to: int | Event, *, reason: str = "", actor: str | None = None) -> Session:
        """Go on from the story at an earlier place.

        The whole past stays on record, and spent amounts stay spent.
        """
        return rewind_to(self, to, reason, actor)

    def merge(
        self,
        *others: Session,
        resolve: Resolve | None = None,
        base: Session | None = None,
        actor: str | None = None,
    ) -> Session:
        """Take the results of other branches in: one event with several parents.

        Events that are in here already add nothing.
        """
        return merge_into(self, others, resolve, base, actor)

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def pause(self, *, reason: str = "", actor: str | None = None) -> Session:
        """Let it rest: it takes no turns, and its run goes no further than the effect at hand.

        `unpause()` or `resume` take it up again. While a run is open this goes to the inbox, and
        the run hears it before its next effect.
        """
        return self._rest(SessionPaused(reason), "be paused", actor)

    def unpause(self, *, reason: str = "", actor: str | None = None) -> Session:
        """Lift the pause; while a run is open, through the inbox. A run that parked is taken up by
        the next turn, or by `resume`.
        """
        return self._rest(SessionResumed(reason), "be unpaused", actor)

    def _rest(self, body: Body, verb: str, actor: str | None) -> Session:
        now = self.reload()
        run = open_run_of(now)
        is_own = run is not None and run == self.run and is_bound(run)
        # a word in the inbox that no run heard is the last one: the next word stands after it
        if is_own or (run is None and not has_unheard_word(core_of(now))):
            return append_to(self, body, verb, actor=actor)
        return post_to_inbox(self, Draft(body, acting_in(self, actor)), verb)

    def close(self, *, reason: str = "", actor: str | None = None) -> Session:
        """End it: nothing is appended any more but `archive()`.

        Required verdicts must be there, no run open, and no message of a turn without an answer.
        """
        check_may(self._core, "be closed")
        state = self._core.state
        open_parts = {
            "an open run": state.run,
            f"{len(state.calls)} open calls": state.calls,
            "a workflow at work on it": writer_of(self.run).has_calls(self.id),
        }
        for what, is_open in open_parts.items():
            if is_open:
                raise NotSettled(self.short, what, "closed")
        empty_queue = queue_condition(self._core.store, self.id, "closed")
        if not is_bound(self.run):  # the queue is not recorded: a replay may find another
            empty_queue.check()
        wait_for_gates(self, (self,), "closed")
        return append_to(
            self,
            SessionClosed(reason, state_digest(state)),
            "be closed",
            actor=actor,
            instead="let the run finish, or end it with session.inbox.cancel()",
            condition=empty_queue,
        )

    def archive(self, *, reason: str = "", actor: str | None = None) -> Session:
        return append_to(
            self,
            SessionArchived(reason),
            "be archived",
            actor=actor,
            instead="let the run finish, and close it first",
        )

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
            raise InvalidValue("reason", f"{value_text(reason)} is not a text", "say it in words")
        body = FactRecorded(check_key(key), value, kind, review_by, reason)
        return append_to(self, body, "take facts", actor=actor, because=because)


# Arguments of a session as other libraries call them, each with ours.
_OTHER_ARGUMENTS = {
    **dict.fromkeys(
        ("thread_id", "session_id", "conversation_id", "id", "config"),
        "Session.open(ID) to go on with a session, and keep session.id of a new one",
    ),
    **dict.fromkeys(
        ("messages", "input", "message", "prompt", "message_history"),
        'the first message without a name: Session("Hi")',
    ),
    "name": "title=",
    **dict.fromkeys(("metadata", "labels"), "tags="),
    **dict.fromkeys(("checkpointer", "db_path", "path", "url"), "store="),
    "user_id": "user=",
    **dict.fromkeys(("context", "deps", "state"), VALUES_STEP),
    **dict.fromkeys(("hooks", "callbacks"), "on_event= where a workflow is called with it"),
    "model": "model= where the agent is made",
    **dict.fromkeys(("usage_limits", "max_tokens"), "budget=Budget(…)"),
}
_TEXT = "session.text is the last message; session.result a typed answer, or that of the last tool"
answer_other_names(
    Session,
    {
        "state": "it is session.messages, session.facts and session.scratch",
        "values": "it is session.messages, session.facts and session.scratch",
        "output": _TEXT,
        "final_output": _TEXT,
        "content": _TEXT,
        "history": "session.messages has the messages, session.events all that happened",
        "thread_id": "session.id is its id, session.short the one to type",
        "session_id": "session.id is its id, session.short the one to type",
        "invoke": "call the workflow with it: session = agent(session)",
        "append": "session = session.say(…) adds a message",
        "add_message": "session = session.say(…) adds a message",
    },
)
# a wrong call is told of by the name that users know
for _owner in (Acting, Reading):
    for _method in vars(_owner).values():
        if isinstance(_method, FunctionType):
            _method.__qualname__ = f"{Session.__name__}.{_method.__name__}"


def session_at(position: Position) -> Session:
    """Return the session at a position without reading or checking anything."""
    return value_with(Session, Core(position))
