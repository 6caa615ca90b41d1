"""Has the code of the workers' modules read, for all programs that are forked after its import."""

from __future__ import annotations

from plait.cluster.programs import code_of, served_programs
from plait.cluster.worker import Worker

FLOWS = "tests.cluster.flows"
PROGRAMS, CODE = served_programs([FLOWS]), code_of((FLOWS,))
__all__ = ["CODE", "PROGRAMS", "Worker"]
