"""The words of policies: rules, the decisions of people, and their outcomes.

from plait.policy import Ask, Policy, Refuse

A `Policy` is a list of rules: `Allow`, `Ask` and `Refuse`. A call that a rule asks about waits for
an `Approval`, which an approver answers with `Granted` or `Denied`.
"""

from plait.runtime.policy import Allow, Approval, Ask, Denied, Granted, Policy, Refuse

__all__ = ["Allow", "Approval", "Ask", "Denied", "Granted", "Policy", "Refuse"]
