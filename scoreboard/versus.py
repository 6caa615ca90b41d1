"""Plait beside OpenRath 2.0.0: the same probes on both, each from its public face, in a process and
a folder of its own. Both ask one chat server on loopback. Names of probes choose some.

A probe that Plait fails is printed as loudly as one that OpenRath fails. The exit code is 1 if
Plait fails one, and 77 if OpenRath cannot be installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from score import ROOT, CannotTry, guest_programs
from tests.providers.chat_server import ChatServer

HERE = Path(__file__).parent
PROBE_S_MAX = 120

# name of the probe, how many processes it takes, and the question
PROBES = [
    ("plain_subclass", 1, "1 a Workflow subclass without super().__init__() runs"),
    ("second_process", 2, "2 a memory is recalled in a second process"),
    ("verbs", 1, "3 replay, rewind, at, diff, events, status, approve and the like are there"),
    ("edited_fork", 1, "4 editing a fork leaves its parent alone"),
    ("merged_forks", 1, "5 merging two forks keeps one common prefix"),
    ("usage_of_two", 1, "6 the usage of two agents is their sum, also on a fork"),
    ("second_hop", 1, "7 the model that was placed is there at the second hop"),
    ("forks_of_files", 1, "8 two forks do not see each other's files"),
    ("evidence_of_edit", 1, "9 the evidence of an edit says what was changed"),
    ("no_tools", 1, "10 an agent with tools=[] has no tools"),
    ("outside_sandbox", 1, "11 the local sandbox keeps commands from writing outside"),
    ("no_match", 1, "13a a query that matches nothing recalls nothing"),
    ("chinese", 1, "13b a memory in Chinese is found"),
    ("evidence_of_memory", 1, "13c a recalled memory leads to its evidence"),
    ("recalled_words", 1, "13d recalled text is not kept as the user's words"),
    ("forward_is_durable", 1, "14 a plain forward is durable"),
    ("failed_step", 1, "15 a run that failed at step 8 of 10 goes on from there"),
    ("stopped_worker", 2, "16 a run whose worker stopped after three steps is taken up at once"),
    ("two_questions", 1, "17 approving the first question does not approve the second"),
    ("unknown_program", 1, "17b a worker that does not know the program leaves the run alone"),
    ("forged_records", 1, "18 forged and deleted records are found"),
    ("odd_lines", 1, "19 a message with U+2028, U+2029, U+0085 can be loaded"),
    ("closed_writer", 1, "20 writing to a closed session does not replace it"),
    ("lone_surrogate", 1, "21 a lone surrogate does not end the session"),
    ("reloaded", 1, "22 a reloaded session has its id, parents and usage"),
    ("twenty_hops", 1, "23 20 hops of a talk of 21 KB do not multiply it"),
    ("odd_choice", 1, "24 an answer that is no choice is not taken for 'done'"),
    ("provider_error", 1, "25 a provider's error leaves a mark on the session"),
    ("unknown_backend", 1, "26 an unknown backend is refused at once"),
    ("two_writers", 1, "27a of two writers at once one is refused"),
    ("kept_after_kill", 2, "27b 1,000 writes are kept after kill -9"),
    ("fork_of_much", 1, "27c a fork of a long session costs what one of a short session does"),
]
SPEEDS = [
    ("import_cost", "import, CPU"),
    ("list_500", "list of 500 sessions, CPU"),
    ("recall_1000", "recall among 1,000 memories, CPU"),
]
NOT_PROBED = {
    "12": "references to sandboxes of forks that were collected: Plait counts none",
    "20b": "resuming onto a crashed session",
    "21a": "one flipped byte",
    "26b": "a message of 50 MB",
    "27d": "kill -9 of a worker in mid-step",
}


def reply(body: dict[str, Any]) -> Any:
    """Answer as the last message asks: by a tool call, an error, an odd choice, or a word."""
    last = body["messages"][-1]
    text = str(last.get("content") or "")
    if last["role"] == "tool":
        return "done"
    if text.startswith("tool "):
        _, name, arguments = text.split(" ", 2)
        return [(name, json.loads(arguments))]
    if "what tools?" in text:
        names = [each["function"]["name"] for each in body.get("tools") or []]
        return f"tools: {', '.join(names) or 'none'}"
    if "fail with 400" in text:
        raise ValueError(text)  # the server answers with an error
    if any("choose oddly" in str(each.get("content")) for each in body["messages"]):
        return "I weigh 2 options; best is 1"
    return "ok"


class Faulty(ChatServer):
    """Answers with status 400 where the reply is an error."""

    def next(self, asked: Any) -> Any:
        from tests.providers.wire import whole

        try:
            return super().next(asked)
        except ValueError as error:
            return whole({"error": {"message": str(error), "type": "invalid"}}, 400)


def run_probe(python: Path, script: str, probe: str, steps: int, url: str) -> dict[str, Any]:
    """Run one probe in a folder of its own; return its last report."""
    found: dict[str, Any] = {"holds": None, "saw": "no answer"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for step in range(1, steps + 1):
            asked = {"probe": probe, "step": step, "url": url, "folder": folder}
            env = {
                **{key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ},
                "HOME": folder,
                "OPENRATH_HOME": folder,
                "PLAIT_STORE": f"{folder}/.plait",
                "OPENAI_API_KEY": "none",
            }
            if script == "versus_ours.py":
                env["PYTHONPATH"] = str(ROOT / "src")
            try:
                done = subprocess.run(
                    [str(python), "-W", "ignore", str(HERE / script)],
                    input=json.dumps(asked),
                    capture_output=True,
                    text=True,
                    timeout=PROBE_S_MAX,
                    env=env,
                    cwd=folder,
                )
            except subprocess.TimeoutExpired:
                return {"holds": False, "saw": f"no answer within {PROBE_S_MAX} s"}
            if done.stdout.strip():
                found = json.loads(done.stdout.splitlines()[-1])
                if found["holds"] is not True:  # a later step would hide it
                    return found
            elif step == steps:
                found = {"holds": None, "saw": f"no answer: {done.stderr[-150:]}"}
    return found


def shown(found: dict[str, Any]) -> str:
    word = {True: "yes", False: "NO", None: "?"}[found["holds"]]
    return f"{word:3} {' '.join(str(found['saw']).split())}"


def main(names: list[str]) -> int:
    try:
        theirs = guest_programs("openrath") / "python"
    except CannotTry as error:
        print(f"not tried: {error}")
        return 77
    ours, failed = Path(sys.executable), 0
    scores = {"Plait": 0, "OpenRath": 0}
    with Faulty(reply) as server:
        for probe, steps, question in PROBES:
            if names and probe not in names:
                continue
            mine = run_probe(ours, "versus_ours.py", probe, steps, server.url)
            other = run_probe(theirs, "versus_theirs.py", probe, steps, server.url)
            failed += mine["holds"] is not True
            scores["Plait"] += mine["holds"] is True
            scores["OpenRath"] += other["holds"] is True
            print(
                f"{question}\n    Plait     {shown(mine)}\n    OpenRath  {shown(other)}", flush=True
            )
        for probe, what in SPEEDS:
            if names and probe not in names:
                continue
            mine = run_probe(ours, "versus_ours.py", probe, 1, server.url)
            other = run_probe(theirs, "versus_theirs.py", probe, 1, server.url)
            print(f"{what}\n    Plait     {mine['saw']}\n    OpenRath  {other['saw']}")
            if isinstance(mine["saw"], dict) and isinstance(other["saw"], dict):
                print(
                    f"    ratio     {other['saw']['cpu_s'] / mine['saw']['cpu_s']:.1f}", flush=True
                )
    for rows, what in NOT_PROBED.items():
        print(f"{rows} {what}: NOT PROBED")
    total = len([probe for probe, _, _ in PROBES if not names or probe in names])
    print(f"Plait {scores['Plait']} of {total}, OpenRath 2.0.0 {scores['OpenRath']} of {total}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
