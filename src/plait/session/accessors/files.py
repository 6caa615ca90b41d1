"""The files of a session as they were at its place, and where its tools run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from plait.errors import NotPlaced
from plait.event import Json
from plait.event.kinds import File, Image, Placement
from plait.ids import Digest
from plait.session.accessors.view import SessionView
from plait.session.appending import refuse_if_busy, value_from_host, wait_for_gates
from plait.session.blame import Blame, blame
from plait.session.ports import host, note_read
from plait.session.value import S
from plait.workspace import Workspace


class SessionFiles(SessionView[S]):
    """The recorded files of a session, and the placement of its tools."""

    __slots__ = ()

    @property
    def placement(self) -> Placement | None:
        """The backend its tools run in. None: it is not placed."""
        return self._core.state.story.placement

    @property
    def tree(self) -> Digest | None:
        """The digest of its tree. None: it has no files."""
        tree = self._core.state.story.tree
        return tree.digest if tree else None

    @property
    def workspace(self) -> Workspace:
        """Its files as they were at this place, to look at."""
        note_read(self._core.position)
        tree = self.tree
        if tree is None:
            raise NotPlaced(self._session.short)
        return Workspace(self._core.store, tree)

    def paths(self) -> list[str]:
        """The paths of all files and links."""
        return self.workspace.files()

    def text(self, path: str) -> str:
        """The text of a file, as UTF-8; bytes that are not UTF-8 are replaced."""
        return self.workspace.text(path)

    def read(self, path: str) -> bytes:
        """The bytes of a file; links are followed inside the workspace."""
        return self.workspace.read(path)

    def blame(self, path: str) -> Blame:
        """A file line by line, with the event that wrote each line."""
        core = self._core
        note_read(core.position)
        return blame(core.store, core.state, core.short, path)

    def blob(self, part: Digest | Image | File) -> bytes:
        """The bytes of an image, a file or a long text: by digest, or by the part itself."""
        store = self._core.store
        if isinstance(part, File):
            whole = BytesIO()  # grows in place, where a list of pieces would be there a second time
            for piece in (part.blob, *part.rest):
                whole.write(store.get_blob(piece))
            return whole.getvalue()
        return store.get_blob(part.blob if isinstance(part, Image) else part)

    def apply(
        self,
        *,
        resolve: Mapping[str, Json] | Callable[[str, Mapping[str, Any]], Json] | None = None,
    ) -> S:
        """Publish its files to the folder they came from, merged with the folder as it is now;
        files in dispute raise MergeConflict.
        """
        session = self._session
        step = "publish those of a fork: session.fork().files.apply()"
        refuse_if_busy(session, "publish its files", step)
        (waited,) = wait_for_gates(session, (session,), "applied")
        return value_from_host(waited, host("publish its files").publish(waited, resolve))
