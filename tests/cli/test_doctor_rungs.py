"""The doctor on isolation: what this machine offers, why not more, and how to get it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from shell import COMMAND

from plait.cli import doctor as module
from plait.cli import main
from plait.sandbox import Capability, Probe, backend

OVERLAY = Capability("overlay", True)
NO_OVERLAY = Capability("overlay", False, "overlayfs does not work", "Use ext4")
BUBBLEWRAP = Capability("bubblewrap", True)
NO_BUBBLEWRAP = Capability("bubblewrap", False, "bubblewrap is not installed", "Install it")
LANDLOCK, NO_LANDLOCK = Capability("landlock", True), Capability("landlock", False, "the kernel has none", "Use Linux 6.12")
HOST = Capability("host", True)


class Probed:
    def __init__(self, name: str, *capabilities: Capability, label: str = "built-in") -> None:
        self._probe = Probe(name, "1", label, capabilities)

    def probe(self) -> Probe:
        return self._probe


def checks(folder: Path, monkeypatch: pytest.MonkeyPatch, *found: object) -> dict[str, dict[str, str | None]]:
    named = {each.probe().backend: each for each in found if isinstance(each, Probed)}
    monkeypatch.setattr(module, "backends", lambda: [*named, *(["broken"] if len(named) < len(found) else [])])
    monkeypatch.setattr(module, "backend", lambda name: named[name])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    result = CliRunner().invoke(main, ["doctor", "--store", str(folder), "--json"], catch_exceptions=False)
    assert result.exit_code == 0  # what is missing for sandboxes does not make sessions unsafe
    return {check["name"]: check for check in json.loads(result.stdout)["checks"]}


@pytest.mark.parametrize(
    ("rungs", "status", "detail", "step"),
    [
        (
            (OVERLAY, BUBBLEWRAP, LANDLOCK, HOST),
            "ok",
            "overlay, and on request bubblewrap, landlock, host; overlay is the best there is",
            None,
        ),
        (
            (NO_OVERLAY, BUBBLEWRAP, NO_LANDLOCK, HOST),
            "warn",
            "bubblewrap, and on request host; no overlay: overlayfs does not work",
            "Use ext4.",
        ),
        (
            (NO_OVERLAY, NO_BUBBLEWRAP, LANDLOCK, HOST),
            "warn",
            "none, so tools are refused a sandbox here: no overlay: overlayfs does not work; no bubblewrap: bubblewrap is not installed",
            "Install it; or take less on purpose, as in plait to S local DIR --isolation landlock.",
        ),
    ],
)
def test_rungs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rungs: tuple[Capability, ...], status: str, detail: str, step: str | None
) -> None:
    found = checks(tmp_path, monkeypatch, Probed("local", *rungs, Capability("exec", True)))["isolation"]
    assert found == {"name": "isolation", "status": status, "detail": detail, "next": step}


def test_remote_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = Probed("e2b", Capability("exec", True), label="wire-tested 2026-11-16 with e2b 2")
    keyless = Probed("cube", Capability("exec", False, "CUBE_KEY is not set", "set it"), label="untested")
    found = checks(tmp_path, monkeypatch, Probed("local", OVERLAY, HOST), ready, keyless, "broken")["backends"]
    assert found["detail"] == (
        "e2b: ready, wire-tested 2026-11-16 with e2b 2 | cube: CUBE_KEY is not set (set it), untested | "
        "broken: cannot be loaded, KeyError: 'broken'"
    )


def test_this_machine_is_told_as_it_is_and_without_vendors() -> None:
    code = "from plait.cli import main; main(['doctor', '--store', 'memory:'], standalone_mode=False)\n"
    loaded = "import sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([*COMMAND[:2], code + loaded], capture_output=True, text=True, timeout=60)
    assert not {"e2b", "opensandbox", "httpx", "anthropic", "openai"} & set(done.stderr.split())
    offered = [each.name for each in backend("local").probe().capabilities if each.offered and each.name in module.RUNGS]
    [line] = [line for line in done.stdout.splitlines() if line[6:].startswith("isolation")]
    assert offered[0] in line
