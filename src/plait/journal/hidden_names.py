"""Names of principals and origins without secrets, which a program may have put there."""

from __future__ import annotations

import getpass
import os
import re
from functools import cache

from plait import secrets
from plait.session.ports import Act


def act_without_secrets(act: Act) -> Act:
    """Hide secrets in the names of an act: a program may have put one there."""
    names = f"{act.actor} {act.behalf or ''} {act.origin}"
    if secrets.hide_text(names) == names:
        return act
    origin = re.sub(r"[^a-z0-9_.:/-]+", "-", secrets.hide_text(act.origin).lower()).strip("-")
    return act._replace(
        actor=plain_name(act.actor),
        behalf=plain_name(act.behalf) if act.behalf else None,
        origin=origin,
    )


def plain_name(name: str) -> str:
    """Hide secrets in the name of a principal, which has no spaces."""
    return secrets.hide_text(name).replace("[secret ", "[secret:")


@cache
def login_name() -> str:
    """Return the principal of the person who is logged in.

    It is looked up once: every append asks for it, and may mean reading a user database.
    """
    try:
        return f"human:{re.sub(r'[^!-~]', '_', getpass.getuser())}"
    except (KeyError, OSError, ImportError):  # a container without a user database
        return f"human:uid-{os.getuid()}"
