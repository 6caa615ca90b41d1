"""Which tests run a second time with a worker as the one who resumes (`tests/support/resuming.py`).

With PLAIT_TEST_RESUME=worker, all tests do, but for those that are named here.
"""

from __future__ import annotations

ALSO_BY_WORKER = {
    "laws/test_durable_laws.py::test_kill_anywhere_and_resume",
    "laws/test_durable_laws.py::test_others_between_a_death_and_the_next_life",
    "runtime/test_approvals_meanwhile.py",
    "runtime/test_open_runs.py",
    "runtime/test_patches.py",
    "runtime/test_pauses.py",
    "runtime/test_waiting.py",
}
"""Files and tests that `make test` runs a second time."""

NOT_BY_WORKER: dict[str, str] = {
    "runtime/test_round_trips.py": "it counts statements, and a claim of one run has its own",
}
