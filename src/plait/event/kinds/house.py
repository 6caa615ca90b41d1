"""Kinds about the store itself, and about acts that went around the session."""

from __future__ import annotations

from typing import Literal

from plait.event.kinds.base import Body
from plait.event.strict import Json
from plait.ids import Digest, LogId


class HouseOpened(Body, frozen=True):
    """The first event of the house log.

    It names the store, so that the id in the store's own row can be checked.
    """

    store: LogId


class CopyBegun(Body, frozen=True):
    """Sessions are copied into this store from another one: until the copy ends, they may lack
    events, and no run goes on in them.
    """

    store: LogId  # the id of the store that they come from
    address: str  # the canonical one of that store, without a password
    into: LogId  # the id of the store that they are copied into
    logs: tuple[LogId, ...]


class CopyFinished(Body, frozen=True):
    """These sessions have all events that were to be copied from another store."""

    store: LogId
    address: str
    into: LogId
    logs: tuple[LogId, ...]


class PrincipalChanged(Body, frozen=True):
    principal: str
    change: Literal["added", "disabled", "removed"]
    detail: Json = None


class RoleChanged(Body, frozen=True):
    role: str
    principal: str
    change: Literal["added", "removed"]


class GrantChanged(Body, frozen=True):
    principal: str
    grant: str
    change: Literal["added", "removed"]


class Bypassed(Body, frozen=True):
    what: Literal["process", "socket", "file", "workspace"]
    detail: Json = None


class BodyRedacted(Body, frozen=True):
    event: Digest
    reason: str = ""


class CheckpointSigned(Body, frozen=True):
    upto: int  # commit number
    heads: Digest
    key: str
    signature: str
