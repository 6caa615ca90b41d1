"""Drafts as events: secrets are hidden, bodies encoded, headers hashed."""

from __future__ import annotations

from collections.abc import Sequence

from plait import secrets
from plait.event import Event, seal
from plait.event.hidden import without_secrets
from plait.ids import Digest, LogId, Source
from plait.journal.hidden_names import act_without_secrets, plain_name
from plait.session.ports import Draft


def seal_drafts(
    source: Source,
    drafts: Sequence[Draft],
    log: LogId,
    seq: int,
    parents: tuple[Digest, ...],
    run: str | None,
    behalf: str | None = None,  # the principal for which drafts without one are written
    merges: tuple[Digest, ...] = (),
    merging: int = 0,
    earlier: Sequence[Event] = (),  # of the same act, in other logs
) -> list[Event]:
    """Return these drafts as events, the first at this seq: without secrets, encoded and hashed."""
    events: list[Event] = []
    sealed = [*earlier]
    if secrets.is_armed():
        drafts = [Draft(without_secrets(body), act_without_secrets(act)) for body, act in drafts]
        behalf = plain_name(behalf) if behalf else behalf
    for index, (body, act) in enumerate(drafts):
        place = seq + index
        event = seal(
            body,
            log=log,
            seq=place,
            parents=(*parents, *merges) if merges and index == merging else parents,
            time=source.now(log, place),
            salt=source.salt(log, place),
            actor=act.actor,
            origin=act.origin,
            behalf=act.behalf or (behalf if act.actor != behalf else None),
            run=run,
            call=act.call,
            causes=tuple(
                [sealed[cause].id if isinstance(cause, int) else cause for cause in act.causes]
            )
            if act.causes
            else (),
        )
        events.append(event)
        sealed.append(event)
        parents = (event.id,)
    return events
