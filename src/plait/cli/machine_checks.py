"""Checks of this machine: Python, the installed packages, and the sandboxes on offer."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from typing import NamedTuple

from plait.cli.report import APART, NO_SANDBOX, Check
from plait.sandbox import Capability, backend, backends

RUNGS = ("overlay", "bubblewrap", "landlock", "host")  # best first
ISOLATED = RUNGS[:2]  # taken without being asked for by name


def python_check() -> Check:
    name = platform.python_implementation()
    detail = (
        f"{name} {platform.python_version()} on {platform.system()} {platform.release()}"
        f" {platform.machine()}"
    )
    if name != "CPython":
        return Check(
            "python",
            "warn",
            detail,
            "Plait is tested on CPython only: use that if something is odd.",
        )
    return Check("python", "ok", detail)


# ── the installation ─────────────────────────────────────────────────────────────────────────


class Requirement(NamedTuple):
    """One requirement of a distribution, as far as it matters here."""

    name: str
    least: str | None  # None: any version
    extra: str | None  # None: always needed
    sometimes: bool  # only on some systems or Pythons

    @classmethod
    def parse(cls, line: str) -> Requirement:
        """`mcp>=2.0; python_version < "3.13" and extra == "mcp"`"""
        need, _, marker = line.partition(";")
        name, least = re.match(r"[\w.-]+", need.strip()), re.search(r">=\s*([\d.]+)", need)
        extra = re.search(r"""extra\s*==\s*['"]([^'"]+)""", marker)
        rest = re.sub(r"""(and\s+)?extra\s*==\s*['"][^'"]+['"]""", "", marker).strip(" ()")
        return cls(name[0] if name else line, least and least[1], extra and extra[1], bool(rest))

    @property
    def version(self) -> str | None:
        return installed_version(self.name)

    @property
    def is_met(self) -> bool:
        if self.version is None:
            return self.sometimes
        return self.least is None or version_numbers(self.version) >= version_numbers(self.least)

    def __str__(self) -> str:
        if self.is_met:
            return f"{self.name} {self.version}"
        return (
            f"{self.name} {self.version or 'missing'}, {self.least} needed"
            if self.least
            else f"{self.name} missing"
        )


def installation_checks() -> list[Check]:
    from importlib import metadata  # a seventh of `plait --help`, which does not need it

    try:
        plait = metadata.distribution("plait")
    except metadata.PackageNotFoundError:
        return [
            Check(
                "plait",
                "fail",
                "not installed as a package: version and dependencies are unknown",
                "Install it with pip.",
            )
        ]
    needs = [Requirement.parse(line) for line in plait.requires or ()]
    extras = [name for name in plait.metadata.get_all("Provides-Extra") or () if name != "dev"]
    return [
        Check("plait", "ok", plait.version),
        _dependency_check(needs),
        _extras_check(extras, needs),
    ]


def _dependency_check(needs: Sequence[Requirement]) -> Check:
    always = [need for need in needs if need.extra is None and (need.version or not need.sometimes)]
    unmet = [need for need in always if not need.is_met]
    if unmet:
        return Check(
            "dependencies",
            "fail",
            ", ".join(map(str, unmet)),
            "Install them with pip install -U plait.",
        )
    return Check("dependencies", "ok", ", ".join(map(str, always)))


def _extras_check(names: Sequence[str], needs: Sequence[Requirement]) -> Check:
    """Check the extras. A missing one is no fault; one that is installed but too old fails when it
    is used.
    """
    parts, broken = list[str](), list[str]()
    for name in names:
        own = [need for need in needs if need.extra == name]
        unmet = [need for need in own if not need.is_met]
        if any(need.version for need in unmet):
            broken.append(name)
            parts.append(f"{name}: {', '.join(map(str, unmet))}")
        else:
            parts.append(f"{name}: {'not installed' if unmet else 'installed'}")
    if broken:
        return Check(
            "extras",
            "warn",
            "; ".join(parts),
            f"Upgrade with pip install -U 'plait[{','.join(broken)}]'.",
        )
    return Check("extras", "ok", "; ".join(parts) or "this Plait has none")


def installed_version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the release part as numbers, so that versions compare. Trailing zeros are dropped."""
    release = re.match(r"\d+(\.\d+)*", version)
    numbers = list(map(int, release[0].split("."))) if release else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


# ── where tools run ──────────────────────────────────────────────────────────────────────────


def isolation_check() -> Check:
    """Check how well local sandboxes are isolated, and name the step to a better rung."""
    found = {each.name: each for each in backend("local").probe().capabilities}
    rungs = [found[name] for name in RUNGS if name in found]
    best = next((rung for rung in rungs if rung.offered), None)
    passed = rungs[: rungs.index(best)] if best else rungs
    why = "; ".join(f"no {rung.name}: {rung.why}" for rung in passed)
    if best is None or best.name not in ISOLATED:
        less = [rung.name for rung in rungs if rung.offered]
        step = (
            f"; or take less on purpose, as in plait to S local DIR --isolation {less[0]}"
            if less
            else ""
        )
        return Check(
            "isolation",
            "warn",
            f"{NO_SANDBOX}: {why}",
            f"{passed[-1].fix}{step}." if passed else None,
        )
    lower = ", ".join(_rung_text(rung) for rung in rungs if rung.offered and rung is not best)
    detail = f"{best.name}{f', and on request {lower}' if lower else ''}"
    if passed:
        return Check("isolation", "warn", f"{detail}; {why}", f"{passed[0].fix}.")
    return Check("isolation", "ok", f"{detail}; {best.name} is the best there is")


def _rung_text(rung: Capability) -> str:
    return f"{rung.name} ({rung.why})" if rung.why else rung.name


def backend_check() -> Check:
    """Check the backends beyond this machine: are they usable, and how far are they tested.

    No package of a vendor is loaded for this.
    """
    names = [name for name in backends() if name != "local"]
    return Check("backends", "ok", APART.join(map(_backend_text, names)) or "none but local")


def _backend_text(name: str) -> str:
    try:
        probe = backend(name).probe()
    except Exception as error:  # a backend may come from any package
        return f"{name}: cannot be loaded, {type(error).__name__}: {error}"
    missing = next((each for each in probe.capabilities if not each.offered), None)
    if missing is None:
        return f"{name}: ready ({probe.label})"
    # The text about a missing key names the step itself; the one about a missing package does not.
    # The tested version matters only where the backend can be used.
    tested = probe.label.rpartition("; ")[2].partition(" ")[0]
    return (
        f"{name}: {min(filter(None, (missing.why, missing.fix)), key=len, default='not ready')}"
        f" ({tested})"
    )
