"""Evaluations: trials that are begun once, scores with evidence, and what is refused first."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from plait import Session, Workflow, open_store
from plait.errors import InvalidValue, ScorerFailed, UnknownRevision
from plait.evals import evaluate, read_dataset, read_evaluation, trial_of
from plait.evals.trials import open_trial, trial_log
from tests.evals.program import ROWS, Adder, document_of, score_brief, score_sum
from tests.support import count_calls, report, run_module

SCORERS = [score_sum, score_brief]


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.long
def test_an_evaluation_killed_ten_times_goes_on_where_it_was(jobs: int, tmp_path: Path) -> None:
    whole = run_module(
        "tests.evals.program", str(tmp_path / "whole"), str(tmp_path / "once"), "0", str(jobs)
    )
    assert whole.returncode == 0, whole.stderr
    store, effects = str(tmp_path / "killed"), tmp_path / "effects"
    for kill_at in (1, 2, 3, 4, 5, 6, 7, 8, 3, 5):
        killed = run_module("tests.evals.program", store, str(effects), str(kill_at), str(jobs))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    last = run_module("tests.evals.program", store, str(effects), "0", str(jobs))
    assert last.returncode == 0, last.stderr
    assert without_steps(json.loads(last.stdout)) == without_steps(json.loads(whole.stdout))
    found = read_evaluation("main", open_store(store))
    made = Counter(effects.read_text().split())
    assert set(made) == {f"{each.example}#{each.number}" for each in found.trials}
    if jobs == 1:  # with more, a tool may be at work in one thread while another one kills
        assert set(made.values()) == {1}
    for trial in found.trials:
        session = Session.open(trial.session, store=store)
        assert len(session.runs) == 1 and session.runs[0].status == "finished"
        assert Counter([each.name for each in session.checks.verdicts]) == {
            "score_sum": 1,
            "score_brief": 1,
        }
    report(f"evaluation with {jobs} jobs", f"10 kills, {len(found.trials)} trials, each once")


def without_steps(document: Any) -> Any:
    """Leave out the asks: one that a kill cut off counts, since it may have to be paid."""
    for part in (document, *document["trials"]):
        del part["steps"]
    return document


def test_two_evaluations_of_one_seed_are_equal(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")

    def result(name: str, seed: int, jobs: int = 1) -> Any:
        found = evaluate(
            ROWS, Adder, scorers=SCORERS, name=name, k=3, seed=seed, jobs=jobs, store=store
        )
        return document_of(found)

    first = result("a", 7)
    assert result("b", 7, jobs=4) == first
    assert result("a", 7) == first  # nothing is left to do
    other = result("c", 8)
    assert [each["end"] for each in other["trials"]] != [each["end"] for each in first["trials"]]


def test_scores_are_verdicts_with_evidence(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    found = evaluate(ROWS, Adder, scorers=SCORERS, k=3, seed=7, store=store)
    assert found.pass_at_1 is not None and found.pass_power_k is not None
    passed = [each for each in found.trials if each.end == "passed"]
    assert found.pass_at_1.value == pytest.approx(len(passed) / 18)
    assert found.pass_power_k.value <= found.pass_at_1.value
    assert found.pass_at_1.low < found.pass_at_1.value < found.pass_at_1.high
    assert (found.steps, found.tool_calls) == (36, 18)
    failed = [each for each in found.trials if each.end == "failed"]
    assert failed and {(each.why, each.last_step) for each in failed} == {("score_sum", "reply")}
    assert [(each.last_step, each.count) for each in found.failures] == [("reply", len(failed))]
    session = Session.open(failed[0].session, store=store)
    assert session.id == trial_log(store.id, "main", failed[0].example, failed[0].number)
    said, brief = session.checks.verdicts
    assert (said.name, said.passed, said.actor) == ("score_sum", False, "service:eval")
    assert [each for each in said.evidence] == [session.effects[-1].outcome.id]  # pyright: ignore[reportOptionalMemberAccess]
    assert brief.evidence == (session.events[session.runs[0].last - 1].id,)  # pyright: ignore[reportOptionalOperand]


class Failing(Workflow):
    def forward(self, session: Session) -> Session:
        if trial_of(session).example == "e2":
            raise RuntimeError("no such table")
        if trial_of(session).example == "e3":
            session.ask("May I?")
        return session.say("3", role="assistant")


def test_runs_that_fail_or_wait_are_trials_that_did_not_pass(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    for _ in range(2):  # the second time nothing is tried again
        found = evaluate(ROWS[:3], Failing, scorers=[score_brief], store=store)
        ends = [(each.end, each.run) for each in found.trials]
        assert ends == [("passed", "finished"), ("failed", "failed"), ("failed", "waiting")]
        assert "no such table" in found.trials[1].why
        assert len(Session.open(found.trials[1].session, store=store).runs) == 1


def test_more_trials_are_added_and_other_plans_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    first = evaluate(ROWS[:2], Adder, scorers=SCORERS, k=1, store=store)
    more = evaluate(ROWS[:2], Adder, scorers=SCORERS, k=2, store=store)
    assert {each.session for each in first.trials} < {each.session for each in more.trials}
    for how in ({"seed": 1}, {"k": 1}, {"scorers": [score_sum]}):
        given: dict[str, Any] = {"scorers": SCORERS, "k": 2, "store": store, **how}
        with pytest.raises(InvalidValue, match="--name"):
            evaluate(ROWS[:2], Adder, **given)
    with pytest.raises(InvalidValue, match="other examples"):
        evaluate(ROWS[1:3], Adder, scorers=SCORERS, k=2, store=store)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"id": "a", "input": "x"}\n{"id": "a", "input": "y"}', "line 2: field id"),
        ('{"input": "x"}\n\n{"id": 3}', "line 3: field input: it is missing"),
        ('{"input": "  "}', "line 1: field input"),
        ('{"input": "x", "id": []}', "line 1: field id"),
        ('{"input": "x", "args": 3}', "line 1: field args"),
        ('{"input": "x"', "line 1: it is not JSON"),
        ("[1]", "line 1: it is a list"),
        ("", "it has no examples"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_field(text: str, told: str, tmp_path: Path) -> None:
    file, store = tmp_path / "tasks.jsonl", open_store(tmp_path / "store")
    file.write_text(text)
    with pytest.raises(InvalidValue) as refused:
        evaluate(file, Adder, scorers=SCORERS, store=store)
    assert str(refused.value).startswith(str(file)) and told in str(refused.value)
    assert Session.list(store=store) == []


class Unmade(Workflow):
    def __init__(self) -> None:
        raise OSError("no key")


def test_bad_input_is_refused_before_the_first_session(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"k": 0}, "k: 0"),
        ({"jobs": 0}, "jobs: 0"),
        ({"scorers": [score_sum, score_sum]}, "two scorers have the name score_sum"),
        ({"scorers": []}, "there is none"),
        ({"workflow": lambda: 3}, "a int is not a workflow"),
        ({"examples": [{"input": "x", "args": {"speed": 3}}]}, "speed"),
    ]
    for given, told in cases:
        call: dict[str, Any] = {
            "examples": ROWS,
            "workflow": Adder,
            "scorers": SCORERS,
            "store": store,
            **given,
        }
        with pytest.raises((InvalidValue, TypeError), match=told):
            evaluate(call.pop("examples"), call.pop("workflow"), **call)
    with pytest.raises(OSError, match="no key"):
        evaluate(ROWS, Unmade, scorers=SCORERS, store=store)
    with pytest.raises(UnknownRevision):
        read_evaluation("main", store)
    assert Session.list(store=store) == []


def test_a_scorer_that_raises_is_corrected_and_the_evaluation_goes_on(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")

    def score_it(session: Session) -> bool:
        return trial_of(session).row["nothing"] == 1

    with pytest.raises(ScorerFailed, match=r"score_it gave no verdict on e1 #1"):
        evaluate(ROWS[:2], Adder, scorers=[score_it], store=store)
    before = read_evaluation("main", store)
    assert before.unfinished == 2 and before.pass_at_1 is None

    def corrected(session: Session) -> bool:
        return True

    corrected.__name__ = "score_it"
    after = evaluate(ROWS[:2], Adder, scorers=[corrected], store=store)
    assert [each.end for each in after.trials] == ["passed", "passed"]
    assert len(Session.open(after.trials[0].session, store=store).runs) == 1


def test_rows_of_a_program_are_numbered() -> None:
    assert [each.id for each in read_dataset([{"input": "x"}, {"input": "y"}])] == ["1", "2"]


def test_the_calls_of_an_evaluation_grow_with_its_trials_alone() -> None:
    """The work per session is the same in a dataset four times as large."""

    def act(count: int) -> None:
        store = open_store(f"memory:growth-{count}")
        rows = [{"id": f"e{n}", "input": "1 + 2", "expected": 3} for n in range(count)]
        evaluate(rows, Adder, scorers=SCORERS, store=store)

    act(2)  # what is loaded once
    small, large = count_calls(lambda: act(5)), count_calls(lambda: act(20))
    assert large <= small * 4 * 1.1


def test_an_evaluation_takes_few_calls_beside_its_workflow() -> None:
    """Opening with a derived id, two verdicts, and the result: counted, since time is not."""
    count = 20
    rows = [{"id": f"e{n}", "input": "1 + 2", "expected": 3} for n in range(count)]

    def alone(name: str) -> None:
        store = open_store(f"memory:{name}")
        for example in read_dataset(rows):
            Adder()(open_trial(store, "alone", example, 1, 0, None))

    def whole(name: str) -> None:
        evaluate(rows, Adder, scorers=SCORERS, store=open_store(f"memory:{name}"))

    alone("first")  # what is loaded once
    whole("second")
    own = count_calls(lambda: whole("third")) - count_calls(lambda: alone("fourth"))
    report("evaluation", f"{own // count:,} calls per session beside the workflow")
    assert own / count <= 5000
