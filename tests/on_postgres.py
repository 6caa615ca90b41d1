"""Which tests run on PostgreSQL, whatever address they name (`tests/support/redirect.py`).

`make test` runs a few files on PostgreSQL too. `make test-postgres` runs the laws and the tests of
sessions, runs, memories and the command line there, but for those that are named here.
"""

from __future__ import annotations

ALSO_ON_POSTGRES = {
    "cluster/test_workers.py",
    "laws/test_fence_laws.py",
    "runtime/test_fence.py",
    "runtime/test_status.py",
    "session/test_house_log.py",
    "session/test_inbox.py",
    "session/test_ledger.py",
}
"""Files that `make test` runs a second time on PostgreSQL."""

_FILE = "it edits or reads SQLite's file; laws/test_postgres_tamper.py edits tables"
_BY_ITSELF = "it has PostgreSQL by itself"
_FOLDER = "it is about the folder that a store is in"

NOT_ON_POSTGRES: dict[str, str] = {
    "session/test_traps.py::test_storage_grows_with_the_conversation_not_with_its_square": _FILE,
    # ── laws ──
    "laws/test_postgres_tamper.py": _BY_ITSELF,
    "laws/test_session_tamper.py": _FILE,
    "laws/test_durable_laws.py::"
    "test_the_same_seed_dies_at_the_same_moments_and_ends_on_the_same_head": (
        "a recall names the commit that it read, and a seed has no say in a server's numbers"
    ),
    "laws/test_store_laws.py": "its machines make stores of each kind themselves",
    "laws/test_workspace_laws.py": "its trees are in a memory store of its own",
    "laws/test_file_laws.py": "files are the same in every store",
    "laws/test_row_orders.py": "it numbers histories of a memory store anew",
    "laws/test_tree_laws.py": "it has no store",
    # ── sessions ──
    "session/test_effects.py::test_a_page_of_calls_is_read_by_index": "SQLite explains its plan",
    "session/test_regressions.py::test_what_is_shown_is_what_is_verified": _FILE,
    "session/test_regressions.py::test_moved_commit_numbers_are_found": "numbers need not be dense",
    "session/test_regressions.py::test_a_fork_costs_the_same_whatever_it_is_of": (
        "the bytes of a row are SQLite's"
    ),
    "session/test_session.py::test_the_default_store": _FOLDER,
    # ── memories ──
    "memory/test_audit.py::test_an_edit_of_rows_of_memories_is_found": _FILE,
    "memory/test_vector_finder.py::test_vectors_are_a_cache_beside_the_store": (
        "without a folder they are kept in memory"
    ),
    # ── runs ──
    "runtime/test_attacks_runs.py::test_reading_the_folder_frees_no_lock": (
        "the lock file is SQLite's"
    ),
    # ── the command line ──
    "cli/test_postgres_refusals.py": _BY_ITSELF,
    "cli/test_migrate_command.py": _BY_ITSELF,
    "cli/test_doctor.py": "doctor looks at SQLite's file and at its folder",
    "cli/test_session_commands.py::test_a_file_that_cannot_be_looked_through_is_unverified_too": (
        _FILE
    ),
    "cli/test_copy_command.py::test_bad_input": _FOLDER,
    "cli/test_first_day_in_the_shell.py::test_a_mistyped_store_makes_no_folders": _FOLDER,
    "cli/test_session_commands.py::test_init_makes_a_store_once": _FOLDER,
    "cli/test_exits.py::test_in_a_process_of_its_own": "no redirection in its process",
    "cli/test_exits.py::test_looking_makes_no_store": _FOLDER,
    "cli/test_exits.py::test_the_store_is_found_by_option_variable_and_folder": _FOLDER,
}
"""Tests and files that stay where they are, each with the reason."""
