"""The tests that `make test` leaves to CI, because of their time: together they take as long as all
others.

They are exhaustive forms (every moment, every process, every order), and tests that start servers
and interpreters. Of each subject a shorter test stays in `make test`. `make cover` takes
them, and so does a run of one file alone.
"""

from __future__ import annotations

LEFT_TO_CI: dict[str, tuple[str, ...]] = {
    "cli/test_bisect_command.py": ("test_a_terminal_of_80_columns_shows_it_whole",),
    "cli/test_chat.py": (
        "test_a_chat_with_a_model",
        "test_a_line_that_is_no_text_writes_nothing",
    ),
    "cli/test_cluster_commands.py": (
        "test_a_run_that_was_called_is_adopted",
        "test_a_signal_drains_a_worker",
        "test_a_worker_is_drained_by_its_name",
    ),
    "cli/test_doctor.py": ("test_in_a_process_of_its_own",),
    "cli/test_exits.py": ("test_in_a_process_of_its_own",),
    "cli/test_first_day_in_the_shell.py": ("test_python_m_plait_is_plait",),
    "cli/test_lanes.py": ("test_a_long_chain",),
    "cli/test_memory_commands.py": ("test_the_start_of_an_id_must_name_one",),
    "cli/test_postgres_refusals.py": (
        "test_a_password_is_nowhere",
        "test_a_standby_can_be_read_and_takes_no_writes",
    ),
    "cli/test_react.py": ("test_alternation_and_causes_hold_whatever_fails",),
    "cli/test_session_commands.py": ("test_a_big_session_is_quick",),
    "cli/test_terminal.py": ("test_it_takes_no_time",),
    "cluster/test_jobs.py": (
        "test_a_cancelled_index_is_not_tried_again",
        "test_a_failed_index_is_tried_again_and_goes_on_in_the_same_run",
        "test_a_job_outlives_workers_that_are_killed",
        "test_a_job_past_its_deadline_cancels_what_is_open_on_record",
        "test_rows_are_the_same_in_every_order",
    ),
    "cluster/test_keeping.py": (
        "test_a_new_program_is_used_from_the_next_run_on",
        "test_a_run_that_ends_is_followed_by_the_next_in_the_same_session",
        "test_a_run_that_fails_is_followed_after_a_pause_that_grows",
        "test_kept_sessions_outlive_workers_that_are_killed",
    ),
    "cluster/test_kubernetes.py": ("test_the_command_and_the_probes_of_a_document_work",),
    "cluster/test_processes.py": (
        "test_the_command_keeps_workers_and_a_signal_drains_them",
        "test_workers_whose_starter_is_killed_drain",
    ),
    "cluster/test_workers.py": ("test_a_run_is_cancelled_at_its_deadline",),
    "copying/test_copying.py": ("test_cut_off_at_every_write", "test_killed_again_and_again"),
    "faults/test_cluster_kills.py": (
        "test_a_bell_that_is_lost_delays_a_run_and_no_more",
        "test_workers_of_two_revisions_side_by_side",
    ),
    "faults/test_disk.py": ("test_a_disk_that_fails_anywhere_is_a_typed_error_and_no_loss",),
    "faults/test_kill_forward.py": ("test_killed_at_every_moment",),
    "faults/test_postgres_holders.py": (
        "test_a_restarted_server_does_not_give_runs_away",
        "test_who_lost_a_run_over_the_network_pays_nobody",
    ),
    "faults/test_postgres_kill.py": ("test_clients_stopped_at_every_statement",),
    "faults/test_postgres_outages.py": (
        "test_a_dump_is_restored_into_a_server_with_lower_transaction_ids",
        "test_a_run_whose_server_stays_away_is_resumed_later",
        "test_a_standby_is_promoted_under_load",
        "test_events_that_stand_are_not_acknowledged_before_a_standby_has_them",
        "test_the_server_is_killed_again_and_again_under_load",
    ),
    "faults/test_postgres_pressure.py": (
        "test_a_full_disk_of_the_server_loses_nothing",
        "test_a_server_whose_transactions_are_stricter_than_ours",
        "test_a_wait_that_the_server_ends_is_a_typed_error",
    ),
    "faults/test_tamper.py": (
        "test_each_kind_of_edit_is_found_and_named",
        "test_values_of_another_type_are_typed_errors",
    ),
    "faults/test_writers.py": ("test_a_forked_child_that_ends_normally_does_no_harm",),
    "mcp/test_mcp_tools.py": (
        "test_a_fork_has_its_own_connection",
        "test_a_silent_call_ends_at_its_time",
        "test_http_headers_loss_and_return",
        "test_no_child_is_left_when_the_program_ends",
        "test_no_child_is_left_when_the_program_is_killed",
        "test_the_time_server_over_http",
    ),
    "memory/test_crowd.py": ("test_every_read_and_token_of_a_crowd_is_accounted_for",),
    "memory/test_index.py": (
        "TestPlain::test_one_of_500_is_found",
        "TestPlainFile::test_one_of_500_is_found",
    ),
    "memory/test_keys.py": ("test_a_rollback_takes_a_memory_along_that_was_written_meanwhile",),
    "memory/test_strategies.py": ("test_a_row_of_the_scoreboard_works",),
    "memory/test_words.py": ("test_stems_are_those_of_fts5",),
    "providers/test_chat_server.py": (
        "test_a_call_whose_outcome_is_not_known_is_resolved",
        "test_twenty_clients_at_once",
    ),
    "runtime/test_attacks.py": ("test_whatever_comes_of_a_tool_is_settled",),
    "runtime/test_bisect.py": (
        "test_a_command_that_does_not_end_is_bad",
        "test_a_step_among_200_takes_9_runs_at_most",
    ),
    "runtime/test_budgets_of_branches.py": ("test_tokens_steps_and_dollars_are_bounded_alike",),
    "runtime/test_debug.py": ("test_the_values_at_50_random_steps_are_those_that_were_there",),
    "runtime/test_drivers.py": ("test_whatever_the_seed_says_histories_are_in_order",),
    "runtime/test_fingerprint_reach.py": (
        "test_a_file_that_has_the_name_of_a_module_of_the_library_is_the_programs_own",
        "test_a_value_is_the_same_in_every_process_or_is_said_to_be_unknown",
    ),
    "runtime/test_fingerprints.py": (
        "test_a_seed_gives_one_head_whatever_order_sets_have",
        "test_consent_for_what_cannot_be_read_does_not_outlive_its_process",
        "test_the_same_source_has_the_same_versions_in_every_process",
    ),
    "runtime/test_insiders.py": ("test_no_process_of_a_run_decides",),
    "runtime/test_interrupts.py": (
        "test_ctrl_c_stops_the_next_effect_in_threads_that_forward_started",
    ),
    "runtime/test_live_secrets.py": ("test_a_fault_that_nobody_caught_is_told_without_secrets",),
    "runtime/test_memory_runs.py": ("test_killed_at_every_write_it_remembers_as_if_never_killed",),
    "runtime/test_pauses.py": ("test_every_order_of_acts_leads_on",),
    "runtime/test_policy.py": (
        "test_a_digest_is_the_same_in_every_process",
        "test_two_bindings_are_the_same_only_for_the_same_arguments",
    ),
    "runtime/test_prompts.py": ("test_what_was_sent_can_be_rebuilt_whatever_happened",),
    "runtime/test_publishing.py": ("test_what_the_configuration_of_git_has_run_is_not_published",),
    "runtime/test_round_trips.py": (
        "test_a_long_recording_is_read_by_pages",
        "test_no_verb_takes_more_statements_in_a_larger_store",
    ),
    "runtime/test_tracebacks.py": ("test_they_end_in_the_line_of_the_program",),
    "runtime/test_turns_of_children.py": ("test_a_process_of_a_run_takes_no_turn_on_its_session",),
    "runtime/test_whatif.py": ("test_at_every_place_the_past_is_kept_and_the_rest_is_live",),
    "sandbox/test_held_files.py": (
        "test_a_file_that_was_removed_while_open_is_counted",
        "test_memory_in_the_shape_of_a_file_is_counted",
    ),
    "sandbox/test_limits.py": ("test_much_output_is_kept_whole_and_not_in_memory",),
    "session/test_house_log.py": ("test_a_process_that_is_killed_leaves_whole_acts",),
    "session/test_ledger.py": ("test_every_sum_equals_the_ledger",),
    "store/test_buckets.py": (
        "test_a_bucket_that_refuses_is_a_typed_error",
        "test_a_kill_between_upload_and_commit_leaves_an_object_that_is_swept",
    ),
    "store/test_many_blobs.py": ("test_many_blobs_take_few_statements",),
    "store/test_postgres_servers.py": ("test_a_server_ends_with_its_run",),
    "tools/test_browser.py": ("test_what_is_on_a_page_stays_from_call_to_call",),
    "tools/test_desktop.py": ("test_a_text_is_typed_and_saved_to_the_workspace",),
    "workspace/test_blame.py": ("test_two_hundred_versions_of_a_long_file",),
    "workspace/test_copies.py": ("test_killed_anywhere_the_next_one_finds_the_right_files",),
    "workspace/test_locked.py": ("test_placing_changes_no_mode_and_copies_nothing_that_is_locked",),
}
"""Names of tests, by file: without what stands in brackets."""
