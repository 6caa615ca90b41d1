"""Memory on long conversations: how much of the evidence for a question is recalled.

LoCoMo (Maharana et al., ACL 2024) has conversations of two people over months, and questions with
the ids of the turns that hold the answer. All conversations go into one store, each as a user of
its own, each of its talks as a session. Every question of category 1 to 4 with valid ids is asked
in the name of its user; recall@k is the mean share of its evidence among the first k items. No
language model takes part.

The data set is not ours to ship (CC BY-NC 4.0): `PLAIT_LOCOMO` names its JSON file, or a folder of
such files. A turn is its text and, where a picture was sent, the picture's caption; the dates of
talks are left out. Contestants are processes, as in `peers.py`; without `--peers` only Plait takes
part.

    PLAIT_LOCOMO=locomo10.json python benchmarks/locomo.py [--date YYYY-MM-DD] [--peers PYTHON]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from measure import Row, machine, percentile, print_table, write_json
from peers import RESULTS, Bench, Contestant, Failed

OURS = (
    Contestant("Plait", "plait_memory.py", "words", ours=True),
    Contestant("Plait, vectors", "plait_memory.py", "vectors", ours=True),
)
PEERS = (
    Contestant("OpenRath", "openrath_memory.py"),
    Contestant("LangGraph, vectors", "langgraph_memory.py"),
)
TARGETS = {"Plait": (">= 0.65", ">= 0.74"), "Plait, vectors": (">= 0.67", ">= 0.76")}
CATEGORIES = (1, 2, 3, 4)  # the fifth has no answer in the conversation
KS = (5, 10)


class Question(NamedTuple):
    user: str
    text: str
    evidence: frozenset[str]
    category: int


class Conversation(NamedTuple):
    user: str
    talks: list[list[dict[str, str]]]
    questions: list[Question]


# ── the data ─────────────────────────────────────────────────────────────────────────────────


def conversations(path: Path) -> list[Conversation]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [
        conversation(document) for file in files for document in json.loads(file.read_text("utf-8"))
    ]


def conversation(document: dict[str, Any]) -> Conversation:
    user, said = document["sample_id"], document["conversation"]
    numbers = sorted(
        int(name.split("_")[1]) for name in said if name.startswith("session_") and name[-1] != "e"
    )
    talks = [[turn(user, each) for each in said[f"session_{number}"]] for number in numbers]
    known = {each["id"] for talk in talks for each in talk}
    questions = [question(user, each, known) for each in document["qa"]]
    asked = [each for each in questions if each.evidence and each.category in CATEGORIES]
    return Conversation(user, talks, asked)


def turn(user: str, said: dict[str, Any]) -> dict[str, str]:
    text = " ".join(filter(None, (said["text"].strip(), said.get("blip_caption"))))
    return {"id": f"{user} {said['dia_id']}", "speaker": said["speaker"], "text": text}


def question(user: str, asked: dict[str, Any], known: set[str]) -> Question:
    named = {f"{user} {each}" for each in asked.get("evidence", ())}
    return Question(user, asked["question"], frozenset(named & known), asked["category"])


# ── the contest ──────────────────────────────────────────────────────────────────────────────


def measure(bench: Bench, contestant: Contestant, data: list[Conversation]) -> list[Row]:
    """Ingest everything, ask everything, and return the rows of a contestant."""
    try:
        worker = bench.start(contestant)
    except Failed as why:
        return [Row(f"{contestant.name}: recall@5", f"failed: {why}")]
    try:
        taken = [worker.ask("ingest", user=each.user, talks=each.talks)["value"] for each in data]
        answers = [
            (each, worker.ask("recall", user=each.user, question=each.text)["value"])
            for conversation in data
            for each in conversation.questions
        ]
    except Failed as why:
        return [Row(f"{contestant.name}: recall@5", f"failed: {why}")]
    finally:
        worker.end()
    return [
        *recall_rows(contestant.name, [(asked, answer["value"]) for asked, answer in answers]),
        *time_rows(contestant.name, data, taken, [answer for _, answer in answers]),
    ]


def recall_rows(name: str, answers: list[tuple[Question, list[str]]]) -> list[Row]:
    rows: list[Row] = []
    for k, target in zip(KS, TARGETS.get(name, ("-", "-")), strict=True):
        shares = [(asked, share(asked.evidence, found[:k])) for asked, found in answers]
        facts: dict[str, object] = {"questions": len(shares)}
        for category in CATEGORIES:
            part = [value for asked, value in shares if asked.category == category]
            facts[f"category {category}"] = round(statistics.fmean(part), 4) if part else None
        mean = statistics.fmean(value for _, value in shares)
        rows.append(Row(f"{name}: recall@{k}", f"{mean:.4f}", target=target, facts=facts))
    return rows


def share(evidence: frozenset[str], found: list[str]) -> float:
    return len(evidence & set(found)) / len(evidence)


def time_rows(
    name: str,
    data: list[Conversation],
    taken: list[dict[str, Any]],
    answers: list[dict[str, Any]],
) -> list[Row]:
    turns = sum(len(talk) for each in data for talk in each.talks)
    ingest = sum(each["cpu"] for each in taken) / turns
    asked = [each["cpu"] for each in answers]
    p50, p95 = percentile(asked, 50), percentile(asked, 95)
    return [
        Row(f"{name}: ingest a turn, CPU", f"{ingest * 1e3:.2f} ms", facts={"turns": turns}),
        Row(f"{name}: recall, CPU p50 / p95", f"{p50 * 1e3:.2f} / {p95 * 1e3:.2f} ms"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--date", default="", help="the date to write into the results; today if not given"
    )
    parser.add_argument(
        "--peers", default="", help="the interpreter of the peers; without it they do not take part"
    )
    asked = parser.parse_args()
    path = os.environ.get("PLAIT_LOCOMO", "")
    if not path:
        sys.exit("PLAIT_LOCOMO names no data: set it to LoCoMo's JSON file, or to its folder.")
    data = conversations(Path(path))
    RESULTS.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=RESULTS))
    bench = Bench(scratch, asked.peers, quick=False, patient=False)
    rows: list[Row] = []
    try:
        for contestant in (*OURS, *(PEERS if asked.peers else ())):
            rows += measure(bench, contestant, data)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print_table(rows)
    for name, said in bench.about.items():
        print(f"{name}: {said['version']}; {said['settings']}")
    questions = sum(len(each.questions) for each in data)
    facts = machine(RESULTS, asked.date) | {"conversations": len(data), "questions": questions}
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    write_json(RESULTS / "locomo.json", facts, rows)


if __name__ == "__main__":
    main()
