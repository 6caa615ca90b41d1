"""Citations: replies that name memories which were recalled on their path, as `[m:1a2b3c4d]`."""

from __future__ import annotations

import re

from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest
from plait.runtime.appends import append_at_tip
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.session import Session
from plait.session.ports import Act, Draft
from plait.session.value import walk_path

_MARK = "[m:"
_CITED = re.compile(r"\bm:([0-9a-f]{8,64})\b")
_RECALLED = frozenset({k.MemoryRecalled.__name__})


def citation_drafts(session: Session, text: str, act: Act) -> list[Draft]:
    """Return the draft that notes the use of memories which a reply cites; [] if it cites none.

    `act` is that of the reply, which is its first cause. Names that were not recalled on the path
    are words like any other.
    """
    if _MARK not in text:
        return []
    recalled = _recalled_memories(session)
    cited = dict[Digest, None]()
    for name in _CITED.findall(text):
        found = [memory for memory in recalled if memory.startswith(name)]
        if len(found) == 1:
            cited[found[0]] = None
    if not cited:
        return []
    run = run_of(session)
    frames = run.stack.frames(session.id) if run is not None else ()
    body = k.MemoryUsed("citation", frames[-1].purpose if frames else None)
    return [Draft(body, act._replace(causes=(*act.causes, *cited)))]


def _recalled_memories(session: Session) -> list[Digest]:
    found = dict[Digest, None]()
    for _, event in walk_path(session, _RECALLED):
        body = event.body
        assert isinstance(body, k.MemoryRecalled)
        found.update(dict.fromkeys([hit.memory for hit in body.hits]))
    return list(found)


def recall_citations(run: Run, session: Session, reply: Event, text: str) -> Session:
    """Take the use of memories that was recorded with a reply.

    One that a rewind or a what-if cut off after the reply is written again.
    """
    call = reply.header.call
    ahead = run.journal.peek_call(session, (call,))
    if ahead is not None and ahead.kind == k.MemoryUsed.__name__:
        session, _ = run.journal.call_event(session, (call,)) or (session, ahead)
        return session
    if not run.journal.is_live(session):  # recorded before citations were
        return session
    act = Act(reply.actor, "model", call=call, causes=(reply.id,))
    drafts = citation_drafts(session, text, act)
    return append_at_tip(session, drafts)[0] if drafts else session
