"""What Plait does so far, in one minute: a durable log that forks, survives kill -9 and notices every edit.

Run it with `make demo`. It needs no key, no service and no network, and leaves nothing behind.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from plait import Event, Store, open_store
from plait.event import Body, seal_all
from plait.event.kinds import FactRecorded, ForkedFrom, MessageSaid, SessionOpened, Text
from plait.ids import Digest, LogId, short
from plait.runtime.live import Live
from plait.store import verify_store

source = Live()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / ".plait")
        log = begin_and_fork(store)
        kill_a_writer(store, log)
        edit_the_past(store, log)
        store.close()
    print("\nNext: `.venv/bin/plait doctor` looks at this installation and the store it would use.")


def begin_and_fork(store: Store) -> LogId:
    heading("A log, and two branches of it")
    log = source.fresh()
    begin(store, log, SessionOpened(title="cart bug", user="u-17"))
    append(store, log, said("Why does checkout fail?"), FactRecorded("db", "postgres 15", "fact"))
    for label, answer in (("strict", "Reject the coupon."), ("lenient", "Clamp the discount.")):
        place, branch = store.log(log), source.fresh()
        store.begin(branch, seal([ForkedFrom(log, place.tip, label)], branch, place.tip + 1, place.head), parent=log)
        append(store, branch, said(answer, "assistant"))
    for row in store.rows("session", "session", order="number"):
        branch = LogId(str(row["log"]))
        print(f"  {short(branch)}  {row['label'] or 'main':8} {store.log(branch).tip} events, ends with {last_words(store, branch)!r}")
    return log


def kill_a_writer(store: Store, log: LogId) -> None:
    heading("A writer is killed in the middle (kill -9)")
    writer = subprocess.Popen([sys.executable, __file__, "write", store.address, log], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledgements = [next(writer.stdout) for _ in range(200)]
    writer.kill()
    acknowledgements += writer.stdout.readlines()
    writer.wait()
    acknowledged, there = int(acknowledgements[-1]), store.log(log).tip
    print(f"  acknowledged before it died: {acknowledged}")
    print(f"  in the log now:              {there}, so {max(acknowledged - there, 0)} acknowledged events were lost")
    print(f"  faults found by verify:      {len(list(verify_store(store)))}")


def edit_the_past(store: Store, log: LogId) -> None:
    heading("Somebody edits the past with a database browser")
    import apsw  # what an intruder would use

    raw: Any = apsw.Connection(f"{store.address.removeprefix('sqlite:')}/store.db")
    raw.execute("UPDATE event SET salt = zeroblob(16) WHERE number = 2")
    raw.close()
    for fault in verify_store(store):
        print(f"  {short(LogId(str(fault.log)))}@{fault.seq}: {fault.what.split('.')[0]}")


def write(address: str, log: LogId) -> None:
    """The writer: one durable append after another, each acknowledged on standard output."""
    store = open_store(address)
    while True:
        append(store, log, said("still working", "assistant"))
        print(store.log(log).tip, flush=True)


def begin(store: Store, log: LogId, *bodies: Body) -> None:
    store.begin(log, seal(list(bodies), log, 1, None))


def append(store: Store, log: LogId, *bodies: Body) -> None:
    now = store.log(log)
    store.append(log, seal(list(bodies), log, now.tip + 1, now.head), after=now.head)


def seal(bodies: list[Body], log: LogId, seq: int, head: Digest | None) -> list[Event]:
    return seal_all(bodies, log=log, seq=seq, parents=(head,) if head else (), source=source, actor="human:u-17", origin="human")


def said(text: str, role: Literal["user", "assistant"] = "user") -> MessageSaid:
    return MessageSaid(role, (Text(text),))


def last_words(store: Store, log: LogId) -> str:
    last = next(store.read(log, kinds={"MessageSaid"}, reverse=True)).body
    assert isinstance(last, MessageSaid) and isinstance(last.parts[0], Text)
    return last.parts[0].text


def heading(text: str) -> None:
    print(f"\n{text}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(sys.argv[2], LogId(sys.argv[3]))
    else:
        main()
