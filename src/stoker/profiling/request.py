"""What is to be profiled, as it was asked for; everything that cannot work is refused here."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from stoker.checkpoint import checkpoints_of, steps_saved
from stoker.durable_files import explained_disk_errors
from stoker.errors import BadInput
from stoker.parallel.world import choose_device
from stoker.profiling.recording import Steps
from stoker.recipe import Recipe
from stoker.recipe.differences import require_compatible
from stoker.recipe.loading import LoadedRecipe, load_recipe
from stoker.run_directory import RunDirectory

TRACE, FACTS, RUN, RANKS = "trace.json.gz", "profile.json", "run", ".ranks"
"""What is in an output folder; the last is there only while ranks are at work."""
_BEFORE, _PROFILED, _AFTER = 4, 3, 3
"""Steps that are run before the profiled ones by default, profiled, and run after them."""


def steps_of(wanted: str | None, recipe: Recipe, done: int) -> Steps:
    """The steps of `12-14`, `12` or by default the fifth to seventh; `done` are done already. Raises `BadInput`."""
    all_ = recipe.training.steps
    if done >= all_:
        raise BadInput(
            f"all {all_:,} steps are done in the checkpoint of step {done:,}; give a larger training.steps"
        )
    if wanted is None:
        last = min(all_, done + _BEFORE + _PROFILED)
        first = max(done + 1, last - _PROFILED + 1)
    else:
        matched = re.fullmatch(r"(\d{1,12})(?:-(\d{1,12}))?", wanted.strip())
        if matched is None:
            raise BadInput(f"--steps: expected steps such as 12-14, or one such as 12, got {wanted!r}")
        first = int(matched[1])
        last = int(matched[2] or first)
    if first > last or first < 1:
        raise BadInput(
            f"--steps {wanted}: expected a first step of 1 or more, and a last one that is not before it"
        )
    if last > all_ or first > all_:
        raise BadInput(
            f"--steps: step {last} is beyond the recipe's {all_:,}; profile earlier steps, or give training.steps"
        )
    if first <= done:
        raise BadInput(
            f"--steps: step {first} is done already in the checkpoint of step {done}; profile later ones"
        )
    return Steps(first, last, min(all_, last + _AFTER))


def output_of(wanted: Path | None, loaded: LoadedRecipe) -> Path:
    """The folder of a profile: new, empty, or that of an earlier profile, which is replaced. Raises `BadInput`."""
    folder = wanted or loaded.run.path.parent.parent / "profiles" / loaded.recipe.name
    if not folder.exists():
        return folder
    if not folder.is_dir():
        raise BadInput(f"--output: {folder} is a file; name a folder")
    others = sorted(path.name for path in folder.iterdir() if path.name not in (TRACE, FACTS, RUN, RANKS))
    if others or ((folder / RUN).exists() and not (folder / RUN / "lock").exists()):
        named = ", ".join(others[:3] or [RUN]) + (", …" if len(others) > 3 else "")
        raise BadInput(f"--output: {folder} holds what is no profile's ({named}); name another folder")
    return folder


def make_room(folder: Path) -> None:
    """Make the output folder, without what an earlier profile left in it. The caller knows that it may."""
    with explained_disk_errors(folder):
        for name in (RUN, RANKS):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in (TRACE, FACTS):
            (folder / name).unlink(missing_ok=True)
        (folder / RANKS).mkdir(parents=True)


def require_ranks(recipe: Recipe, launched: int | None) -> None:
    """Raise `BadInput` unless the ranks of the recipe's layout can be started here."""
    ranks = recipe.layout.world_size
    if launched is not None:
        if launched != ranks:
            raise BadInput(
                f"a launcher started {launched} ranks, but the layout ({recipe.layout}) has {ranks}; start as many"
            )
        return
    device = choose_device(recipe.training.device, 0)
    there = torch.cuda.device_count() if device.type == "cuda" else ranks
    if there < ranks:
        raise BadInput(
            f"the layout ({recipe.layout}) has {ranks} ranks, but this machine has {there} accelerators: profile "
            "with a layout of as many, or start all ranks with a launcher such as torchrun"
        )


def begin_from(run: RunDirectory | None, recipe: Recipe) -> tuple[int, Path | None]:
    """The step to go on from and its checkpoint: the newest of `run`; 0 and None without one. Raises `BadInput`."""
    if run is None:
        return 0, None
    run.require_run()
    theirs = load_recipe(run.recipe).recipe
    require_compatible(theirs, recipe)
    place = checkpoints_of(run, theirs.checkpoint)
    if not isinstance(place, Path):
        raise BadInput(
            f"--from: the checkpoints of {run.path} are at {place}; only those of a local folder can be used"
        )
    saved: Sequence[int] = steps_saved(place)
    if not saved:
        raise BadInput(f"--from: {run.path} has no complete checkpoint; train it further, or leave --from out")
    return max(saved), place / f"step-{max(saved):08d}"
