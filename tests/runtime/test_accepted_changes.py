"""Runs that a changed program takes up: the record up to the first difference, live from there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from plait import (
    Agent,
    Happened,
    Parallel,
    Parked,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    open_store,
    resume,
    tool,
    whatif,
)
from plait.errors import InvalidValue, NothingToAccept, NothingToResume, ReplayDiverged, ToolFailed
from plait.event import kinds as k
from plait.policy import Ask, Policy
from plait.program import load
from plait.runs.changes import effects_left, preview_change
from plait.runs.check import check_runs
from plait.session import verify
from plait.session.inbox import all_waiting
from plait.session.ports import store_at
from tests.support import RAN, assert_replays, bodies, kinds, parked_session


@pytest.fixture(autouse=True, params=["disk", "memory"])
def home(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    address = str(tmp_path / "store") if request.param == "disk" else f"memory:{tmp_path.name}"
    monkeypatch.setenv("PLAIT_STORE", address)
    yield address
    open_store(address).close()


@tool
def mail(to: str) -> str:
    """Send a letter: at most once."""
    RAN.append(f"mail {to}")
    return f"sent to {to}"


@tool(effect="idempotent")
def put(n: int, idempotency_key: str) -> str:
    """Put a number there."""
    RAN.append((n, idempotency_key))
    if ("lost", n) in RAN and RAN.count((n, idempotency_key)) == 1:
        raise KeyboardInterrupt  # it happened, and its outcome is not on record
    return f"put {n}"


@tool(effect="pure")
def look() -> str:
    """Look."""
    RAN.append("look")
    return "nothing"


class Letters(Workflow):
    """Writes letters, and asks in the end."""

    def __init__(self, word: str = "a", to: tuple[str, ...] = ("ann", "bob")) -> None:
        self.word, self.names = word, to

    def forward(self, session: Session) -> Session:
        session = session.fact("word", self.word)
        for name in self.names:
            session = session.use(mail, to=name)
        session = session.ask("Go on?", ("yes", "no"))
        return session.decide("end", session.result)


def _check(session: Session, program: Workflow) -> None:
    """The store is sound, nothing waits, and a replay comes to the same head."""
    assert_replays(session, program)
    assert list(verify(store_at(session.store), state=True)) == []
    assert not all_waiting(store_at(session.store)) and session.status != "waiting"


def test_a_waiting_run_goes_on_with_the_changed_program() -> None:
    session = parked_session(lambda: Letters()(Session("Write.")))
    changed = Letters("b", ("ann", "eve"))
    session.inbox.answer(session.inbox.waiting[0], "yes", actor="human:ann")
    session = resume(session, changed, accept="other letters")
    # ann has her letter, and the same question its answer
    assert RAN == ["mail ann", "mail bob", "mail eve"]
    assert session.facts["word"] == "b" and session.facts["end"] == "yes"
    (accepted,) = bodies(session, k.ChangeAccepted)
    assert (accepted.reason, accepted.at, accepted.recorded, accepted.now) == (
        "other letters",
        5,
        "FactRecorded value='a'",
        "FactRecorded value='b'",
    )
    taken = [body for body in bodies(session, k.ToolRequested) if body.carries is not None]
    assert [body.arguments for body in taken] == [{"to": "ann"}]
    # bob's was not asked for again, and is not undone
    ((request, outcome),) = effects_left(session)
    assert isinstance(request.body, k.ToolRequested) and request.body.arguments == {"to": "bob"}
    assert outcome is not None and outcome.kind == "ToolReturned"
    _check(session, changed)


def test_without_accept_the_error_shows_both_sides_and_the_command() -> None:
    session = parked_session(lambda: Letters()(Session("Write.")))
    with pytest.raises(ReplayDiverged) as diverged:
        resume(session, Letters("b"))
    assert "FactRecorded value='a'" in str(diverged.value)
    assert "FactRecorded value='b'" in str(diverged.value)
    assert f"plait resume {session.short} --accept" in str(diverged.value)


def test_an_accept_without_a_difference_writes_nothing() -> None:
    session = parked_session(lambda: Letters()(Session("Write.")))
    with pytest.raises(NothingToAccept):
        resume(session, Letters(), accept="nothing")
    assert session.reload() == session
    session.inbox.answer(session.inbox.waiting[0], "yes", actor="human:ann")
    ended = resume(session, Letters())
    with pytest.raises(NothingToAccept):
        resume(ended, Letters("b"), accept="too late")
    assert ended.reload() == ended


@pytest.mark.parametrize("reason", ["", "  ", 7])
def test_a_reason_is_a_text(reason: Any) -> None:
    session = parked_session(lambda: Letters()(Session("Write.")))
    with pytest.raises(InvalidValue):
        resume(session, Letters("b"), accept=reason)
    with pytest.raises(NothingToResume):
        preview_change(Session("New."))
    assert session.reload() == session


def test_a_preview_writes_nothing() -> None:
    session = parked_session(lambda: Letters()(Session("Write.")))
    (difference,) = preview_change(session, Letters("b")).differences
    assert (difference.at, difference.found["value"]) == (5, "b")
    assert session.reload() == session


def test_a_failed_run_is_accepted_and_its_failure_tried_again() -> None:
    class Fails(Letters):
        def forward(self, session: Session) -> Session:
            session = session.fact("word", self.word).use(mail, to="ann")
            if self.word == "a":
                raise ValueError("a is wrong")
            return session

    session = Session("Write.")
    with pytest.raises(ValueError):
        Fails()(session)
    session = session.reload().say("Use b.")  # written directly: no run is open
    session = resume(session, Fails("b"), accept="b it is")
    assert RAN == ["mail ann"] and session.facts["word"] == "b"
    assert [message.text for message in session.messages] == ["Write.", "Use b."]
    _check(session, Fails("b"))


def test_messages_that_were_delivered_are_kept() -> None:
    class Waits(Letters):
        def forward(self, session: Session) -> Session:
            session = session.fact("word", self.word).wait_for("go").use(look)
            return session.ask("Go on?")

    session = parked_session(lambda: Waits()(Session("Write.")))
    session.inbox.send("It is urgent.", actor="human:bo").inbox.signal("go", 3)
    session = parked_session(lambda: resume(session, Waits()))
    session = parked_session(lambda: resume(session, Waits("b"), accept="b"))
    assert session.text == "It is urgent." and RAN == ["look", "look"]
    (ask,) = session.inbox.waiting
    session.inbox.answer(ask, "yes", actor="human:ann")
    session = resume(session, Waits("b"))
    assert [message.text for message in session.messages] == ["Write.", "It is urgent."]
    _check(session, Waits("b"))


def test_a_call_that_may_have_happened_keeps_its_key() -> None:
    class Puts(Letters):
        def forward(self, session: Session) -> Session:
            return session.fact("word", self.word).use(put, n=1)

    RAN.append(("lost", 1))
    session = Session("Put.")
    with pytest.raises(KeyboardInterrupt):
        Puts()(session)
    session = resume(session, Puts("b"), accept="b")
    (_, first), (_, second) = [each for each in RAN if each[0] == 1]
    assert first == second and session.result == "put 1"
    _check(session, Puts("b"))


def test_a_letter_that_may_have_been_sent_is_reviewed() -> None:
    @tool
    def post(to: str) -> str:
        """Send it."""
        RAN.append(f"post {to}")
        raise KeyboardInterrupt

    class Posts(Letters):
        def forward(self, session: Session) -> Session:
            return session.fact("word", self.word).use(post, to="ann")

    session = Session("Post.")
    with pytest.raises(KeyboardInterrupt):
        Posts()(session)
    session = parked_session(lambda: resume(session, Posts("b"), accept="b"))
    (doubt,) = session.inbox.waiting
    assert doubt.kind == "unknown" and RAN == ["post ann"]
    session.inbox.resolve(doubt, "happened", "sent", actor="human:ann")
    session = resume(session, Posts("b"))
    assert session.result == "sent" and RAN == ["post ann"]
    _check(session, Posts("b"))


class Asked(Letters):
    policy = Policy(Ask("mail"))

    def forward(self, session: Session) -> Session:
        return session.fact("word", self.word).use(mail, to=self.names[0])


def test_consent_to_a_call_that_is_unchanged_holds() -> None:
    session = parked_session(lambda: Asked()(Session("Write.")))
    session.inbox.approve(session.inbox.waiting[0], actor="human:ann")
    session = resume(session, Asked("b"), accept="b")
    assert RAN == ["mail ann"]
    granted = session.events.where("ApprovalGranted")[-1]
    assert granted.actor == "human:ann" and granted.header.run == session.runs[-1].id
    _check(session, Asked("b"))


def test_consent_to_another_call_does_not() -> None:
    session = parked_session(lambda: Asked()(Session("Write.")))
    session.inbox.approve(session.inbox.waiting[0], actor="human:ann")
    changed = Asked("b", ("eve",))
    session = parked_session(lambda: resume(session, changed, accept="b"))
    (ask,) = session.inbox.waiting
    assert ask.arguments == {"to": "eve"} and RAN == []
    session.inbox.deny(ask, "no", actor="human:ann")
    with pytest.raises(ToolFailed):
        resume(session, changed)


class AskedFor(Asked):
    """Sends with a tool of this version."""

    def __init__(self, word: str, version: str) -> None:
        super().__init__(word)
        self.sender = tool(name="mail", version=version)(mail.function)

    def forward(self, session: Session) -> Session:
        return session.fact("word", self.word).use(self.sender, to="ann")


@pytest.mark.parametrize("is_approved", [True, False])
def test_an_ask_after_a_change_of_tool_and_program_tells_why(is_approved: bool) -> None:
    session = parked_session(lambda: AskedFor("a", "1")(Session("Write.")))
    if is_approved:
        session.inbox.approve(session.inbox.waiting[0], actor="human:ann")
    changed = AskedFor("b", "2")
    session = parked_session(lambda: resume(session, changed, accept="b"))
    (ask,) = session.inbox.waiting
    shown: Any = ask.shown
    assert shown["again"] == "mail has changed since it was asked for" and RAN == []
    session = resume(session.inbox.approve(ask, actor="human:ann"), changed)
    assert RAN == ["mail ann"]
    _check(session, changed)


def test_an_open_ask_of_the_abandoned_steps_is_over() -> None:
    session = parked_session(lambda: Asked()(Session("Write.")))
    (old,) = session.inbox.waiting
    session = parked_session(lambda: resume(session, Asked("b"), accept="b"))
    (new,) = session.inbox.waiting
    shown: Any = new.shown
    assert "again" not in shown  # it is the same ask
    assert new.event != old.event and [
        ask.event for ask in all_waiting(store_at(session.store))
    ] == [new.event]


# ── agents ───────────────────────────────────────────────────────────────────────────────────


def _agent(instruction: str) -> Agent:
    script = [ToolCall("look"), ToolCall("mail", to="ann"), "Done."]
    return Agent(
        instruction, model=ScriptedModel(script), tools=[look, mail], policy=Policy(Ask("mail"))
    )


def test_a_reworded_prompt() -> None:
    session = parked_session(lambda: _agent("Write.")(Session("Write to ann.")))
    session.inbox.approve(session.inbox.waiting[0], actor="human:ann")
    (difference,) = preview_change(session, _agent("Write well.")).differences
    assert difference.found["instruction"] == "Write well."
    session = resume(session, _agent("Write well."), accept="prompt reworded")
    assert session.text == "Done." and RAN == ["look", "look", "mail ann"]
    _check(session, _agent("Write well."))


# ── branches ─────────────────────────────────────────────────────────────────────────────────


class Branched(Workflow):
    """Works in two branches; the word of one may change."""

    def __init__(self, word: str = "a") -> None:
        self.both = Parallel(one=Letter("ann", "a"), other=Letter("bob", word))

    def forward(self, session: Session) -> Session:
        session = self.both(session)
        session = session.use(mail, to="all")
        return session.ask("Go on?")


class Letter(Workflow):
    def __init__(self, to: str, word: str) -> None:
        self.reader, self.word = to, word

    def forward(self, session: Session) -> Session:
        session = session.use(mail, to=self.reader)
        return session.fact(f"word to {self.reader}", self.word).use(look)


def test_a_difference_in_a_branch_that_was_merged() -> None:
    session = parked_session(lambda: Branched()(Session("Write.")))
    sent = sorted(RAN)
    session = parked_session(lambda: resume(session, Branched("b"), accept="b to bob"))
    # only what bob's branch does after its difference, and the root after its merge, is live
    assert sorted(RAN) == sorted([*sent, "look"])
    assert session.facts["word to bob"] == "b" and session.facts["word to ann"] == "a"
    session.inbox.answer(session.inbox.waiting[0], "yes", actor="human:ann")
    _check(resume(session, Branched("b")), Branched("b"))


def test_a_branch_that_is_not_forked_any_more_counts_as_done() -> None:
    class Forks(Workflow):
        def __init__(self, *words: str) -> None:
            self.words = words

        def forward(self, session: Session) -> Session:
            for word in self.words:
                session = session.fact("word", word)
            branch = session.fork("side").use(mail, to="ann").ask("Go on?")
            return session.merge(branch)

    session = parked_session(lambda: Forks("a")(Session("Write.")))
    root = Session.open(session.id)
    assert root.facts["word"] == "a"
    changed = Forks("a", "b")
    (ask,) = all_waiting(store_at(root.store))
    Session.open(ask.log).inbox.answer(ask, "yes", actor="human:ann")
    session = resume(root, changed, accept="b, too")
    assert RAN == ["mail ann"] and session.facts["word"] == "b"
    _check(session, changed)


def test_threads_of_the_program() -> None:
    class Threads(Workflow):
        def __init__(self, word: str = "a") -> None:
            self.word = word

        def forward(self, session: Session) -> Session:
            def work(name: str) -> Session:
                branch = session.fork(name).use(mail, to=name)
                return branch.fact(name, self.word).ask(f"Is {name} right?")

            with ThreadPoolExecutor(2) as pool:
                works = [pool.submit(work, name) for name in ("ann", "bob")]
            return session.merge(*[each.result() for each in works])

    session = parked_session(lambda: Threads()(Session("Write.")))
    root = Session.open(session.id)
    with pytest.raises(Parked):
        resume(root, Threads("b"), accept="b")
    waiting = all_waiting(store_at(root.store))
    assert sorted(RAN) == ["mail ann", "mail bob"] and len(waiting) == 2
    for ask in waiting:
        Session.open(ask.log).inbox.answer(ask, "yes", actor="human:ann")
    session = resume(root, Threads("b"))
    assert session.facts["ann"] == session.facts["bob"] == "b"
    _check(session, Threads("b"))


def test_a_difference_that_a_what_if_took_over_cannot_be_accepted() -> None:
    session = parked_session(lambda: Letters()(Session("Write.")))
    at = session.events.where("ToolReturned")[0].seq
    branch = parked_session(lambda: whatif(session, Letters(), at=at, effects="live"))
    changed = Letters("b", ())
    with pytest.raises(ReplayDiverged):
        resume(branch, changed, accept="b")
    assert branch.reload() == branch


def test_a_probe_settles_a_call_of_the_abandoned_steps() -> None:
    def probe(idempotency_key: str) -> Happened | None:
        return Happened("booked") if idempotency_key in RAN else None

    @tool(effect="probeable", probe=probe)
    def book(seat: int, idempotency_key: str) -> str:
        """Book a seat."""
        RAN.append(idempotency_key)
        raise KeyboardInterrupt

    class Books(Letters):
        def forward(self, session: Session) -> Session:
            return session.fact("word", self.word).use(book, seat=3)

    session = Session("Book.")
    with pytest.raises(KeyboardInterrupt):
        Books()(session)
    session = resume(session, Books("b"), accept="b")
    assert session.result == "booked" and len(RAN) == 1
    _check(session, Books("b"))


# ── checking ─────────────────────────────────────────────────────────────────────────────────


def test_open_runs_are_checked_and_nothing_is_written(tmp_path: Path) -> None:
    code = f"from {__name__} import Letters\n\n\nclass Flow(Letters):\n    {{}}\n"
    file = tmp_path / "flow.py"
    file.write_text(code.format("pass"))
    target = f"{file}:Flow"
    waiting = parked_session(lambda: load(target)(Session("Write.")))
    store = store_at(waiting.store)
    (checked,) = check_runs(store, str(file))
    assert checked.is_safe and checked.revision == checked.code
    file.write_text(code.format("def __init__(self):\n        super().__init__('b')"))
    (checked,) = check_runs(store, target)
    assert (checked.at, checked.recorded["value"], checked.now["value"]) == (5, "a", "b")
    assert checked.revision != checked.code and checked.session == waiting
    file.write_text("")
    (checked,) = check_runs(store)
    assert not checked.is_safe and "Flow" in checked.why
    assert list(check_runs(store, "tests.support")) == []
    assert waiting.reload() == waiting and RAN == ["mail ann", "mail bob"]
    assert "RunResumed" not in kinds(waiting)
