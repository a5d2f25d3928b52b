"""Faults that users of other systems reported, and the tests that hold the right behaviour here.

One entry a fault: what has to be right, and the tests without which nobody would notice that it is not. There is
none for what is not here: import, a dashboard's port, label smoothing, training from text that was not prepared.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent

HELD: dict[str, tuple[str, ...]] = {
    # Loss, accumulation, reported numbers
    "one denominator for every split of a batch, whatever its order": (
        "training/test_step.py::test_gradient_is_that_of_the_global_token_mean_for_every_split_and_order",
    ),
    "a rank with few tokens or none weighs what it holds": (
        "training/test_step.py::test_a_rank_with_few_or_no_tokens_weighs_what_it_holds",
    ),
    "the reported loss is that of all micro-batches": (
        "training/test_step.py::test_reported_loss_is_the_token_weighted_mean_over_all_micro_batches",
    ),
    "routers' losses do not depend on data parallelism, tensor parallelism or accumulation": (
        "model/test_mixture_of_experts.py::test_gradients_do_not_depend_on_the_division_of_the_batch",
        "parallel/test_layouts.py::test_experts",
    ),
    "uniform logits cost the logarithm of the vocabulary at every degree of tensor parallelism": (
        "parallel/test_known_faults.py::test_uniform_logits_cost_the_logarithm_of_the_vocabulary_at_every_tp",
    ),
    "a NaN is recorded as it is": (
        "training/test_trainer.py::test_a_nan_stops_before_the_update_keeps_the_checkpoint_and_names_the_batch",
        "record/test_writing.py::test_nan_and_infinity_are_recorded_as_they_are",
    ),
    # Resume
    "a run that crashed or was killed ends in the same bits": (
        "training/test_trainer.py::test_a_run_that_crashed_ends_bit_identical_to_one_that_did_not",
        "end_to_end/test_kill_anywhere.py::test_kill_9_at_ten_drawn_moments_ends_bit_identical",
    ),
    "a stop within an epoch leaves later epochs whole": (
        "data/feeding/test_feed.py::test_stopping_within_an_epoch_leaves_later_epochs_whole",
    ),
    "a checkpoint on an epoch's boundary goes on with the next epoch": (
        "data/feeding/test_feed.py::test_resuming_on_an_epoch_boundary_yields_the_remaining_steps",
        "training/test_trainer.py::test_a_checkpoint_on_an_epoch_boundary_goes_on_with_the_next_epoch",
    ),
    "another number of ranks loses and repeats no sample": (
        "data/feeding/test_feed.py::test_another_world_size_continues_the_exact_global_order",
        "end_to_end/test_ranks.py::test_resuming_on_other_numbers_of_ranks_loses_and_repeats_no_sample",
    ),
    "the optimizer in use follows the schedule after a load": (
        "checkpoint/test_round_trip.py::test_the_optimizer_in_use_follows_the_schedule_after_a_load",
        "training/test_step.py::test_learning_rate_of_the_optimizer_in_use_follows_the_schedule",
    ),
    "all optimizer state comes back in every precision, and what lacks some is refused": (
        "checkpoint/test_round_trip.py::test_resumed_run_is_bit_identical_in_every_precision",
        "checkpoint/test_refusals.py::test_a_checkpoint_without_all_optimizer_state_is_refused",
    ),
    "a checkpoint says the step of the state it holds, however slow its write is": (
        "checkpoint/test_saver.py::test_the_state_that_was_captured_is_stored_while_steps_go_on",
        "checkpoint/test_durability.py::test_the_manifest_names_the_step_of_the_state_it_stands_beside",
        "checkpoint/test_training_saves.py::test_slow_copies_hold_what_was_after_their_step",
    ),
    # Checkpoint durability and directories
    "at every instant there is a complete checkpoint, also when one alone is kept": (
        "checkpoint/test_kill_points.py::test_every_phase_of_a_save_is_met",
        "checkpoint/test_kill_points.py::test_after_every_kill_a_complete_checkpoint_is_loaded",
        "checkpoint/test_object_store.py::test_a_kill_before_any_operation_leaves_a_complete_checkpoint",
    ),
    "what a killed save left is passed over with one warning, written anew, and not counted": (
        "checkpoint/test_damage.py::test_damaged_and_unfinished_folders_are_named_in_one_warning",
        "checkpoint/test_durability.py::test_an_unfinished_folder_is_neither_counted_nor_in_the_way",
        "checkpoint/test_kill_points.py::test_after_every_kill_the_next_run_saves_and_leaves_nothing_else",
    ),
    "all ranks write into the folder that rank 0 chose, and no time zone is in any name or time": (
        "checkpoint/test_durability.py::test_all_ranks_write_into_the_folder_rank_0_chose",
        "known_faults/test_stopping.py::test_times_in_the_record_are_those_of_the_epoch_wherever_the_clock_hangs",
    ),
    "a state that is not finite is never published, and the healthy ones stay": (
        "checkpoint/test_refusals.py::test_a_state_that_is_not_finite_is_never_published",
        "training/test_trainer.py::test_a_nan_stops_before_the_update_keeps_the_checkpoint_and_names_the_batch",
    ),
    # Parallelism and shapes
    "both copies of a tied embedding have one gradient and stay the same to the bit": (
        "parallel/test_known_faults.py::test_both_copies_of_a_tied_embedding_stay_the_same_to_the_bit",
        "parallel/test_layouts.py::test_dense_models",
    ),
    "an export has as many rows as the vocabulary, and computes the same": (
        "model/huggingface/test_export.py::test_transformers_computes_the_same",
    ),
    "layers that do not divide by the stages are all there once": (
        "parallel/pipeline/test_split.py::test_every_layer_is_in_one_stage",
    ),
    "weights that several ranks hold count once in the norm": ("parallel/test_layouts.py::test_dense_models",),
    "a rank that has nothing to report takes part in the sum": (
        "known_faults/test_one_rank.py::test_a_rank_that_has_nothing_of_a_source_takes_part_in_its_sum",
    ),
    # Data, tokens, packing
    "packed documents do not see each other, and their positions begin anew": (
        "model/test_packing.py::test_a_document_has_no_influence_on_another",
        "data/feeding/test_feed.py::test_every_batch_predicts_next_tokens_within_documents_only",
        "parallel/context_parallel/test_attention.py::test_equals_one_process",
    ),
    "each document has one mark at each end, also when the tokenizer adds it itself": (
        "data/test_tokenizer.py::test_a_given_tokenizer_that_adds_bos_itself_does_not_double_it",
        "data/test_prepare.py::test_names_of_special_tokens_inside_text_are_ordinary_text",
    ),
    "empty documents anywhere are counted and passed over": (
        "data/test_prepare.py::test_empty_and_missing_texts_are_counted_and_the_job_ends_well",
        "data/reading/test_damage.py::test_empty_text_anywhere_is_a_document_without_text",
    ),
    "a bad line is named with file, line and byte, and ends or costs nothing else": (
        "data/test_prepare.py::test_faults_are_skipped_and_named_or_stop_with_file_line_and_byte",
        "data/reading/test_damage.py::test_bad_lines_of_json_are_named_and_the_good_ones_kept",
        "data/reading/test_damage.py::test_lines_before_the_end_of_a_truncated_archive_are_kept",
        "data/reading/test_damage.py::test_one_enormous_line_is_a_fault_in_bounded_memory",
    ),
    "text without spaces takes bounded time and memory and gives the ids of the whole": (
        "data/test_tokenizer.py::test_endless_text_without_spaces_is_cut_into_bounded_pieces_with_the_ids_of_the_whole",
        "data/test_tokenizer.py::test_endless_text_for_a_given_tokenizer_without_pre_tokenizer_has_the_ids_of_the_whole",
    ),
    "shards that do not divide by the ranks give all ranks as many steps": (
        "data/feeding/test_feed.py::test_shards_that_do_not_divide_by_ranks_give_every_rank_the_same_number_of_steps",
    ),
    "there is one way from text to tokens, and it gives the same bytes however the work is divided": (
        "data/test_prepare.py::test_the_bytes_are_the_same_whatever_the_number_of_workers",
    ),
    # Optimizer and numerics
    "weights move, and where they cannot that is said": (
        "training/test_optimizer.py::test_nearly_every_weight_has_moved_after_100_updates",
        "training/test_optimizer.py::test_pure_bf16_warns_and_shows_the_updates_it_loses",
    ),
    "a NaN on one rank ends all before the update, at one step and with one exit code": (
        "training/test_step.py::test_a_nan_on_one_rank_stops_all_ranks_before_the_update",
        "known_faults/test_one_rank.py::test_a_nan_on_one_rank_ends_all_at_the_same_step_with_the_same_words",
        "parallel/test_known_faults.py::test_a_nan_on_one_rank_is_seen_by_all",
    ),
    "how often is evaluated changes no bit of the training": (
        "training/test_trainer.py::test_how_often_is_evaluated_changes_no_bit_of_the_training",
    ),
    # Operations and export
    "a run that is asked to stop ends when its state is durable, and says when its grace is too short": (
        "known_faults/test_stopping.py::test_a_save_that_takes_long_is_complete_when_a_run_that_is_asked_to_stop_ends",
        "end_to_end/test_ranks.py::test_sigterm_reaches_the_ranks_and_saves",
        "end_to_end/test_ranks.py::test_a_signal_to_all_processes_while_ranks_start_ends_them_cleanly",
        "training/test_trainer.py::test_a_grace_too_short_for_a_step_and_a_save_is_said_once",
    ),
    "two runs on one machine do not meet": (
        "end_to_end/test_ranks.py::test_two_runs_at_once_on_one_machine_do_not_meet",
        "recovery/test_nodes.py::test_another_job_and_strangers_do_not_get_in",
    ),
    "an export is read by versions 4 and 5 of transformers": (
        "model/huggingface/test_architectures.py::test_configuration_is_read_by_versions_4_and_5",
        "model/huggingface/test_tokenizer_files.py::test_settings_agree_with_the_post_processor_and_old_readers",
    ),
    "every value can be overridden, and an override that changes nothing is refused": (
        "recipe/test_overrides.py::test_every_leaf_of_the_recipe_can_be_overridden",
        "recipe/test_overrides.py::test_an_override_without_effect_is_an_error",
        "recipe/test_overrides.py::test_the_effective_recipe_is_printed_with_the_origin_of_each_value",
    ),
}


@cache
def _tests_of(file: str) -> frozenset[str]:
    tree = ast.parse((_TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("fault", HELD, ids=lambda fault: fault[:60].replace(" ", "_"))
def test_the_tests_that_hold_a_known_fault_are_there(fault: str) -> None:
    assert HELD[fault]
    for test in HELD[fault]:
        file, _, name = test.partition("::")
        assert (_TESTS / file).is_file(), f"{test}: no such file; name the test that holds this now"
        assert name in _tests_of(file), f"{test}: no such test; name the one that holds this now"
        assert name.startswith("test_")
