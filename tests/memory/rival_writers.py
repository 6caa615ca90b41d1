"""A process that writes under the keys, and with the words, that others write at the same time."""

from __future__ import annotations

import sys
from pathlib import Path

from plait import open_store
from tests.memory.test_keys import WRITERS, write_all
from tests.support.processes import wait_until


def main(folder: Path, writer: int) -> None:
    """Write round by round, each begun when all have come to it."""
    store = open_store(folder / ".plait")
    at = 0

    def start() -> None:
        nonlocal at
        at += 1
        (folder / f"{writer}-{at}").touch()
        wait_until(lambda: len([*folder.glob(f"*-{at}")]) == WRITERS)

    write_all(store, writer, start)
    store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
