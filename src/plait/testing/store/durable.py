"""The things that a contract has to know about a store."""

from __future__ import annotations


class DurablePart:
    """A part of the contract that asks more of some stores than of others.

    `durable`: the store outlives its process. `dense` and `folds_inside` are those of the store.
    `bells_reach`: a bell rings in other processes.
    """

    durable = True
    dense = True
    folds_inside = True
    bells_reach = True
