# pyright: basic, reportMissingImports=false
"""Run by Restate's own Python: the twelve cases of engines for durable execution, and kills.

The server is the one of Restate's npm package, on loopback. Reads a document with a folder, the
root of the checkout, five ports and a number of kills; prints which cases pass, and how often an
effect of a workflow was made again whose service was killed.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import httpx

SERVER = "@restatedev/restate-server@1.7.12"
STEPS = 6
document = json.load(sys.stdin)
folder = Path(document["folder"])
path = folder / "out"
path.touch()
client = httpx.Client(timeout=30)


def server_program() -> Path:
    """Return the program of the server, which npm installs on the first use."""
    home = Path(document["root"]) / ".venv-guests" / "restate-npm"
    found = home / "node_modules" / ".bin" / "restate-server"
    if not found.exists():
        home.mkdir(parents=True, exist_ok=True)
        line = ["npm", "install", "--silent", "--no-audit", "--no-fund", SERVER]
        subprocess.run(line, cwd=home, check=True, stdout=subprocess.DEVNULL)
    return found


ingress, admin, node, port, other = document["ports"]
environment = {
    **os.environ,
    "RESTATE_BASE_DIR": str(folder / "restate"),
    "RESTATE_LISTEN_MODE": "tcp",
    "RESTATE_BIND_IP": "127.0.0.1",
    "RESTATE_BIND_PORT": str(node),
    "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
    "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
    "RESTATE_DISABLE_TELEMETRY": "true",
    "RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE": "256MB",
    "DO_NOT_TRACK": "1",
}


class Services:
    """Processes that serve the handlers, one at each port."""

    def __init__(self) -> None:
        self.processes: dict[int, subprocess.Popen] = {}

    def start(self, at: int, way: str = "old") -> None:
        line = [sys.executable, str(Path(__file__).with_name("restate_service.py"))]
        self.processes[at] = subprocess.Popen([*line, str(at), str(path), way])
        wait_for(lambda: socket.create_connection(("127.0.0.1", at), 1).close() is None)

    def kill(self, at: int) -> None:
        process = self.processes.pop(at)
        process.send_signal(signal.SIGKILL)
        process.wait()


def wait_for(act, seconds: float = 30.0):
    """Return what an act returns, once it neither fails nor returns nothing."""
    end = time.monotonic() + seconds
    while True:
        try:
            if found := act():
                return found
        except Exception:
            if time.monotonic() > end:
                raise
        if time.monotonic() > end:
            raise TimeoutError(str(act))
        time.sleep(0.05)


def register(at: int) -> None:
    body = {"uri": f"http://127.0.0.1:{at}", "force": False}
    answer = client.post(f"http://127.0.0.1:{admin}/deployments", json=body)
    assert answer.status_code < 300, answer.text


def send(key: str, what: str) -> str:
    url = f"http://127.0.0.1:{ingress}/Flow/{key}/run/send"
    return wait_for(lambda: client.post(url, json=what).json().get("invocationId"))


def call(key: str, handler: str, value: object = None):
    url = f"http://127.0.0.1:{ingress}/Flow/{key}/{handler}"
    answer = client.post(url, json=value) if value is not None else client.post(url)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


def result(key: str, seconds: float = 30.0):
    url = f"http://127.0.0.1:{ingress}/restate/workflow/Flow/{key}/attach"
    answer = client.get(url, timeout=seconds)
    assert answer.status_code < 300, answer.text
    return answer.json()


def rows(sql: str) -> list[dict]:
    url, headers = f"http://127.0.0.1:{admin}/query", {"accept": "application/json"}
    return client.post(url, json={"query": sql}, headers=headers).json()["rows"]


def timer() -> bool:
    send("timer", "timer")
    time.sleep(0.3)
    services.kill(port)
    services.start(port)
    return result("timer") == "awake"


def signal_() -> bool:
    send("signal", "signal")
    call("signal", "signal", 3)
    return result("signal") == 3


def query() -> bool:
    send("query", "signal")
    is_asked = wait_for(lambda: call("query", "stage") == "waiting")
    call("query", "signal", 1)
    result("query")
    return is_asked


def retry() -> bool:
    send("retry", "retry")
    if result("retry") != "at last":
        return False
    first, second, third = map(float, Path(f"{path}.stamps").read_text().split())
    return third - second > second - first


def cancel() -> bool:
    id = send("endless", "endless")
    time.sleep(0.3)
    answer = client.patch(f"http://127.0.0.1:{admin}/invocations/{id}/cancel")
    assert answer.status_code < 300, answer.text
    sql = f"SELECT completion_result FROM sys_invocation WHERE id = '{id}'"
    return wait_for(lambda: rows(sql)[0].get("completion_result") == "failure")


def child() -> bool:
    send("parent", "parent")
    return result("parent") == ["left", "right"]


def non_determinism() -> bool:
    id = send("changing", "changing")
    wait_for(lambda: rows(f"SELECT * FROM sys_journal WHERE id = '{id}' AND name = 'step_old'"))
    services.kill(port)
    services.start(port, "new")  # the code of a deployment that has runs is changed
    call("changing", "signal", 1)
    sql = f"SELECT last_failure FROM sys_invocation WHERE id = '{id}'"
    is_named = wait_for(lambda: "step_new" in (rows(sql)[0].get("last_failure") or ""))
    services.kill(port)
    services.start(port)
    return is_named and result("changing") == 1


def versioning() -> bool:
    id = send("pinned", "signal")
    pinned = f"SELECT pinned_deployment_id FROM sys_invocation WHERE id = '{id}'"
    wait_for(lambda: rows(pinned)[0].get("pinned_deployment_id"))
    services.start(other, "new")
    register(other)
    send("newer", "word")
    is_new = result("newer") == "word anew"
    call("pinned", "signal", 7)
    return is_new and result("pinned") == 7


def search() -> bool:
    sql = "SELECT id FROM sys_invocation WHERE target_service_key = 'parent' AND status='completed'"
    return len(rows(sql)) == 1


def killed(kills: int) -> int:
    """Return how often an effect was made again by services that were killed."""
    chance = random.Random(7)
    ports = list(services.processes)
    for number in range(kills):
        send(f"w{number}", "note")
        time.sleep(0.1 + chance.random() * 0.2)
        at = ports[-1]
        services.kill(at)
        services.start(at, "new" if len(ports) > 1 else "old")
        result(f"w{number}", 60)
    lines = path.read_text().split()
    assert len(set(lines)) == kills * STEPS, "an effect is missing"
    return len(lines) - len(set(lines))


services = Services()
log = (folder / "restate.log").open("w")
server = subprocess.Popen(
    [str(server_program()), "--no-logo"],
    env=environment,
    cwd=folder,
    stdout=log,
    stderr=log,
    start_new_session=True,
)
try:
    wait_for(lambda: client.get(f"http://127.0.0.1:{admin}/health").status_code == 200, 60)
    services.start(port)
    wait_for(lambda: register(port) is None, 30)
    acts = {
        "timer": timer,
        "signal": signal_,
        "query": query,
        "retry": retry,
        "cancel": cancel,
        "child": child,
        "non-determinism": non_determinism,
        "search": search,
        "versioning": versioning,
    }
    cases = {
        "heartbeat timeout": "an invocation has an inactivity timeout, and no heartbeat",
        "continue-as-new": "a workflow runs once per key",
    }
    for name, act in acts.items():
        try:
            cases[name] = "yes" if act() else "another outcome"
        except Exception as error:
            cases[name] = " ".join(f"{type(error).__name__}: {error}".split())[:100]
    repeats, kills = killed(document["kills"]), document["kills"]
    cases["kill"] = "yes" if not repeats else f"{repeats} effects made again"
    said = f"{SERVER.rpartition('@')[2]}, SDK {version('restate-sdk')}"
    print(json.dumps({"version": said, "cases": cases, "repeats": repeats, "kills": kills}))
finally:
    for at in list(services.processes):
        services.kill(at)
    os.killpg(server.pid, signal.SIGKILL)  # npm's program has started the real one
    server.wait()
