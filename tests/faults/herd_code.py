"""Has the code of the workers' modules read, for all programs that are forked after its import."""

from __future__ import annotations

from plait.cluster.programs import code_of, programs_in
from plait.cluster.worker import Worker

FLOWS = "tests.cluster.flows"
PROGRAMS, CODE = programs_in([FLOWS]), code_of((FLOWS,))
__all__ = ["CODE", "PROGRAMS", "Worker"]
