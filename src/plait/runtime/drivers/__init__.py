"""Drivers: they run one generator of waits, each in its own way of waiting.

`blocking.py` waits in the caller's thread, `on_loop.py` on the caller's event loop; a simulation
(`plait.testing.Simulation`) waits for nothing. `models.py` and `tools.py` have the parts that they
share: an ask of a model and a run of a tool, with every error as a value.
"""
