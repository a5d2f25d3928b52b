"""What `stoker run` makes of a launcher that starts ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.errors import BadInput
from stoker.main_job import run_main_job
from stoker.progress import Silent
from stoker.recipe.loading import load_recipe
from tests.end_to_end.small_job import write_job


def test_the_whole_job_under_a_launcher_of_ranks_is_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_recipe(write_job(tmp_path))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadInput, match=r"WORLD_SIZE is set.*start it once on each node.*launch `stoker train`"):
        run_main_job(loaded, Silent())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recipe.yaml", "text"]
