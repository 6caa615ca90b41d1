"""The desk: the store that a server serves, and all that its answers are made with."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice

from plait import errors
from plait.errors import PlaitError
from plait.event import Json
from plait.ids import Digest, LogId, short
from plait.outline.outlines import Outlines
from plait.outline.summaries import Summaries
from plait.server.feed import Feed
from plait.server.refusals import AWAY, refusal
from plait.server.runner import Runner
from plait.session import Session
from plait.session.audit import Audit, logs_behind
from plait.session.listing import list_rows
from plait.store import Store
from plait.workspace.tree import TreeReader, shown_path

_NEAR = 5  # names that are proposed
_CHECKED = 20_000  # events that are read again to find the broken one
_KNOWN, _PATHS = 500, 20_000  # sessions and paths among which they are looked for


class ServerDesk:
    """One store, the person who acts, and the runs and the feed of a server."""

    def __init__(
        self, store: Store, actor: str, feed: Feed, runner: Runner | None, *, read_only: bool
    ) -> None:
        self.store, self.actor, self.read_only = store, actor, read_only
        self.feed = feed
        self.outlines = Outlines(store)
        self.summaries = Summaries(self.outlines)
        self.runner = runner  # None: no runs are started from here

    def check_store(self) -> None:
        """Refuse to go on without the store. A file that was removed or replaced can still be read
        and written by those who have it open, and what they write there is lost.
        """
        if self.store.is_closed:
            raise refusal(
                AWAY,
                "StoreGone",
                f"the store at {self.store.address} was removed, moved or replaced",
                "put it back, or start the server again where the store is now",
            )

    def open(self, name: str) -> Session:
        return Session.open(name, store=self.store)

    def log(self, name: str) -> LogId:
        """Return the log of this id, or of this name."""
        return self.open(name).id

    def place_now(self, name: str) -> Json:
        """Return where a session stands now, for those who were not the first. None: nowhere."""
        try:
            now = self.open(name).reload()
        except PlaitError:
            return None
        return {"log": now.id, "seq": now.seq, "head": now.head, "status": now.status}

    def first_fault(self, name: str) -> Json:
        """Return the first broken event of a session. None: it is too long to be read again, or
        none is found.
        """
        try:
            log = self.log(name)
            logs = logs_behind(self.store, [log])
            if not name or sum(self.store.log(each).tip for each in logs) > _CHECKED:
                return None
            faults = [each for each in Audit(self.store, logs, state=False).faults() if each.seq]
        except PlaitError:
            return None
        first = min(faults, key=lambda each: (each.log != log, each.seq or 0), default=None)
        return {"session": first.log, "seq": first.seq, "what": first.what} if first else None

    def near_names(self, error: PlaitError) -> list[str]:
        """Return names that may be meant instead of one that is not known."""
        if isinstance(error, errors.UnknownRevision):
            return _near(error.text.partition("@")[0], self._session_names())
        if isinstance(error, errors.UnknownKey):
            return _near(error.key, error.known) or list(error.known[:_NEAR])
        if isinstance(error, errors.UnknownPlace):
            return [f"{error.session}@{error.tip}"]
        return []

    def near_paths(self, tree: Digest | None, path: str) -> list[str]:
        """Return paths of a tree that are like this one."""
        if tree is None:
            return []
        found = islice(TreeReader(self.store).walk(tree), _PATHS)
        return _near(path, [shown_path(each) for each, entry in found if entry.kind != "folder"])

    def _session_names(self) -> list[str]:
        rows = list(islice(list_rows(self.store, {}, None, None, _KNOWN), _KNOWN))
        labels = [str(row["label"]) for row in rows if row["label"]]
        return [*labels, *(short(LogId(str(row["log"]))) for row in rows)]


def _near(name: str, known: list[str] | tuple[str, ...]) -> list[str]:
    return get_close_matches(name, list(dict.fromkeys(known)), _NEAR, 0.5)
