"""Real sessions for the tests of viewers, and a long one for their benchmarks."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from plait import Budget, Memory, Parked, Session, Store, Workflow, open_store, resume
from plait.ids import LogId
from tests.outline import programs
from tests.outline.long_family import LongFamily
from tests.support.files import filled_folder
from tests.support.processes import child_environment, module_command


class ViewStore(msgspec.Struct, frozen=True):
    """A store with one session of each sort, by name."""

    folder: Path  # the folder with `.plait` and the repositories
    store: Store
    sessions: dict[str, LogId]

    def session(self, name: str) -> Session:
        """Return the latest value of a session."""
        return Session.open(self.sessions[name], store=self.store)


def make_view_store(folder: Path) -> ViewStore:
    """Make a store in `folder/.plait` by real runs, with real tools in the best sandbox there is.

    | name | has |
    |---|---|
    | repair | two strategies in branches, verdicts, a merge, a corrected approval; finished |
    | approval | waits for an approval |
    | question, answered | a question that waits; one with its answer |
    | unknown, resolved | a call that may have happened: waits; resolved by a person |
    | rewound | facts, a rewind, a fork, a note |
    | remembered | a compaction, a recall, a use of a memory |
    | killed, resumed | a run whose process was killed, left so; one that was taken up again |
    | paused, failed, cancelled, closed | as they say |
    | gate, timer | wait for a verdict; for a signal |
    | queued | a message that waits in the inbox of an open run |
    | debate | agents at the same time |
    | large | a picture, a binary file, a long file, colours |
    | hostile | 200 texts that would run, hide or break out |
    | fresh | a message and nothing else |
    """
    store = open_store(folder / ".plait")
    with ThreadPoolExecutor(len(_KILLED)) as pool:  # each waits for a process that is killed
        killed = {name: pool.submit(_MAKERS[name], folder, store) for name in _KILLED}
        made = {
            name: killed[name].result() if name in killed else make(folder, store)
            for name, make in _MAKERS.items()
        }
    return ViewStore(folder, store, {name: session.id for name, session in made.items()})


def make_long_store(folder: Path, events: int = 100_000, branches: int = 60) -> tuple[Store, LogId]:
    """Make a store with one family of so many events and branches, and return it with the root's
    log. Half of the events stand in branches, and every second branch is merged.
    """
    store = open_store(folder / ".plait")
    return store, LongFamily(store).write(events, branches)


def _parked(go_on: Callable[[Session], Session], session: Session) -> Session:
    try:
        return go_on(session)
    except Parked as waits:
        return waits.session


def _repair(folder: Path, store: Store) -> Session:
    repo = filled_folder(folder / "shop", programs.FILES)
    session = Session(
        "Checkout goes negative: see ISSUE.md",
        title="negative total",
        user="u-17",
        project="shop",
        tags={"team": "web"},
        budget=Budget(tokens_max=20_000, cost_usd_max=1.0),
        store=store,
    )
    session = _parked(programs.Repair(), session.to("local", repo))
    edited = {"command": "rm -f ISSUE.md"}
    session.inbox.approve(
        session.inbox.waiting[0], edited=edited, note="keep the tests", actor="human:ann"
    )
    return resume(session)


def _approval(folder: Path, store: Store) -> Session:
    session = Session("Pay the invoice of ACME.", user="u-17", project="office", store=store)
    return _parked(programs.Pay(), session)


def _question(folder: Path, store: Store) -> Session:
    return _parked(programs.Ship(), Session("Ship it.", project="office", store=store))


def _answered(folder: Path, store: Store) -> Session:
    session = _parked(programs.Ship(), Session("Ship this one, too.", store=store))
    session.inbox.send("It is urgent.", actor="human:bo")
    session.inbox.answer(session.inbox.waiting[0], "Kiel", actor="human:ann")
    return resume(session)


def _killed_run(session: Session, workflow: type[Workflow], tool: str) -> Session:
    """Begin a run in a child that is killed inside a tool."""
    command = module_command(
        "tests.outline.programs",
        workflow.__name__,
        session.store.removeprefix("sqlite:"),
        session.id,
    )
    ended = subprocess.run(
        command, env=child_environment(VIEW_KILL=tool), capture_output=True, text=True, timeout=90
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return session.reload()


def _unknown(folder: Path, store: Store) -> Session:
    session = Session("Pay ACME at once.", user="u-17", store=store)
    return _parked(resume, _killed_run(session, programs.Settle, "wire"))


def _resolved(folder: Path, store: Store) -> Session:
    session = _unknown(folder, store)
    session.inbox.resolve(
        session.inbox.waiting[0],
        "happened",
        "90 sent to ACME",
        note="it is on the statement",
        actor="human:ann",
    )
    return resume(session)


def _killed(folder: Path, store: Store) -> Session:
    return _killed_run(Session("How many rows?", store=store), programs.Count, "count_rows")


def _resumed(folder: Path, store: Store) -> Session:
    session = Session("How many rows are there?", user="u-18", store=store)
    return resume(_killed_run(session, programs.Count, "count_rows"))


def _rewound(folder: Path, store: Store) -> Session:
    session = Session("Why is it slow?", title="slow", store=store).fact("db", "postgres 15")
    place = session.seq
    session = session.note("the index is missing", key="cause").todo("add it", key="index")
    session = session.decide("plan", "add an index").rewind(place, reason="wrong track")
    other = session.fork("other").say("It may be the network.", role="assistant")
    other.checks.record("ping", passed=False, detail="12 % lost")
    session = session.attach("p95 in ms", 41.5).lineage.link("langfuse", "trace/9f31")
    return session.say("Slow again since noon.")


def _remembered(folder: Path, store: Store) -> Session:
    first = Session("Note it.", user="u-17", project="shop", store=store)
    memory = Memory()
    first = memory.remember(
        first, "The staging database is read-only.", scope="project", evidence=first
    )
    first, hits = memory.recall(first, "staging", k=1)
    session = Session("Fix the cart.", user="u-17", project="shop", store=store)
    for number in range(8):
        session = session.say(f"Finding {number}.", role="assistant")
    session = session.say("May I write to the staging database?")
    return programs.Remembering(f"[m:{hits[0].short}]")(session)


def _paused(folder: Path, store: Store) -> Session:
    session = _parked(programs.Ship(), Session("Ship nothing yet.", store=store))
    return session.pause(reason="lunch").reload()


def _failed(folder: Path, store: Store) -> Session:
    session = Session("Count what is not there.", user="u-18", store=store)
    try:
        programs.Fails()(session)
    except ValueError:
        pass
    return session.reload()


def _cancelled(folder: Path, store: Store) -> Session:
    session = _parked(programs.Ship(), Session("Ship it by air.", store=store))
    session.inbox.cancel("no longer needed", actor="human:ann")
    return session.reload()


def _closed(folder: Path, store: Store) -> Session:
    return Session("An old matter.", store=store).close(reason="done")


def _gate(folder: Path, store: Store) -> Session:
    session = Session("Release it.", user="u-17", project="shop", store=store)
    return _parked(programs.Release(), session)


def _timer(folder: Path, store: Store) -> Session:
    session = _parked(programs.Release(), Session("Release that.", store=store))
    session.checks.record("review", passed=True, actor="human:ann")
    return _parked(resume, session)


def _queued(folder: Path, store: Store) -> Session:
    session = _parked(programs.Ship(), Session("Ship the last one.", store=store))
    session.inbox.send("Is there news?", actor="human:bo")
    return session


def _debate(folder: Path, store: Store) -> Session:
    return programs.Debate()(Session("How is the text?", user="u-18", store=store))


def _large(folder: Path, store: Store) -> Session:
    repo = filled_folder(folder / "pictures", {"README": "Pictures.\n"})
    session = Session("Draw a dot.", user="u-18", project="art", store=store)
    return programs.Draw()(session.to("local", repo))


def _hostile(folder: Path, store: Store) -> Session:
    title = "<script>alert('title')</script>"
    repo = filled_folder(folder / "hostile", {"README": "Nothing.\n"})
    session = Session("<b>hello</b>", title=title, tags={"<i>": "<u>"}, store=store)
    return programs.Hostile()(session.to("local", repo))


def _fresh(folder: Path, store: Store) -> Session:
    return Session("Nothing has happened yet.", store=store)


_KILLED = ("unknown", "resolved", "killed", "resumed")
_MAKERS: dict[str, Callable[[Path, Store], Session]] = {
    "repair": _repair,
    "approval": _approval,
    "question": _question,
    "answered": _answered,
    "unknown": _unknown,
    "resolved": _resolved,
    "killed": _killed,
    "resumed": _resumed,
    "rewound": _rewound,
    "remembered": _remembered,
    "paused": _paused,
    "failed": _failed,
    "cancelled": _cancelled,
    "closed": _closed,
    "gate": _gate,
    "timer": _timer,
    "queued": _queued,
    "debate": _debate,
    "large": _large,
    "hostile": _hostile,
    "fresh": _fresh,
}
