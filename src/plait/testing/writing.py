"""Writing to a store, and looking at it, in as few words as possible."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import count

from plait.event import Body, Event, seal_all
from plait.event.kinds import (
    ForkedFrom,
    MessageSaid,
    SessionOpened,
    Text,
)
from plait.ids import Digest, LogId, derive_id
from plait.store import Store, verify_store, visible_count
from plait.testing.seeded import Seeded

Opened = Callable[..., Store]  # opens the store of a test at one place, with these projections

_source = Seeded(0)
_log_numbers = count()  # one series for the process: no two tests share an id


def new_log() -> LogId:
    return derive_id("plait/testing/1", next(_log_numbers))


def message(text: str) -> MessageSaid:
    return MessageSaid("user", (Text(text),))


def seal_events(
    bodies: Sequence[Body],
    log: LogId,
    seq: int = 1,
    parents: tuple[Digest, ...] = (),
    source: Seeded = _source,
    actor: str = "human:tester",
) -> list[Event]:
    return seal_all(bodies, log=log, seq=seq, parents=parents, source=source, actor=actor)


def begin(store: Store, *bodies: Body) -> LogId:
    """A new root: opened, then these."""
    log = new_log()
    durability = None if store.durability == "memory" else store.durability
    store.begin(log, seal_events([SessionOpened(durability=durability), *bodies], log))
    return log


def extend(store: Store, log: LogId, *bodies: Body) -> list[Event]:
    """Append to the log as it stands now."""
    now = store.log(log)
    events = seal_events(bodies, log, now.tip + 1, (now.head,))
    store.append(log, events, after=now.head)
    return events


def fork(store: Store, parent: LogId, place: int, label: str | None = None) -> LogId:
    log = new_log()
    point = next(store.read(parent, place, place))
    store.begin(
        log,
        seal_events([ForkedFrom(parent, place, label)], log, place + 1, (point.id,)),
        parent=parent,
    )
    return log


def texts(store: Store, log: LogId) -> list[str]:
    """Return the texts said in a log, lineage included."""
    return [_text(event) for event in store.read(log, kinds={"MessageSaid"})]


def _text(event: Event) -> str:
    body = event.body
    assert isinstance(body, MessageSaid)
    part = body.parts[0]
    assert isinstance(part, Text)
    return part.text


@contextmanager
def check_refused(error: type[Exception], store: Store) -> Generator[None]:
    """The block raises this error, and the store is as it was."""
    before = visible_count(store), [log for _, log in store.logs(limit=10_000)]
    try:
        yield
    except error:
        assert (visible_count(store), [log for _, log in store.logs(limit=10_000)]) == before, (
            "something was written all the same"
        )
    else:
        raise AssertionError(f"{error.__name__} was not raised")


_TRIES_MAX = 3000  # looks at the settled number, a hundredth of a second apart


def wait_until_settled(store: Store) -> int:
    """Return the settled number once it has reached the newest event that can be seen now."""
    newest = next((number for number, _ in store.feed(limit=1, reverse=True)), 0)
    for _ in range(_TRIES_MAX):
        if (number := store.number) >= newest:
            return number
        threading.Event().wait(0.01)
    raise AssertionError(f"the settled number stays at {store.number}, before {newest}")


def numbers_of(store: Store) -> list[int]:
    """Return the numbers of all events of a store, once they are settled, in their order."""
    wait_until_settled(store)
    return [number for number, _ in store.feed()]


def verify(store: Store) -> list[str]:
    return [str(fault) for fault in verify_store(store)]


def run_threads(jobs: Sequence[Callable[[], object]]) -> None:
    """Run the jobs at the same time, and raise the first error of any."""
    errors: list[BaseException] = []
    gate = threading.Barrier(len(jobs))

    def run(job: Callable[[], object]) -> None:
        gate.wait()
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
