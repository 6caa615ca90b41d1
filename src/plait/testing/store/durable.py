"""The one thing that a contract has to know about a store."""

from __future__ import annotations


class DurablePart:
    """A part of the contract that asks more of stores that outlive their process."""

    durable = True
