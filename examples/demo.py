"""Plait in one minute: agents that act, and a session that is forked, merged,
rewound, killed, edited and verified.

Run it with `make demo`. It needs no key, no service and no network, and leaves nothing behind.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from plait import (
    Agent,
    Parallel,
    ScriptedModel,
    Selector,
    Sequential,
    Session,
    Store,
    ToolCall,
    open_store,
    tool,
)
from plait.cli import main as plait
from plait.errors import MergeConflict
from plait.ids import LogId, short
from plait.session import verify


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / ".plait")
        agents(store)
        session = fork_and_merge(store)
        session = rewind(session)
        kill_a_writer(store, session)
        edit_the_past(store, session)
        store.close()
    print(
        '\nNext: `.venv/bin/plait new "your question"`, then `plait --help`. What you record stays'
        " in .plait/ here."
    )


@tool
def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def says(text: str) -> Agent:
    return Agent(f"Say {text!r}", model=ScriptedModel([text]))


def agents(store: Store) -> None:
    heading(
        "Agents that act: a tool is called, two critics read at the same time, a selector decides"
        " who is next"
    )
    script = ScriptedModel([ToolCall("word_count", text="to be or not"), "Four."])
    counter = Agent("Use word_count, then answer.", model=script, tools=[word_count])
    critics = Parallel(pro=says("Short."), con=says("Dry."))
    route = Selector(polish=says("Four words."), model=ScriptedModel(["polish"]))
    session = Sequential(count=counter, critics=critics)(
        Session("How many words are in 'to be or not'?", store=store)
    )
    choice = route(session)
    session = choice()
    plait(["log", session.id, "--react", "--store", store.address], standalone_mode=False)
    print(
        f"  chosen: {choice.name}; said last: {session.text!r}; used:"
        f" {session.budget.usage.input_tokens + session.budget.usage.output_tokens} tokens"
    )
    print("  why did it say four?")
    for line in str(session.why("Four.")).splitlines()[:5]:
        print(f"    {line}")


def fork_and_merge(store: Store) -> Session:
    heading("A session, two branches of it, and their merge")
    session = Session(
        "Why does checkout fail for two-item carts?", title="cart bug", user="u-17", store=store
    )
    session = session.say("Only with coupons.").fact("db", "postgres 15")
    strict, lenient = session.fork("strict"), session.fork("lenient")
    strict = strict.say("I would reject the coupon.", role="assistant").decide("verdict", "reject")
    lenient = lenient.say("I would clamp the discount.", role="assistant").decide(
        "verdict", "clamp"
    )
    try:
        strict.merge(lenient)
    except MergeConflict as conflict:
        print(f"  nobody chooses silently: {conflict.conflicts}")
    merged = strict.merge(lenient, resolve={"verdict": "reject"})
    plait(
        ["log", merged.id, "--graph", "--oneline", "--store", store.address], standalone_mode=False
    )
    return merged


def rewind(session: Session) -> Session:
    heading("Back to the beginning, with the whole past on record")
    back = session.rewind(3, reason="wrong track")
    print(f"  {session!r} knew {dict(session.facts)}")
    print(f"  {back!r} knows {dict(back.facts)}, and has {len(back.events)} events")
    print("  why was the verdict what it was?")
    for line in str(session.why("verdict")).splitlines():
        print(f"    {line}")
    return back


def kill_a_writer(store: Store, session: Session) -> None:
    heading("A writer is killed in the middle (kill -9)")
    writer = subprocess.Popen(
        [sys.executable, __file__, "write", store.address, session.id],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    acknowledgements = [next(writer.stdout) for _ in range(200)]
    writer.kill()
    acknowledgements += writer.stdout.readlines()
    writer.wait()
    acknowledged, there = int(acknowledgements[-1]), session.reload().seq
    print(f"  acknowledged before it died: {acknowledged}")
    print(
        f"  in the session now:          {there}, so {max(acknowledged - there, 0)} acknowledged"
        " events were lost"
    )
    print(f"  faults found by verify:      {len(list(verify(store, state=True)))}")


def edit_the_past(store: Store, session: Session) -> None:
    heading("Somebody edits the past with a database browser")
    import apsw  # what an intruder would use

    raw: Any = apsw.Connection(f"{store.address.removeprefix('sqlite:')}/store.db")
    raw.execute("UPDATE event SET salt = zeroblob(16) WHERE number = 2")
    raw.execute("UPDATE p_session__session SET status = 'closed' WHERE label = 'lenient'")
    raw.close()
    for fault in verify(store):
        print(f"  {short(LogId(str(fault.log)))}@{fault.seq}: {fault.what.split('. ')[0]}")


def write(address: str, id: str) -> None:
    """The writer: one durable append after another, each acknowledged on standard output."""
    session = Session.open(id, store=address)
    while True:
        session = session.say("still working", role="assistant")
        print(session.seq, flush=True)


def heading(text: str) -> None:
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(sys.argv[2], sys.argv[3])
    else:
        main()
