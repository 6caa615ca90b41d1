"""Work in place leaves more open than a copy. The placement says so, and a policy can refuse it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, secrets
from plait.policy import Policy, Refuse
from plait.tools import shell
from tests.sandbox.rooms import needs

OPEN = ["ignored files of the folder", "withheld files of the folder"]


def test_a_policy_refuses_commands_that_could_read_what_is_withheld(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("bubblewrap", tmp_path)
    monkeypatch.setenv("SHOP_KEY", "hush-51c7-canary")
    monkeypatch.setenv("PLAIT_SECRETS", "SHOP_KEY")
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "key.txt").write_text("hush-51c7-canary\n")
    walls = Policy(
        Refuse(
            "shell",
            when=lambda call: (
                "withheld files of the folder" in call.session.files.placement.detail["open"]
            ),
        )
    )
    try:
        for in_place in (True, False):
            placed = Session("x", store=tmp_path / f"store-{in_place}").to(
                "local", repo, in_place=in_place
            )
            assert placed.files.placement is not None
            detail = cast("dict[str, Any]", placed.files.placement.detail)
            assert [each for each in detail["open"] if each in OPEN] == (OPEN if in_place else [])
            model = ScriptedModel(
                [ToolCall("shell", command="cut -c1-9 key.txt | tee seen; ls"), "done"]
            )
            Agent("Look.", model=model, tools=[shell], policy=walls)(placed)
            assert not (repo / "seen").exists()
    finally:
        secrets.forget()
