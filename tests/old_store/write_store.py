"""Writes the store that `test_old_store.py` opens, and packs it: run by hand, at the commit whose
store is to be kept.

python -m tests.old_store.write_store
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from plait import Parked, Session, open_store
from tests.old_store.programs import KILL, Branches, Files, Killed, Payment

PACKED = Path(__file__).with_name("store.tar.gz")
HEADS = Path(__file__).with_name("heads.json")  # by name: the id and the head of each session


def write(folder: Path) -> None:
    """Write a session of each program; its project names it."""
    store = open_store(folder / ".plait")
    Branches()(Session("Go both ways.", project="branches", store=store))
    try:
        Payment()(Session("Pay Ada.", project="payment", store=store))
    except Parked:
        pass
    (folder / "shop").mkdir()
    (folder / "shop" / "log").write_text("zero\n")
    Files()(Session("Write.", project="files", store=store).to("local", folder / "shop"))
    child = [sys.executable, "-m", "tests.old_store.write_store", str(folder)]
    assert subprocess.run(child, env={**os.environ, KILL: "2"}).returncode == -9
    session = Session("Rewind.", project="rewound", store=store).fact("a", 1)
    session.fact("a", 2).rewind(3).say("As if nothing had been.")
    sessions = {
        row.project: [row.id, row.head]
        for row in Session.list(store=store, limit=100)
        if row.project
    }
    HEADS.write_text(json.dumps(sessions, indent=1, sort_keys=True) + "\n")
    store.close()


def main() -> None:
    if len(sys.argv) > 1:
        Killed()(Session("Put three things.", project="killed", store=Path(sys.argv[1]) / ".plait"))
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        with tarfile.open(PACKED, "w:gz") as archive:
            archive.add(Path(folder) / ".plait", ".plait")
    print(PACKED, PACKED.stat().st_size)


if __name__ == "__main__":
    main()
