# pyright: basic, reportMissingImports=false
"""Run by DBOS's own Python: the twelve cases of engines for durable execution, and kills.

Reads a document with a folder and a number of kills; prints which cases it passes, and how often an
effect of a killed workflow was made again. With an argument it is the process that is killed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from dbos import DBOS, SetWorkflowID

STEPS = 6
started: list[float] = []


def launch(folder: Path, app: str = "1") -> None:
    DBOS(
        config={
            "name": "parity",
            "system_database_url": f"sqlite:///{folder / 'dbos.sqlite'}",
            "log_level": "CRITICAL",
            "enable_otlp": False,
            "application_version": app,
            "enable_patching": True,
            "notification_listener_polling_interval_sec": 0.1,
        }
    )
    DBOS.launch()


@DBOS.step()
def note(path: str, text: str) -> str:
    with open(path, "a") as out:
        out.write(f"{text}\n")
    time.sleep(0.03)
    return text


@DBOS.workflow()
def noting(path: str, name: str) -> None:
    for step in range(STEPS):
        note(path, f"{name}/{step}")


@DBOS.workflow()
def sleeping(seconds: float) -> str:
    DBOS.sleep(seconds)
    return "awake"


@DBOS.workflow()
def waiting() -> object:
    DBOS.set_event("stage", "waiting")
    value = DBOS.recv("built", timeout_seconds=60)
    DBOS.set_event("stage", "built")
    return value


@DBOS.step(retries_allowed=True, interval_seconds=0.2, max_attempts=3, backoff_rate=2.0)
def fails_twice() -> str:
    started.append(time.monotonic())
    if len(started) < 3:
        raise RuntimeError("not yet")
    return "at last"


@DBOS.workflow()
def retrying() -> str:
    return fails_twice()


@DBOS.workflow()
def endless(path: str) -> None:
    while True:
        note(path, "again")


@DBOS.workflow()
def child(name: str) -> str:
    return name


@DBOS.workflow()
def parent() -> list[str]:
    handles = [DBOS.start_workflow(child, each) for each in ("left", "right")]
    return [each.get_result() for each in handles]


way = "old"


@DBOS.step()
def step_old() -> str:
    return "old"


@DBOS.step()
def step_new() -> str:
    return "new"


@DBOS.workflow()
def changing() -> str:
    said = step_old() if way == "old" else step_new()
    DBOS.recv("go", timeout_seconds=60)
    return said


@DBOS.workflow()
def patching() -> int:
    rate = 19 if way == "new" and DBOS.patch("tax") else 16
    note(os.devnull, "rate")
    DBOS.recv("go", timeout_seconds=60)
    return rate


def again(folder: Path) -> None:
    """Let another process of the same executor recover."""
    DBOS.destroy()
    launch(folder)


def wait_for(handle, topic: str) -> None:
    while not [s for s in DBOS.list_workflow_steps(handle.workflow_id)]:
        time.sleep(0.05)
    time.sleep(0.3)


def timer(folder: Path) -> bool:
    handle = DBOS.start_workflow(sleeping, 2.0)
    time.sleep(0.3)
    again(folder)
    return DBOS.retrieve_workflow(handle.workflow_id).get_result() == "awake"


def signal_(_: Path) -> bool:
    handle = DBOS.start_workflow(waiting)
    DBOS.send(handle.workflow_id, 3, "built")
    return handle.get_result() == 3


def query(_: Path) -> bool:
    handle = DBOS.start_workflow(waiting)
    is_asked = DBOS.get_event(handle.workflow_id, "stage", timeout_seconds=10) == "waiting"
    DBOS.send(handle.workflow_id, 1, "built")
    handle.get_result()
    return is_asked


def retry(_: Path) -> bool:
    if DBOS.start_workflow(retrying).get_result() != "at last":
        return False
    first, second, third = started
    return third - second > second - first


def cancel(folder: Path) -> bool:
    handle = DBOS.start_workflow(endless, str(folder / "endless"))
    time.sleep(0.3)
    DBOS.cancel_workflow(handle.workflow_id)
    return DBOS.get_workflow_status(handle.workflow_id).status == "CANCELLED"


def children(_: Path) -> bool:
    return DBOS.start_workflow(parent).get_result() == ["left", "right"]


def non_determinism(folder: Path) -> bool:
    global way
    way = "old"
    handle = DBOS.start_workflow(changing)
    wait_for(handle, "go")
    way = "new"
    again(folder)
    DBOS.send(handle.workflow_id, 1, "go")
    try:
        DBOS.retrieve_workflow(handle.workflow_id).get_result()
    except Exception as error:
        return "step_old" in str(error) and "step_new" in str(error)
    finally:
        way = "old"
    return False


def versioning(folder: Path) -> bool:
    global way
    way = "old"
    old = DBOS.start_workflow(patching)
    wait_for(old, "go")
    way = "new"
    again(folder)
    new = DBOS.start_workflow(patching)
    for each in (old, new):
        DBOS.send(each.workflow_id, 1, "go")
    rates = [DBOS.retrieve_workflow(each.workflow_id).get_result() for each in (old, new)]
    way = "old"
    return rates == [16, 19]


def search(_: Path) -> bool:
    return len(DBOS.list_workflows(status="SUCCESS", name="parent")) == 1


def killed(folder: Path, kills: int) -> tuple[int, int]:
    """Return how often an effect was made again, and how many processes were killed."""
    folder.mkdir()
    path, chance, done, number = folder / "out", random.Random(7), 0, 0
    while done < kills:
        number += 1
        while True:
            process = subprocess.Popen([sys.executable, __file__, str(folder), f"w{number}"])
            try:
                process.wait(1.0 + chance.random() if done < kills else 60)
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                done += 1
    lines = path.read_text().split()
    assert len(set(lines)) == number * STEPS, "an effect is missing"
    return len(lines) - len(set(lines)), done


def main() -> None:
    if len(sys.argv) > 1:
        folder, name = Path(sys.argv[1]), sys.argv[2]
        launch(folder)
        with SetWorkflowID(name):
            handle = DBOS.start_workflow(noting, str(folder / "out"), name)
        handle.get_result()
        os._exit(0)
    document = json.load(sys.stdin)
    folder = Path(document["folder"])
    launch(folder)
    cases: dict[str, str] = {
        "heartbeat timeout": "a step has a timeout, and no heartbeat",
        "continue-as-new": "a workflow starts another, and has no next run of its own",
    }
    acts = {
        "timer": timer,
        "signal": signal_,
        "query": query,
        "retry": retry,
        "cancel": cancel,
        "child": children,
        "non-determinism": non_determinism,
        "versioning": versioning,
        "search": search,
    }
    for name, act in acts.items():
        try:
            cases[name] = "yes" if act(folder) else "another outcome"
        except Exception as error:
            cases[name] = f"{type(error).__name__}: {error}"[:100]
    repeats, kills = killed(folder / "killed", document["kills"])
    cases["kill"] = "yes" if not repeats else f"{repeats} effects made again"
    report = {"version": version("dbos"), "cases": cases, "repeats": repeats, "kills": kills}
    print(json.dumps(report), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
