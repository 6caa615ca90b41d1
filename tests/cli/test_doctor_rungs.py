"""The doctor on isolation: what this machine offers, why not more, and how to get it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from plait import open_store
from plait.cli import machine_checks as module
from plait.cli import main
from plait.sandbox import Capability, Probe, backend
from tests.cli.shell import COMMAND

OVERLAY = Capability("overlay", True)
NO_OVERLAY = Capability("overlay", False, "overlayfs does not work", "Use ext4")
BUBBLEWRAP = Capability("bubblewrap", True)
NO_BUBBLEWRAP = Capability("bubblewrap", False, "bubblewrap is not installed", "Install it")
LANDLOCK, NO_LANDLOCK = (
    Capability("landlock", True),
    Capability("landlock", False, "the kernel has none", "Use Linux 6.12"),
)
HOST = Capability("host", True)


class Probed:
    def __init__(self, name: str, *capabilities: Capability, label: str = "built-in") -> None:
        self._probe = Probe(name, "1", label, capabilities)

    def probe(self) -> Probe:
        return self._probe


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, found: Sequence[object], *arguments: str
) -> str:
    named = {each.probe().backend: each for each in found if isinstance(each, Probed)}
    monkeypatch.setattr(
        module, "backends", lambda: [*named, *(["broken"] if len(named) < len(found) else [])]
    )
    monkeypatch.setattr(module, "backend", lambda name: named[name])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    open_store(str(folder)).close()
    result = CliRunner().invoke(
        main, ["doctor", "--store", str(folder), *arguments], catch_exceptions=False
    )
    assert result.exit_code == 0  # what is missing for sandboxes does not make sessions unsafe
    return result.stdout


def checks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *found: object
) -> dict[str, dict[str, str | None]]:
    return {
        check["name"]: check
        for check in json.loads(run(folder, monkeypatch, found, "--json"))["checks"]
    }


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
            (
                "none, so tools are refused a sandbox here: no overlay: overlayfs does not work; no"
                " bubblewrap: bubblewrap is not installed"
            ),
            "Install it; or take less on purpose, as in plait to S local DIR --isolation landlock.",
        ),
    ],
)
def test_rungs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rungs: tuple[Capability, ...],
    status: str,
    detail: str,
    step: str | None,
) -> None:
    found = checks(tmp_path, monkeypatch, Probed("local", *rungs, Capability("exec", True)))[
        "isolation"
    ]
    assert found == {"name": "isolation", "status": status, "detail": detail, "next": step}


def test_remote_backends_have_a_short_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = "wire-tested 2026-11-16 opensandbox 1.1.1"
    ready = Probed("e2b", Capability("exec", True), label="wire-tested 2026-11-16 e2b 2.63.0")
    key = Capability(
        "exec",
        False,
        "OPEN_SANDBOX_API_KEY is not set",
        "set the environment variable OPEN_SANDBOX_API_KEY",
    )
    package = Capability(
        "exec", False, "the package cubesandbox is not installed", "pip install 'plait[cube]'"
    )
    others = (
        Probed("opensandbox", key, label=tested),
        Probed("cube", package, label=f"untested with cubesandbox (none); {tested}"),
    )
    found = [Probed("local", OVERLAY, HOST), ready, *others, "broken"]
    told = run(tmp_path, monkeypatch, found).splitlines()
    at = next(at for at, line in enumerate(told) if line[6:].startswith("backends"))
    assert [line[20:] for line in told[at : at + 4]] == [
        "e2b: ready (wire-tested 2026-11-16 e2b 2.63.0)",
        "opensandbox: OPEN_SANDBOX_API_KEY is not set (wire-tested)",
        "cube: pip install 'plait[cube]' (wire-tested)",
        "broken: cannot be loaded, KeyError: 'broken'",
    ]
    assert (
        max(map(len, told[at : at + 4])) <= 80
        and told[-1].startswith("Ready")
        and "sandboxes" not in told[-1]
    )


def test_the_last_line_says_that_there_are_no_sandboxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = run(
        tmp_path, monkeypatch, [Probed("local", NO_OVERLAY, NO_BUBBLEWRAP, LANDLOCK, HOST)]
    ).splitlines()
    assert told[-1].startswith("Ready, ") and told[-1].endswith(
        ", but not for sandboxes: tools that need one are refused here."
    )


def test_this_machine_is_told_as_it_is_and_without_vendors() -> None:
    code = (
        "from plait.cli import main; main(['doctor', '--store', 'memory:'],"
        " standalone_mode=False)\n"
    )
    loaded = "import sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([*COMMAND[:2], code + loaded], capture_output=True, text=True, timeout=60)
    assert not {"e2b", "opensandbox", "httpx", "anthropic", "openai"} & set(done.stderr.split())
    offered = [
        each.name
        for each in backend("local").probe().capabilities
        if each.offered and each.name in module.RUNGS
    ]
    [line] = [line for line in done.stdout.splitlines() if line[6:].startswith("isolation")]
    assert offered[0] in line
