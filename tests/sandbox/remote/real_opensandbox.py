"""The vendor's own OpenSandbox server on podman, with an image made of this machine's files.

No registry is asked for anything. The image holds a shell, the usual small programs, this Python,
and a stand-in for the daemon that the vendor ships as an image. The network of containers is the
host's, because nothing else works without setting up bridges: so there can be one sandbox at a
time, since each listens at the same port, and a policy that denies the network is refused by the
server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.support import free_port, wait_until

KEY = "key-of-the-real-server-0123456789"
IMAGE, DAEMON = "docker.io/library/plait-standin:1", "docker.io/opensandbox/execd:standin"

_PROGRAMS = """bash sh cat env printf echo true false sleep head tail tr wc find xargs tar sed grep base64 mktemp mkdir rm mv ln ls chmod
stat readlink touch cut setsid id mkfifo sort yes pwd kill cp""".split()  # noqa: E501
_FOLDERS = ("tmp", "workspace", "etc", "root", "proc", "dev", "sys", "opt")
_LEFT_OUT = (
    "test",
    "tests",
    "site-packages",
    "__pycache__",
    "idlelib",
    "ensurepip",
    "tkinter",
    "lib2to3",
    "config-*",
)
_BOOTSTRAP = '#!/bin/sh\n/opt/opensandbox/execd &\nexec "$@"\n'


def missing() -> str:
    """Return the reason why it cannot run here. Empty: it can."""
    if not program():
        return (
            "opensandbox-server is not there: pip install it into a venv of its own, and name the"
            " program with OPENSANDBOX_SERVER"
        )
    for name in ("podman", "runc", "ldd"):
        if shutil.which(name) is None:
            return f"{name} is not installed"
    return "" if os.geteuid() == 0 else "podman is only tried as root"


def program() -> str | None:
    return os.environ.get("OPENSANDBOX_SERVER") or shutil.which("opensandbox-server")


@contextmanager
def running(folder: Path) -> Generator[str]:
    """The server, and where it is."""
    podman = [
        "podman",
        "--storage-driver",
        "vfs",
        "--root",
        f"{folder}/root",
        "--runroot",
        f"{folder}/run",
        "--runtime",
        "runc",
    ]
    podman += ["--cgroup-manager", "cgroupfs"]
    _import_image(podman, folder)
    address, port = f"unix://{folder}/podman.sock", free_port()
    # Without these, containers ask for more open files than a container may.
    (folder / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=512:512"]\n'
    )
    (folder / "server.toml").write_text(
        _CONFIG.format(port=port, key=KEY, daemon=DAEMON, folder=folder)
    )
    engine = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}
    server = {**os.environ, "HOME": str(folder), "DOCKER_HOST": address}
    with _process(
        [*podman, "system", "service", "--time=0", address], engine, folder / "podman.log"
    ):
        _wait_for(lambda: (folder / "podman.sock").exists(), folder / "podman.log")
        with _process(
            [str(program()), "--config", str(folder / "server.toml")], server, folder / "server.log"
        ):
            _wait_for(lambda: _healthy(port), folder / "server.log")
            yield f"127.0.0.1:{port}"
        subprocess.run(
            [*podman, "rm", "--all", "--force", "--time", "0"],
            check=False,
            capture_output=True,
            timeout=60,
        )


_CONFIG = """
[server]
host = "127.0.0.1"
port = {port}
api_key = "{key}"
[proxy]
resolve_internal = false
[runtime]
type = "docker"
execd_image = "{daemon}"
[store]
type = "sqlite"
path = "{folder}/server.db"
[docker]
network_mode = "host"
pids_limit = 512
[ingress]
mode = "direct"
"""


def _import_image(podman: list[str], folder: Path) -> None:
    root = folder / "image"
    _fill(root)
    subprocess.run(
        ["tar", "-C", str(root), "-cf", str(folder / "image.tar"), "."], check=True, timeout=60
    )
    subprocess.run(
        [*podman, "import", "-q", str(folder / "image.tar"), IMAGE],
        check=True,
        capture_output=True,
        timeout=120,
    )
    subprocess.run([*podman, "tag", IMAGE, DAEMON], check=True, capture_output=True, timeout=60)
    shutil.rmtree(root)


def _fill(root: Path) -> None:
    for name in _FOLDERS:
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    interpreter, library = os.path.realpath(sys.executable), sysconfig.get_path("stdlib")
    programs = [found for name in _PROGRAMS if (found := shutil.which(name))]
    for path in programs:
        _copy(path, root / "usr/bin" / Path(path).name)
    (root / "bin").symlink_to("usr/bin")
    shutil.copytree(library, f"{root}{library}", ignore=shutil.ignore_patterns(*_LEFT_OUT))
    _copy(interpreter, Path(f"{root}{interpreter}"))
    modules = [str(path) for path in Path(library, "lib-dynload").iterdir()]
    for path in _libraries([*programs, interpreter, *modules]):
        _copy(path, Path(f"{root}{path}"))
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    _script(root / "bootstrap.sh", _BOOTSTRAP)
    _script(
        root / "execd",
        f"#!{interpreter}\n{Path(__file__).with_name('standin_execd.py').read_text()}",
    )


def _libraries(paths: list[str]) -> set[str]:
    told = subprocess.run(
        ["ldd", *paths], check=False, capture_output=True, text=True, timeout=60
    ).stdout
    return {
        word
        for line in told.splitlines()
        for word in line.split()
        if word.startswith("/") and not word.endswith(":")
    }


def _copy(path: str, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(os.path.realpath(path), to)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@contextmanager
def _process(command: list[str], env: dict[str, str], log: Path) -> Generator[None]:
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(ready: Callable[[], bool], log: Path) -> None:
    wait_until(ready, evidence=lambda: log.read_text()[-1000:])


def _healthy(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except (URLError, ConnectionError):
        return False
