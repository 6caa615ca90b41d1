"""Errors about effects: something was tried, and is on record."""

from __future__ import annotations

from typing import Any

from plait.errors.base import PlaitError, brief, without_full_stop


class EffectError(PlaitError):
    """Something was tried and failed. It is on record, and `session` is the value after it."""

    session: Any = None  # None: not known
    _step: str = ""

    def __init__(self, text: str, step: str = "") -> None:
        """`step` is for the caller in Python: it is not recorded."""
        super().__init__(f"{text} {step}" if step else text)
        self._step = step

    @property
    def record_text(self) -> str:
        return str(self).removesuffix(self._step).rstrip()


_GO_ON = "It is recorded; go on from error.session."


class ToolFailed(EffectError):
    """A tool that the program used failed."""

    def __init__(self, tool: str, kind: str, message: str, session: Any = None) -> None:
        self.tool, self.kind, self.message, self.session = tool, kind, message, session
        super().__init__(f"{tool} failed: {kind}: {without_full_stop(message)}.", _GO_ON)


class ModelFailed(EffectError):
    """The model did not answer, after every attempt that made sense."""

    def __init__(
        self, model: str, kind: str, message: str, attempts: int, session: Any = None
    ) -> None:
        self.model, self.kind, self.message, self.attempts, self.session = (
            model,
            kind,
            message,
            attempts,
            session,
        )
        tried = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(
            f"{model} did not answer, asked {tried}: {kind}: {without_full_stop(message)}.", _GO_ON
        )


class ResultInvalid(EffectError):
    """The model's answer does not have the type that was asked for, also after it was told why."""

    def __init__(self, agent: str, type: str, why: str, session: Any = None) -> None:
        self.agent, self.type, self.why, self.session = agent, type, why, session
        super().__init__(
            f"{agent} was to return {type}: {without_full_stop(why)}.",
            "The answers are recorded; ask for less, or go on from error.session.",
        )


class ChoiceInvalid(EffectError):
    """The model chose none of the candidates, also after it was told their names."""

    def __init__(
        self, selector: str, answer: str, candidates: tuple[str, ...], session: Any = None
    ) -> None:
        self.selector, self.answer, self.candidates, self.session = (
            selector,
            answer,
            candidates,
            session,
        )
        super().__init__(
            f"{selector} was to choose one of {', '.join(candidates)}, and answered"
            f" {brief(answer)}.",
            "The answers are recorded; describe the candidates better, choose by a rule, or go on"
            " from error.session.",
        )


class InstructionFailed(EffectError):
    """The function that gives an agent its instruction raised, or returned none."""

    def __init__(self, agent: str, function: str, why: str, session: Any = None) -> None:
        self.agent, self.function, self.why, self.session = agent, function, why, session
        super().__init__(
            f"{agent} has no instruction: {function} failed: {without_full_stop(why)}. Mend the"
            " function, and resume the run."
        )


class GuardRefused(EffectError):
    """A guard did not let the input, or the answer, of an agent pass.

    `message` is the id of the input; "": it is about an answer.
    """

    def __init__(
        self,
        agent: str,
        guard: str,
        what: str,
        reason: str,
        session: Any = None,
        message: str = "",
    ) -> None:
        self.agent, self.guard, self.what, self.reason = agent, guard, what, reason
        self.session, self.message = session, message
        super().__init__(
            f"{guard} rejects the {what} of {agent}: {without_full_stop(reason)}.", _GO_ON
        )


class GuardFailed(EffectError):
    """A guard raised, or returned something that is no verdict.

    `unjudged` is the id of the message that it was to judge; "": it was to judge an answer.
    """

    def __init__(self, guard: str, why: str, session: Any = None, unjudged: str = "") -> None:
        self.guard, self.why, self.session = guard, why, session
        self.unjudged = unjudged
        super().__init__(
            f"the guard {guard} failed: {without_full_stop(why)}. Mend it, and resume the run."
        )


class DelegationRefused(EffectError):
    """Workflows that have each other as tools called each other too deep."""

    def __init__(self, tool: str, depth: int, session: Any = None) -> None:
        self.tool, self.depth, self.session = tool, depth, session
        super().__init__(
            f"{tool} was not called: {depth} workflows wait for each other already, each called as"
            " a tool of the one before. Answer without it, or do not let them call each other."
        )


class BudgetExceeded(EffectError):
    """The budget does not allow it. Nothing was spent on it; the refusal is on record."""

    def __init__(
        self, limit: str, asked: float, left: float, session: Any = None, why: str = ""
    ) -> None:
        self.limit, self.asked, self.left, self.session, self.why = limit, asked, left, session, why
        is_unpriced = limit == "cost_usd" and not asked  # more would not help
        less = (
            'ask for less, with a shorter prompt or a smaller parameters={"tokens_max": …}; or '
            if limit in ("tokens", "cost_usd")
            else ""
        )
        more = "grant more, with session.budget.grant(Budget(…)) or `plait grant`, and resume; or "
        step = "" if is_unpriced else f"{more}{less}"
        super().__init__(
            "the budget does not allow it:"
            f" {why or f'{limit}, {asked:g} asked for and {left:g} left'}.",
            f"It is recorded; {step}go on from error.session.",
        )


class BranchFailed(EffectError):
    """A branch of a Parallel failed, so the others were stopped.

    `__cause__` is its error; `branches` holds every branch as it stands.
    """

    def __init__(
        self, branch: str, why: str, session: Any = None, branches: dict[str, Any] | None = None
    ) -> None:
        self.branch, self.why, self.session, self.branches = branch, why, session, branches or {}
        super().__init__(
            f"branch {branch!r} failed: {without_full_stop(why)}. Nothing was merged.",
            "The branches are in error.branches.",
        )
