"""Which fault or test of ours stands for each row of the fault matrix beside the corpora, in our own words.

`fault:NAME` is one of `make faults`, anything else a test. A row that does not apply says why.
"""

from __future__ import annotations

from typing import Final

_SDK: Final = "tests/providers/test_faults.py::test_a_fault_is_classified_in_bounded_time"
_LOOP: Final = "tests/runtime/loop/test_loop.py::"
_WORKER: Final = "tests/runtime/tools/test_isolation.py::"
_RESUME: Final = "tests/evidence/recording/test_resume.py::"
_REPLAY: Final = "tests/evidence/checking/test_replay.py::"
_SAMPLE: Final = "tests/faults/test_survival.py::"
_GROUPS: Final = "tests/runtime/journal/test_kept_groups.py::"
_WIRE: Final = "tests/runtime/workspace/test_http.py::"

COVERED: Final[dict[str, tuple[str, ...]]] = {
    # storage: ours is one journal, and the ledger is made anew from it
    "S1": (
        "fault:kill.run",
        "fault:kill.step",
        "fault:kill.together",
        "fault:kill.hooks",
        _SAMPLE + "test_a_kill_at_a_call_is_survived",
        _GROUPS + "test_dying_at_any_write_with_several_calls_open",
    ),
    "S2": ("fault:kill.torn", "fault:journal.cut", "tests/runtime/journal/test_journal.py::test_cut_at_every_byte"),
    "S3": ("fault:journal.resume", _RESUME + "test_a_torn_tail_is_cut_off_and_reported"),
    "S4": ("fault:journal.zeros", "fault:power.tail", "tests/runtime/journal/test_journal.py::test_zeros"),
    "S5": ("fault:journal.bits", "tests/runtime/journal/test_journal.py::test_flipped_bits"),
    "S6": ("fault:journal.lines", "tests/runtime/journal/test_journal.py::test_lines_doubled_swapped_or_lost"),
    "S7": ("fault:power.cut", "fault:power.unsynced"),
    "S8": ("fault:mount.full", "fault:place.full", "fault:place.limit", "fault:error.for_good"),
    "S9": ("fault:error.once", "fault:error.close", "fault:error.resume"),
    "S10": ("fault:error.short", "fault:error.interrupted"),
    "S11": ("fault:kill.replace", "fault:error.once"),
    "S12": ("fault:place.read_only", "fault:place.user"),
    "S13": ("fault:place.meanwhile", "fault:place.swapped"),
    "S14": ("fault:place.two", "tests/evidence/recording/test_record.py::test_many_at_once_leave_one_whole_run"),
    "S15": ("fault:limit.files", "fault:leak.files", "fault:tool.memory"),
    "S16": ("fault:kill.resume", "fault:kill.resume.all"),
    "S17": ("fault:power.unsynced", "fault:power.tail"),
    # processes and signals
    "P1": ("fault:signal.tool", "fault:signal.write", _SAMPLE + "test_a_signal_suspends_or_ends_a_run"),
    "P2": ("fault:signal.twice", "fault:signal.wait", "fault:error.signal"),
    "P3": ("fault:output.closed", "fault:signal.hangup"),
    "P4": ("fault:signal.stop",),
    "P5": (
        "fault:clock.jump",
        "tests/evidence/recording/test_unfinished.py::test_a_live_run_goes_on_after_its_last_stamp",
    ),
    "P6": ("fault:tool.rogue", _WORKER + "test_hanging_tools_are_cut_off_and_all_they_started"),
    "P7": ("tests/evidence/checking/test_environment.py::test_all_runs_give_the_same_bytes",),
    # tools
    "T1": ("fault:tool.rogue", "fault:run.deadline", _WORKER + "test_hanging_tools_are_cut_off_and_all_they_started"),
    "T2": ("fault:tool.rogue", _WORKER + "test_hanging_tools_are_cut_off_and_all_they_started"),
    "T3": ("fault:tool.rogue", "fault:exit.tool", _LOOP + "test_each_happening_has_its_mode_and_ending"),
    "T4": ("fault:tool.rogue", "tests/faults/test_rogues.py::test_a_rogue_is_contained"),
    "T5": ("fault:tool.heavy", _LOOP + "test_a_result_over_the_byte_budget_is_decided_under_its_tool_call"),
    "T6": ("tests/tables/test_outputs.py::test_no_text_changes_more_than_words",),
    "T7": (
        "fault:kill.run",
        "fault:orphan.probe",
        _RESUME + "test_a_call_in_doubt_waits_for_a_person",
        _GROUPS + "test_each_call_in_doubt_is_named_and_may_be_answered_at_once",
    ),
    "T8": (_LOOP + "test_used_up_retries_end_with_one_attempt_more_than_retries", "fault:kill.run"),
    "T9": ("fault:tool.rogue", _LOOP + "test_attempts_of_a_call_share_their_key_and_get_fresh_arguments"),
    # the model and what lies between
    "L1": ("tests/properties/test_runs.py::test_everything_ends_in_a_sound_record_or_one_complaint",),
    "L2": ("tests/providers/test_failures.py::test_retry_after", _LOOP + "test_retry_after_counts_up_to_the_cap"),
    "L3": ("tests/providers/test_failures.py::test_a_status_decides", _SDK),
    "L4": (_SDK, _WIRE + "test_a_trickle_does_not_outlast_the_deadline"),
    "L5": (_SDK, _WIRE + "test_a_reset_is_a_connection_error"),
    "L6": (_SDK, _WIRE + "test_a_broken_answer_is_a_connection_error"),
    "L7": (_SDK, _WIRE + "test_an_endless_body_is_left_early"),
    "L8": (_SDK,),
    "L9": (_SDK, _LOOP + "test_a_redirect_hop_is_a_late_decision_under_its_attempt"),
    "L10": (
        _LOOP + "test_missing_or_impossible_usage_is_counted_in_bytes",
        _LOOP + "test_an_absurd_usage_ends_the_budget_for_tokens",
    ),
    "L11": (_WIRE + "test_a_name_without_address_is_refused", _WIRE + "test_proxy_variables_are_not_read"),
    # what is observed and made again
    "O1": ("tests/tracing/test_live.py::test_a_bad_collector_costs_spans_and_a_bounded_wait",),
    "O2": ("fault:kill.run", "tests/evidence/checking/test_verify.py::test_an_artefact_is_named_by_its_first_line"),
    "O3": (_RESUME + "test_changed_inputs_are_refused_and_named",),
    "O4": (
        _RESUME + "test_a_run_that_leaves_its_journal_is_refused",
        _REPLAY + "test_a_changed_record_does_not_replay",
    ),
    "O5": (_REPLAY + "test_a_record_of_another_schema_is_refused_with_a_way_forward",),
    "O6": ("tests/evidence/checking/test_tampering.py::test_a_changed_byte_of_a_file_is_named",),
}  # fmt: skip
# id: why it does not apply to us
NOT_OURS: Final[dict[str, str]] = {}
