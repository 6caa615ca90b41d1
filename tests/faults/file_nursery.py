"""Raises runs that change files, to be killed: at each write of the log, and inside each
tool call.

One process that has imported everything forks a child for every life. Commands append to files, so
one that were run twice on the same files would be seen. In the end the tree, the published folder
and the replay have to be those of a run that nobody disturbed. A script, because no thread may be
there when it forks.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from plait import Session, Workflow, open_store, tool
from plait.runs.replay import replay
from plait.runs.take_up import resume_run
from plait.runtime.attendants import NOBODY
from plait.runtime.invoke import EnteredCall, invoke
from plait.runtime.run import Run
from plait.sandbox import Sandbox
from plait.session import verify
from tests.faults.lives import exit_code, kill_at

where = Path()
calls = 0  # of tools, in this life
die_in = 0  # which of them ends this process


@tool(effect="workspace")
def run(command: str, sandbox: Sandbox) -> str:
    """Run a command."""
    global calls
    calls += 1
    said = sandbox.exec(["sh", "-c", command]).output.view()
    if calls == die_in:
        os.kill(os.getpid(), signal.SIGKILL)
    return said


class Story(Workflow):
    def forward(self, session: Session) -> Session:
        session = session.to("local", where / "repo").use(
            run, command="echo one >> log; rm old; mkdir -p d/e; chmod 700 x.sh"
        )
        side = session.fork("side").use(run, command="echo side >> side.txt; cat log >> side.txt")
        session = session.use(run, command="echo two >> log; mv x.sh y.sh")
        session = session.merge(side.use(run, command="echo again >> side.txt"))
        return session.use(run, command="cat log side.txt >> all").files.apply().fact("end", True)


def live(arm: Callable[[Run], None]) -> None:
    if (where / "id").exists():
        resume_run(
            Session.open((where / "id").read_text(), store=where / ".plait"),
            Story(),
            (),
            {},
            NOBODY,
            None,
            arm,
        )
    else:
        session = Session("go", store=where / ".plait")
        (where / "id").write_text(session.id)

        def on_start(entered: EnteredCall) -> None:
            arm(entered.run)

        invoke(msgspec.structs.replace(Story().invocation(session), on_start=on_start))


def tell() -> None:
    session = Session.open((where / "id").read_text(), store=where / ".plait")
    faults = [str(fault) for fault in verify(open_store(where / ".plait"), state=True)]
    repo = where / "repo"
    there = {
        str(path.relative_to(repo)): path.read_text() if path.is_file() else "/"
        for path in sorted(repo.rglob("*"))
    }
    assert replay(session, Story()).head == session.head
    told = {
        "tree": session.files.tree,
        "folder": there,
        "facts": dict(session.facts),
        "applied": len([e for e in session.effects if e.tool == "apply"]),
    }
    (where / "told").write_text(json.dumps({"told": told, "faults": faults}))


def world() -> None:
    global where
    where = Path(tempfile.mkdtemp(prefix="plait-files-"))
    repo = where / "repo"
    repo.mkdir()
    (repo / "old").write_text("old\n")
    (repo / "x.sh").write_text("echo x\n")


def raised(lives: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """A run through these lives, each ended at a write or in a call, and one more
    that nobody ends.
    """
    global die_in, calls
    world()
    try:
        killed = 0
        for moment, call in (*lives, (0, 0)):
            calls, die_in = 0, call
            code = exit_code(lambda moment=moment: live(kill_at(moment, where)), where)
            killed += code == -signal.SIGKILL
            assert code in (0, -signal.SIGKILL), (where / "wrong").read_text()
            if code == 0:
                break
        assert exit_code(tell, where) == 0, (where / "wrong").read_text()
        answer = json.loads((where / "told").read_text())
        assert not answer["faults"], answer["faults"]
        return {
            "told": answer["told"],
            "killed": killed,
            "moments": int((where / "moments").read_text()),
        }
    finally:
        shutil.rmtree(where, ignore_errors=True)


def main() -> None:
    undisturbed = raised(())
    killed = 0
    lives = [[(moment, 0)] for moment in range(1, undisturbed["moments"] + 1)]
    lives += [[(0, call)] for call in range(1, 6)] + [
        [(0, 2), (3, 0), (0, 1)],
        [(0, 1), (0, 1), (0, 2)],
    ]
    first, stride = map(int, sys.argv[1:])
    for each in lives[first::stride]:
        found = raised(each)
        killed += found["killed"]
        assert found["told"] == undisturbed["told"], (each, found["told"], undisturbed["told"])
    print(
        json.dumps(
            {"killed": killed, "moments": undisturbed["moments"], "told": undisturbed["told"]}
        )
    )


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
