"""Sessions with files for tests of the command line: trees put into the store by hand, and the
events that name them.
"""

from __future__ import annotations

from collections.abc import Mapping

from plait.event.kinds import (
    Body,
    Placement,
    PlacementChanged,
    Text,
    ToolRequested,
    ToolReturned,
    Trees,
)
from plait.ids import Digest
from plait.session import Session
from plait.session.ports import Act, Draft, store_at, writer_of
from plait.session.session import session_at
from plait.session.value import position_of
from plait.workspace import TreeEntry
from plait.workspace.diff import changes
from plait.workspace.tree import decode, digest_of, encode, shown_path
from tests.cli.shell import Shell
from tests.planting import Blobs, Content


class Field:
    """Plants trees in the store of a shell."""

    def __init__(self, shell: Shell) -> None:
        self.shell, self.blobs, self._calls = shell, Blobs(), 0

    def plant(self, files: Mapping[str, Content], *further: TreeEntry) -> Digest:
        """`further` entries stand at the top, as they are."""
        tree = self.blobs.plant(files)
        if further:
            tree = self.blobs.put(encode([*decode(self.blobs[tree]), *further]))
        return tree

    def place(self, name: str, tree: Digest, **placement: object) -> Session:
        body = PlacementChanged(Placement("local", **{"network": "off", **placement}), tree)  # pyright: ignore[reportArgumentType]
        return self.append(name, "human:ana", body)

    def work(
        self,
        name: str,
        tool: str,
        tree: Digest,
        *,
        effect: str = "workspace",
        actor: str = "agent:coder",
    ) -> Session:
        """A call of a tool, after which the files are these."""
        session = self.shell.open(name)
        before = session.files.tree or tree
        changed = tuple(shown_path(change.path) for change in changes(self.blobs, before, tree))
        self._calls += 1
        asked = ToolRequested(tool, {"n": self._calls}, effect)  # pyright: ignore[reportArgumentType]
        returned = ToolReturned((Text("done"),), trees=Trees(before, tree, changed))
        return self.append(name, actor, asked, returned)

    def append(self, name: str, actor: str, *bodies: Body) -> Session:
        session = self.shell.open(name)
        act = Act(
            actor,
            "model" if actor.startswith("agent:") else "human",
            call=f"c{self._calls}" if len(bodies) > 1 else None,
        )
        store_at(session.store).put_blobs(dict(self.blobs))
        return session_at(
            writer_of(None).append(position_of(session), [Draft(body, act) for body in bodies])
        )


def withheld(name: str) -> TreeEntry:
    return TreeEntry(name, "withheld", 0o600, 31, (digest_of(b"hidden"),))
