"""Counting the tokens of a prompt before it is sent."""

from __future__ import annotations

from typing import Literal

import msgspec

from plait.errors import NotASession
from plait.model.files import files_in
from plait.runtime.names import principal_of
from plait.runtime.prompt.prompt import Prompt
from plait.runtime.prompt.setup import Setup
from plait.runtime.registry import run_of
from plait.session import Session


class TokenCount(msgspec.Struct, frozen=True):
    """About how many tokens the next ask of an agent would send."""

    tokens: int
    setup: int  # of these: instruction, tools and the shape of the answer
    files: int  # images and files in the prompt, whose contents are not counted
    # estimate: four bytes are a token, as for `context_max` and budgets
    how: Literal["estimate"] = "estimate"


def count_prompt(setup: Setup, name: str, session: Session) -> TokenCount:
    """Return the size of the prompt that an agent of this name would send now. Nothing is written
    or asked.
    """
    if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NotASession("count was given", session)
    run = run_of(session)
    frames = run.stack.frames(session.id) if run is not None else ()
    path = f"{frames[-1].path}/{name}" if frames else name
    prompt = Prompt(setup, f"agent:{principal_of(path)}", session.run)
    base = prompt.tokens
    prompt.catch_up(session)
    _, turns = prompt.ask()
    return TokenCount(prompt.tokens, base, len(list(files_in(turns))))
