"""A failure in the middle of a step costs the micro-batch under way, and no bit of the result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.small_job import write_job
from tests.recovery.test_drill import drill
from tests.verification.this_commit import drawn

pytestmark = pytest.mark.slow

LAYOUTS = ["dp_replicate=2", "dp_shard=2", "tp=2", "cp=2"]


def test_a_step_that_was_cut_short_goes_on_where_it_was(tmp_path: Path) -> None:
    changes = {"training__steps": 6, "training__global_batch_size": 16, "training__micro_batch_size": 1}
    copies = {"recovery__copy_every": 1, "recovery__copy_gradients_every": 1}
    recipe = write_job(tmp_path, **changes, **copies)
    (layout,) = drawn(LAYOUTS, 1)
    faults = "kill@3:1:nth=7+kill@5:0:phase=backward,nth=5"
    (one,) = drill(recipe, tmp_path / "drills", f"layout.{layout}", "--fault", faults)
    assert one["came"] == one["restarts"] == 2
    assert one["steps_lost"] == 0
    assert one["useful"] >= 0.95
