"""`plait doctor`: is this a place where sessions are safe, and if not, what to do next.

The doctor looks and does not touch. It makes no store, migrates none and writes to no file, least
of all to one that turns out to be somebody else's. Whatever is wrong becomes a check that failed,
never a traceback. A check that could not be made, because an earlier one failed, is left out:
nothing is called ok that was not looked at.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click
import msgspec

from plait.errors import BadAddress, SchemaTooNew, StoreBusy, StoreCorrupt, StoreError, StoreFailed
from plait.sandbox import Capability, backend, backends
from plait.store import canonical, folder_of, locate
from plait.store.sqlite import FILE
from plait.store.sqlite.database import PAGE_SIZE, PRAGMAS, SQLITE_MIN
from plait.store.sqlite.inspect import inspect
from plait.store.sqlite.schema import MIGRATIONS

BUSY_S = 5.0  # a store's own patience is a minute; a person is waiting here
FREE_LOW = 100_000_000  # bytes; below, a warning
MOUNTS = Path("/proc/self/mountinfo")

# Several machines may have these mounted, and the locks and the shared memory that WAL rests on end
# at one machine.
SHARED = frozenset(
    "9p acfs afs beegfs ceph cifs coda davfs fuse.ceph fuse.davfs fuse.gcsfuse fuse.glusterfs"
    " fuse.rclone fuse.s3fs fuse.sshfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 prl_fs smb"
    " smb2 smb3 smbfs vboxsf virtiofs fuse.vmhgfs-fuse vmhgfs".split()
)
FLEETING = frozenset({"tmpfs", "ramfs"})  # gone with the power, fsynced or not

RUNGS = ("overlay", "bubblewrap", "landlock", "host")  # best first
ISOLATED = RUNGS[:2]  # taken without being asked for by name
NO_SANDBOX = "none, so tools are refused a sandbox here"
APART = " | "  # between backends

# These errors send people to the doctor, who has to know more than that.
NEXT: dict[type[StoreError], str] = {
    StoreCorrupt: "Keep a copy of the whole folder, then restore it from a backup.",
    StoreFailed: "Check the disk, and whether you own the files.",
    StoreBusy: "Find the process that holds the lock and let it end, then try again.",
}

Status = Literal["ok", "warn", "fail"]


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    status: Status
    detail: str
    next: str | None = None  # None: nothing to do

    @property
    def lines(self) -> list[str]:
        """The detail as it is printed: each backend on a line of its own."""
        return [
            _clean(line)
            for line in (self.detail.split(APART) if self.name == "backends" else [self.detail])
        ]


class Report(msgspec.Struct, frozen=True):
    """All that was found. `store` always has the same keys; None there means not known."""

    plait: str
    checks: list[Check]
    store: dict[str, Any]

    @property
    def ok(self) -> bool:
        return not self.count("fail")

    def count(self, status: Status) -> int:
        return sum(check.status == status for check in self.checks)


@click.command()
@click.option(
    "--store",
    "address",
    metavar="ADDRESS",
    help="A folder, 'sqlite:FOLDER', 'memory:' or 'memory:NAME'.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
@click.pass_context
def doctor(context: click.Context, address: str | None, as_json: bool) -> None:
    """Check the store, the disk it is on, this installation, and where tools can run.

    It changes neither the store nor its write-ahead log. Without --store it looks where
    `open_store()` would: PLAIT_STORE, else .plait in the nearest folder upward, else here. The exit
    code is 1 if a check failed, otherwise 0.
    """
    report = diagnose(_address(address))
    if as_json:
        click.echo(to_json(report))
    else:
        _print(report)
    context.exit(0 if report.ok else 1)


def diagnose(address: str) -> Report:
    """Look at the store at a canonical address, and at everything it rests on."""
    folder = folder_of(address)
    store: dict[str, Any] = dict.fromkeys(
        ("address", "path", "exists", "schema", "schema_known", "logs", "events", "blobs", "bytes")
    )
    store |= {"address": address, "schema_known": len(MIGRATIONS), "filesystem": None}
    library = inspect(None, known=len(MIGRATIONS))
    store["pragmas"] = library["pragmas"]
    checks = [_memory(store)] if folder is None else _on_disk(store, folder)
    checks += [
        _pragmas(store["pragmas"]),
        _sqlite(library["sqlite"]),
        _python(),
        *_installation(),
        _isolation(),
        _backends(),
    ]
    return Report(_version("plait") or "unknown", checks, store)


# ── the store ────────────────────────────────────────────────────────────────────────────────


def _address(given: str | None) -> str:
    where = (
        "'--store'"
        if given is not None
        else "'PLAIT_STORE'"
        if os.environ.get("PLAIT_STORE")
        else "the current folder"
    )
    try:
        return locate(Path.cwd(), os.environ) if given is None else canonical(given)
    except BadAddress as error:
        raise click.BadParameter(str(error), param_hint=where) from error
    # the current folder was removed, or lies below one that may not be entered
    except OSError as error:
        raise click.UsageError(
            f"the current folder cannot be used: {error.strerror}. Go elsewhere, or pass --store"
            " /FOLDER."
        ) from error


def _memory(store: dict[str, Any]) -> Check:
    store |= {"exists": False, "logs": 0, "events": 0, "blobs": 0, "bytes": 0}
    return Check(
        "store",
        "ok",
        f"{store['address']}, in memory: empty at first, and gone with the process that opens it",
    )


def _on_disk(store: dict[str, Any], folder: Path) -> list[Check]:
    path = str(folder / FILE)
    files = [path, f"{path}-wal", f"{path}-shm"]
    store |= {"path": path, "exists": os.path.lexists(path)}
    try:
        trace = _Trace.of(path)
        store["bytes"] = (trace.size or 0) + (trace.wal_size or 0)
        found = _look(path, trace)
        store |= {
            key: found[key]
            for key in ("exists", "schema", "logs", "events", "blobs", "pragmas")
            if key in found
        }
        checks = [_store(store)]
        if found["exists"]:
            checks += [_schema(found["schema"]), _integrity(found["quick_check"])]
    except SchemaTooNew as error:
        store["schema"] = error.found
        checks = [Check("store", "ok", store["address"]), _failed("schema", error)]
    except StoreError as error:
        checks = [_failed("store", error)]
    return [*checks, _filesystem(store, folder, files)]


def _look(path: str, before: _Trace) -> dict[str, Any]:
    """What the file holds."""
    if not before.size and before.wal_size:  # SQLite deletes such a log at the first touch
        raise StoreCorrupt(path, "it is empty or gone, while its write-ahead log is still there")
    if before.size is None:
        return {"exists": False, "logs": 0, "events": 0, "blobs": 0}
    # whoever has a store open has a write-ahead log beside it
    if before.wal_size is None or not before.size:
        try:
            found = inspect(path, known=len(MIGRATIONS), still=True)
        except StoreError:
            if _Trace.of(path) == before:
                raise
        else:
            if _Trace.of(path) == before:
                return found | {"exists": True}
        # Somebody opened it in the meantime, so it was not still: once more, under locks.
    return inspect(path, known=len(MIGRATIONS), busy_s=BUSY_S) | {"exists": True}


class _Trace(NamedTuple):
    """Enough of a file to see that it changed."""

    size: int | None
    time_ns: int
    wal_size: int | None

    @classmethod
    def of(cls, path: str) -> _Trace:
        file, wal = _stat(path), _stat(f"{path}-wal")
        return cls(file and file.st_size, file.st_mtime_ns if file else 0, wal and wal.st_size)


def _stat(path: str) -> os.stat_result | None:
    """What the system knows of a file; None if there is none.

    Whatever else stands in the way is the store's error.
    """
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise BadAddress(os.path.dirname(path), "there is a file of that name") from error
    except OSError as error:
        raise StoreFailed(path, error.strerror or str(error)) from error


def _store(store: dict[str, Any]) -> Check:
    if not store["exists"]:
        return Check("store", "ok", f"{store['address']}: none yet; it is made on first use")
    if not store["schema"]:
        return Check(
            "store",
            "ok",
            f"{store['address']}: an empty file, in which the store is made on first use",
        )
    counts = ", ".join(_counted(store[f"{what}s"], what) for what in ("log", "event", "blob"))
    return Check("store", "ok", f"{store['address']}: {counts}, {_in_units(store['bytes'])}")


def _schema(found: int) -> Check:
    known = len(MIGRATIONS)
    if found == known:
        return Check("schema", "ok", f"{found}, the latest this Plait knows")
    return Check(
        "schema",
        "ok",
        f"{found}; this Plait knows up to {known} and brings the store there on next use",
    )


def _integrity(found: str) -> Check:
    if found == "ok":
        return Check(
            "integrity",
            "ok",
            "SQLite's quick_check found nothing wrong (the events' own hashes are not checked"
            " here)",
        )
    return Check(
        "integrity", "fail", f"SQLite's quick_check: {' '.join(found.split())}", NEXT[StoreCorrupt]
    )


def _failed(name: str, error: StoreError) -> Check:
    """An error's text ends with the next step, in a sentence of its own."""
    detail, _, step = str(error).rpartition(". ")
    return Check(name, "fail", detail, NEXT.get(type(error), step))


# ── what it rests on ─────────────────────────────────────────────────────────────────────────


def _filesystem(store: dict[str, Any], folder: Path, files: Sequence[str]) -> Check:
    there = next(str(place) for place in (folder, *folder.parents) if os.path.isdir(place))
    type, mount = _mount(there)
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return _failed("filesystem", StoreFailed(there, error.strerror or str(error)))
    refused = next(
        (file for file in (there, *files) if os.path.exists(file) and not _writable(file)), None
    )
    store["filesystem"] = {
        "type": type,
        "mount": mount,
        "free_bytes": free,
        "writable": refused is None,
    }
    detail = f"{type}{f' at {mount}' if mount else ''}, {_in_units(free)} free"
    if refused:
        return Check(
            "filesystem",
            "fail",
            f"{detail}; {refused} is not writable",
            "Change its owner or mode, or choose another folder.",
        )
    if not free:
        return Check(
            "filesystem", "fail", detail, "Free some space: nothing can be written until then."
        )
    if type in SHARED:
        return Check(
            "filesystem",
            "warn",
            f"{detail}; locks may not hold across machines",
            "Put the store on a local disk.",
        )
    if type in FLEETING:
        return Check(
            "filesystem",
            "warn",
            f"{detail}; it is memory, and empty after a restart",
            "Put the store on a disk to keep it.",
        )
    if free < FREE_LOW:
        return Check("filesystem", "warn", detail, "Free some space soon.")
    return Check("filesystem", "ok", detail)


def _writable(path: str) -> bool:
    return os.access(path, os.W_OK | os.X_OK if os.path.isdir(path) else os.W_OK)


def _mount(folder: str) -> tuple[str, str | None]:
    """The type of the file system a folder is on and where that is mounted; unknown where the
    system does not say.
    """
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape").split("\n")
    except OSError:
        return "unknown", None
    type, longest = "unknown", None
    for line in lines:  # 36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/sda1 rw
        left, dash, right = line.partition(" - ")
        if not dash:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), left.split(" ")[4])
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        # of two at one point, the later one covers the earlier
        if inside and len(point) >= len(longest or ""):
            type, longest = right.split(" ")[0], point
    return type, longest


def _pragmas(found: dict[str, Any]) -> Check:
    required = {"journal_mode": "wal", "page_size": PAGE_SIZE, **PRAGMAS}
    wrong = {name: value for name, value in found.items() if value != required[name]}
    if not wrong:
        return Check("pragmas", "ok", f"all {len(found)} as required, synchronous=FULL among them")
    detail = ", ".join(
        f"{name} is {value} where {required[name]} is needed" for name, value in wrong.items()
    )
    if wrong.keys() & PRAGMAS.keys():
        return Check(
            "pragmas",
            "fail",
            detail,
            "Install apsw from its wheel: this SQLite was built without them.",
        )
    # These two are kept in the file. The mode is set at every opening, the page size only when a
    # file is made.
    if "journal_mode" in wrong:
        return Check(
            "pragmas",
            "warn",
            detail,
            "The next use sets it back; find out which program changed it.",
        )
    return Check("pragmas", "warn", detail, "It works, only slower: nothing has to be done.")


def _sqlite(found: str) -> Check:
    least = ".".join(map(str, SQLITE_MIN))
    if _numbers(found) < SQLITE_MIN:
        return Check(
            "sqlite",
            "fail",
            f"{found}, which may corrupt a store; {least} is needed",
            "Upgrade with pip install -U apsw.",
        )
    return Check("sqlite", "ok", f"{found}; at least {least} is needed")


def _python() -> Check:
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
    """One line of what a distribution needs, as far as it matters here."""

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
        return _version(self.name)

    @property
    def met(self) -> bool:
        if self.version is None:
            return self.sometimes
        return self.least is None or _numbers(self.version) >= _numbers(self.least)

    def __str__(self) -> str:
        if self.met:
            return f"{self.name} {self.version}"
        return (
            f"{self.name} {self.version or 'missing'}, {self.least} needed"
            if self.least
            else f"{self.name} missing"
        )


def _installation() -> list[Check]:
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
    return [Check("plait", "ok", plait.version), _dependencies(needs), _extras(extras, needs)]


def _dependencies(needs: Sequence[Requirement]) -> Check:
    always = [need for need in needs if need.extra is None and (need.version or not need.sometimes)]
    unmet = [need for need in always if not need.met]
    if unmet:
        return Check(
            "dependencies",
            "fail",
            ", ".join(map(str, unmet)),
            "Install them with pip install -U plait.",
        )
    return Check("dependencies", "ok", ", ".join(map(str, always)))


def _extras(names: Sequence[str], needs: Sequence[Requirement]) -> Check:
    """An extra that is missing is nobody's fault; one that is there but too old will fail when it
    is used.
    """
    parts, broken = list[str](), list[str]()
    for name in names:
        own = [need for need in needs if need.extra == name]
        unmet = [need for need in own if not need.met]
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


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The release part, so that versions compare; trailing zeros mean nothing in it."""
    release = re.match(r"\d+(\.\d+)*", version)
    numbers = list(map(int, release[0].split("."))) if release else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


# ── where tools run ──────────────────────────────────────────────────────────────────────────


def _isolation() -> Check:
    """The best rung that this machine offers, why not a better one, and how to get that."""
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
    lower = ", ".join(_described(rung) for rung in rungs if rung.offered and rung is not best)
    detail = f"{best.name}{f', and on request {lower}' if lower else ''}"
    if passed:
        return Check("isolation", "warn", f"{detail}; {why}", f"{passed[0].fix}.")
    return Check("isolation", "ok", f"{detail}; {best.name} is the best there is")


def _described(rung: Capability) -> str:
    return f"{rung.name} ({rung.why})" if rung.why else rung.name


def _backends() -> Check:
    """Those beyond this machine: whether they can be used, and how far they were tested.

    Nothing of a vendor is loaded for this.
    """
    names = [name for name in backends() if name != "local"]
    return Check("backends", "ok", APART.join(map(_backend, names)) or "none but local")


def _backend(name: str) -> str:
    try:
        probe = backend(name).probe()
    except Exception as error:  # anybody may bring one
        return f"{name}: cannot be loaded, {type(error).__name__}: {error}"
    missing = next((each for each in probe.capabilities if not each.offered), None)
    if missing is None:
        return f"{name}: ready ({probe.label})"
    # A missing key says itself what to do, a missing package does not. Which version was tested is
    # of interest to who can use one.
    tested = probe.label.rpartition("; ")[2].partition(" ")[0]
    return (
        f"{name}: {min(filter(None, (missing.why, missing.fix)), key=len, default='not ready')}"
        f" ({tested})"
    )


# ── telling it ───────────────────────────────────────────────────────────────────────────────


def to_json(report: Report) -> str:
    """ASCII with escapes, so that a path can hold anything and the terminal still
    sees none of it.
    """
    checks = [msgspec.structs.asdict(check) for check in report.checks]
    return json.dumps(
        {"plait": report.plait, "ok": report.ok, "checks": checks, "store": report.store}, indent=2
    )


def _print(report: Report) -> None:
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        # a path may hold what the terminal's encoding does not
        reconfigure(errors="backslashreplace")
    if sys.stdout.isatty():
        _print_table(report)
    else:
        _print_plain(report)


def _print_plain(report: Report) -> None:
    wide = max(len(check.name) for check in report.checks)
    for check in report.checks:
        first, *more = check.lines
        click.echo(f"{check.status:4}  {check.name:{wide}}  {first}")
        for line in more:
            click.echo(f"{'':4}  {'':{wide}}  {line}")
        if check.next:
            click.echo(f"{'':4}  {'':{wide}}  next: {_clean(check.next)}")
    click.echo(_summary(report))


def _print_table(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in report.checks:
        table.add_row(
            Text(f"{check.status:4}", colours[check.status]),
            Text(check.name, "bold"),
            Text("\n".join(check.lines)),
        )
        if check.next:
            table.add_row("", "", Text(f"next: {_clean(check.next)}", colours[check.status]))
    # rich keeps bold and dim under NO_COLOR; who sets it wants plain text.
    console = Console(color_system=None if os.environ.get("NO_COLOR") else "auto")
    console.print(table)
    console.print(Text(f"\n{_summary(report)}", colours["ok" if report.ok else "fail"]))


def _summary(report: Report) -> str:
    warned = f", {_counted(report.count('warn'), 'warning')}" if report.count("warn") else ""
    if report.ok:
        refused = any(
            check.name == "isolation" and check.detail.startswith(NO_SANDBOX)
            for check in report.checks
        )
        return f"Ready{warned}{', but not for sandboxes: tools that need one are refused here' if refused else ''}."  # noqa: E501
    return f"{report.count('fail')} of {_counted(len(report.checks), 'check')} failed{warned}."


def _clean(text: str) -> str:
    """Text from outside, without what a terminal would act on: control characters, escapes, changes
    of direction.
    """
    return "".join(char if char.isprintable() else "?" for char in text)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _in_units(size: int) -> str:
    """Bytes for people, in decimal units as disks are sold."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
