"""The checks of a session: required verdicts, given verdicts, and gates that are not met."""

from __future__ import annotations

from plait.errors import InvalidValue, NoEndedRun
from plait.event import Event, Json
from plait.event.kinds import GateRequired, ValidationRecorded
from plait.session.accessors.view import SessionView
from plait.session.acting import Because, acting_in, causes_of
from plait.session.appending import append_to, run_of_others
from plait.session.arguments import check_key
from plait.session.events import path_events
from plait.session.gates import is_counted, judge_name
from plait.session.life import RUN_STATUS
from plait.session.ports import BINDINGS, is_bound, note_read, writer_of
from plait.session.state import Gate
from plait.session.value import S
from plait.session.verdicts import unmet_gates
from plait.session.views import Validation

FEEDBACK = "feedback"  # the name of a person's verdict on a run


class SessionChecks(SessionView[S]):
    """Verdicts on a session, and the gates that require them."""

    __slots__ = ()

    @property
    def gates(self) -> dict[str, Gate]:
        """The verdicts that are required, by name."""
        return {**self._core.state.gates}

    @property
    def unmet(self) -> dict[str, str]:
        """The gates that would hold a merge or a close right now, and why."""
        return unmet_gates(self._session)

    @property
    def verdicts(self) -> list[Validation]:
        """Every verdict on its path and those of merged branches."""
        core = self._core
        note_read(core.position)
        gates = core.state.gates
        found = list[Validation]()
        for event, body in core.path_bodies(ValidationRecorded):
            counts = body.name not in gates or is_counted(gates[body.name].by, event)
            known = (body.name, body.passed, body.evidence, body.detail, body.tree)
            found.append(Validation(*known, event.log, event.seq, event.actor, counts))
        return found

    def require(self, name: str, *, by: object = "", actor: str | None = None) -> S:
        """Require a verdict of this name, on the place and tree there are then, before the session
        is merged or closed.

        `by` names its judge: a principal (`"human:ana"`), or a workflow, itself or by its class,
        path or name. No other verdict counts.
        """
        session = self._session
        judge = judge_name(
            by,
            writer_of(session.run).path_of(session.id, by) if not isinstance(by, str) else None,
        )
        before = self.gates.get(name)
        if before is not None and before.by and judge not in ("", before.by):
            why = (
                f"gate {name!r} asks for the verdict of {before.by}, and is not handed on to"
                f" {judge}"
            )
            raise InvalidValue("by", why, "require a verdict of another name")
        judge = judge or (before.by if before is not None else "")
        body = GateRequired(check_key(name, "name"), judge)
        return append_to(session, body, "take gates", actor=actor)

    def record(
        self,
        name: str,
        passed: bool,
        *,
        evidence: Because = (),
        detail: Json = None,
        actor: str | None = None,
        because: Because = (),
    ) -> S:
        """Record a verdict on this place, with the events that show it.

        Where a gate of that name requires another judge, it is recorded and does not count: `unmet`
        says so.
        """
        if not isinstance(passed, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue("passed", f"{passed!r} is neither True nor False", "say which")
        session = self._session
        tree = self._core.state.story.tree
        shown = causes_of(session, evidence, "evidence")
        # it comes to the log later, and is about this place
        about = session.seq if run_of_others(session) is not None else None
        body = ValidationRecorded(
            check_key(name, "name"),
            passed,
            shown,
            detail,
            tree.digest if tree else None,
            by=writer_of(session.run).judges(session.id, session.store),
            at=about,
        )
        causes = (*shown, *causes_of(session, because))
        rules = BINDINGS.memory_rules if causes else None
        more = (
            rules.decisions_at_verdict(session, body, acting_in(session, actor, causes))
            if rules is not None
            else ()
        )
        return append_to(session, body, "take verdicts", actor=actor, because=causes, more=more)

    def feedback(self, good: bool, text: str = "", *, actor: str | None = None) -> S:
        """Record a person's verdict on the run that ended last on its path, named `feedback`.

        Its cause and evidence is the event that ended the run. Code of a run, agents and services
        give no feedback: their verdicts are recorded with `record`.
        """
        if not isinstance(good, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue("good", f"{good!r} is neither True nor False", "say which")
        session = self._session
        person = acting_in(session, actor).actor
        if is_bound(session.run) or not person.startswith("human:"):
            why = "code of a run is" if is_bound(session.run) else f"{person} is"
            raise InvalidValue(
                "actor",
                f"feedback is given by a person, and {why} none",
                'pass actor="human:NAME" outside of runs, or use checks.record',
            )
        ended = self._last_run_end()
        if ended is None:
            raise NoEndedRun(session.short, "take feedback")
        return self.record(FEEDBACK, good, evidence=ended, detail=text or None, actor=actor)

    def _last_run_end(self) -> Event | None:
        core = self._core
        ends = path_events(core.store, core.state.story.path, RUN_STATUS.keys(), reverse=True)
        return next((event for span, event in ends if not span.via), None)
