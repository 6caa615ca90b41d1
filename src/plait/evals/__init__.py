"""Evaluations: a workflow on the examples of a dataset, so many trials of each, with scores.

A trial is a session, and a score is a verdict in it. An evaluation has a log of its own, with its
plan; everything else is read from the sessions. docs/evals.md shows how.
"""

from plait.evals.comparing import EvaluationDiff, compare_evaluations
from plait.evals.dataset import EvalExample, read_dataset
from plait.evals.evaluate import evaluate
from plait.evals.results import EvalTrial, Evaluation, PassRate, read_evaluation
from plait.evals.scoring import ScorerVerdict
from plait.evals.trials import TrialFacts, trial_of

__all__ = [
    "EvalExample",
    "EvalTrial",
    "Evaluation",
    "EvaluationDiff",
    "PassRate",
    "ScorerVerdict",
    "TrialFacts",
    "compare_evaluations",
    "evaluate",
    "read_dataset",
    "read_evaluation",
    "trial_of",
]
