"""A process that begins a run, says which, and stops at a point of its story until it is told to go
on.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from plait import Session, open_store
from plait.session import verify
from tests.support import ForkedProgram, child_environment, module_command, wait_until

PATIENCE_S = 60.0


class StoryModule(Protocol):
    """A module of stories, which a test plays, too."""

    __name__: str
    folder: Path
    # what a process that took the run over does at the same point
    meanwhile: list[Callable[[], object]]


class Holder:
    """The process that begins the run, and is busy with it."""

    def __init__(
        self,
        story: StoryModule,
        folder: Path,
        *arguments: str,
        store: str | None = None,
        **environment: str,
    ) -> None:
        self.folder, self.store = folder, store or str(folder / ".plait")
        self.process = ForkedProgram(
            module_command(story.__name__, *arguments),
            stdout=subprocess.PIPE,
            text=True,
            env=child_environment(STORY_FOLDER=str(folder), **environment),
        )
        assert self.process.stdout is not None
        self.session = Session.open(self.process.stdout.readline().strip(), store=self.store)
        wait_until((folder / "busy").exists)

    def loses_its_lock(self) -> None:
        (self.folder / ".plait" / "runs.lock").unlink()

    def goes_on(self) -> str:
        """Let it go on; what it says in the end."""
        (self.folder / "go").touch()
        return self.process.communicate(timeout=PATIENCE_S)[0].strip()


H = TypeVar("H", bound=Holder)


@contextmanager
def playing(story: StoryModule, start: Callable[[], H], folder: Path) -> Generator[H]:
    """The holder of a story that this process plays, too; in the end the store is sound."""
    story.folder = folder
    holder = start()
    try:
        yield holder
        assert list(verify(open_store(holder.store), state=True)) == []
    finally:
        holder.process.kill()
        holder.process.communicate()
        story.meanwhile.clear()
