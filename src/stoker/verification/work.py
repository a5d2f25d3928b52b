"""What a worker process does: the reference alone, or one rank of a layout."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from stoker.checkpoint import load, save
from stoker.checkpoint.loading import read_weights
from stoker.layout import Layout
from stoker.parallel import ParallelModel, World, join_world, single_process_world
from stoker.parallel.placement import local
from stoker.recipe import Checkpoint, Lion
from stoker.verification.figures import Difference
from stoker.verification.made_up import own_rows
from stoker.verification.observed import Trained, evaluate, lay_out, make_steps
from stoker.verification.probes import Comparer, Recorder, looking
from stoker.verification.reference import Comparison, Key, Reference, norm
from stoker.verification.routing import choices_of
from stoker.verification.subject import Subject, VerifiedPrecision

Plant = (
    Callable[[], AbstractContextManager[object]]
    | tuple[Callable[..., AbstractContextManager[object]], tuple[Any, ...]]
)
"""A function of a module, perhaps with its arguments, that puts something in place for as long as it is entered."""
_LEAST = 5e-324
"""The bound of what must be the same to the bit."""
_SETTLED = 1e-9
"""A gradient whose norm is a smaller share of the global norm is all rounding."""


@dataclass(frozen=True)
class ReferenceWork:
    """One process without a layout."""

    subject: Subject
    sequences_of: Layout
    """A layout whose global batch it has."""
    precision: VerifiedPrecision
    steps: int
    path: Path
    truth: Path | None = None
    """The reference in fp64, for precisions that are judged by it."""
    probed: int | None = None
    """A step whose activations are kept as well."""
    choices: Path | None = None
    """The reference whose choices of experts are repeated."""


@dataclass(frozen=True)
class LayoutWork:
    """One layout."""

    subject: Subject
    layout: Layout
    precision: VerifiedPrecision
    steps: int
    reference: Path
    folder: Path
    """For its checkpoint."""
    plant: Plant | None = None
    probed: int | None = None
    """Make steps up to this one only, and compare its activations."""
    choices: Path | None = None
    """The reference whose choices of experts are repeated."""


@dataclass
class Findings:
    """What one rank found."""

    firsts: list[Difference] = field(default_factory=list)
    """Of each step and kind, the first that differs."""
    worst: list[Difference] = field(default_factory=list)
    """Of each step and kind."""
    activations: list[tuple[int, Difference]] = field(default_factory=list)
    not_passed: dict[str, int] = field(default_factory=dict)
    """Modules that one process computes and this rank does not, with their places in its order."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Place:
    """Where a worker stands among those of a layout."""

    rank: int
    store: dist.Store | None  # type: ignore[name-defined]
    device: torch.device
    timeout_seconds: float


def make_reference(work: ReferenceWork, place: Place) -> None:
    """Make the steps on one process, one more than layouts make, and write what was seen."""
    reference = Reference(work.precision)
    world = single_process_world(place.device)
    trained = _one_process(work.subject, work.sequences_of, work.precision, work.steps, world, reference)
    recorder: Recorder | None = None
    if work.probed is not None:
        recorder = Recorder(reference, work.probed, trained.sequences)

    route = _Routes(work.subject, None if work.choices is None else _reference(work.choices), reference)

    @contextmanager
    def around(step: int, model: ParallelModel) -> Iterator[None]:
        with route(trained, step, f"step {step}"):
            if recorder is None or step != work.probed:
                yield
                return
            first = (step - 1) * recorder.sequences
            with looking(model, work.subject.training.sequence_length, first, recorder):
                yield

    make_steps(trained, range(1, work.steps + 1), reference, around)
    if recorder is not None:
        recorder.finish()
    else:
        with route(trained, work.steps, "evaluation"):
            evaluate(trained, work.steps, reference)
        make_steps(trained, [work.steps + 1], reference, around)
    if work.truth is not None:
        reference = reference.compared_with_truth(Reference.load(work.truth))
    reference.save(work.path)


def run_rank(work: LayoutWork, place: Place) -> Findings:
    """Make the steps as one rank of the layout and compare. Collective over its ranks."""
    begun = time.monotonic()
    reference = _reference(work.reference)
    comparison = Comparison(reference, place.rank, unsettled=_unsettled(work.subject, reference))
    comparer: Comparer | None = None
    length = work.subject.training.sequence_length
    last = work.steps if work.probed is None else work.probed

    route = _Routes(work.subject, None if work.choices is None else _reference(work.choices))

    @contextmanager
    def around(step: int, model: ParallelModel) -> Iterator[None]:
        nonlocal comparer
        with route(trained, step, f"step {step}"):
            if step != work.probed:
                yield
                return
            rows = own_rows(work.subject, work.layout, model.world.data_parallel_rank)
            comparer = Comparer(comparison, step, rows[0].stop - rows[0].start, rows[0].start)
            with looking(model, length, (step - 1) * work.subject.sequences(work.layout), comparer):
                yield

    _forget_meshes()
    with (
        planted(work.plant),
        join_world(work.layout, place.rank, place.device, place.store, place.timeout_seconds) as world,
    ):
        trained = lay_out(work.subject, work.precision, work.steps, world, comparison)
        make_steps(trained, range(1, last + 1), comparison, around)
        if work.probed is None:
            with route(trained, work.steps, "evaluation"):
                evaluate(trained, work.steps, comparison)
            saved = save(work.folder, work.steps, trained.model.held, trained.optimizer, {}, Checkpoint())
            _compare_saved(trained, saved, work.steps, comparison)
    if work.probed is None and place.rank == 0:
        _go_on(work, saved, place, comparison, route)
    found = list(comparison.found.values())
    return Findings(
        firsts=[first for first, _ in found if not first.agrees],
        worst=[worst for _, worst in found],
        activations=[] if comparer is None else comparer.differing,
        not_passed={} if comparer is None else comparer.not_passed,
        seconds=time.monotonic() - begun,
    )


def _forget_meshes() -> None:
    """torch remembers meshes by their ranks alone, also those whose process groups have ended."""
    _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]


def planted(plant: Plant | None) -> AbstractContextManager[object]:
    """What `plant` puts in place."""
    if plant is None:
        return nullcontext()
    if isinstance(plant, tuple):
        function, arguments = plant
        return function(*arguments)
    return plant()


def _one_process(
    subject: Subject, layout: Layout, precision: VerifiedPrecision, steps: int, world: World, observer: Any
) -> Trained:
    trained = lay_out(subject, precision, steps, world, observer)
    if subject.sequences(layout) != subject.sequences(Layout()):
        trained.sequences_of = layout
    return trained


@dataclass(frozen=True)
class _Routes:
    """What routers are told in the passes of a step."""

    subject: Subject
    given: Reference | None
    """Whose choices are repeated."""
    kept: Reference | None = None
    """Where choices are kept, if they are the routers' own."""

    def __call__(self, trained: Trained, step: int, when: str) -> AbstractContextManager[object]:
        reference = self.given or self.kept
        if self.subject.model.moe is None or reference is None:
            return nullcontext()
        length = self.subject.training.sequence_length
        first = (step - 1) * trained.sequences
        return choices_of(trained.model, length, first, when, reference, record=self.given is None)


def _compare_saved(trained: Trained, saved: Path, step: int, comparison: Comparison) -> None:
    """What the checkpoint holds must be what every rank holds, bit for bit. Collective."""
    world = trained.world
    own = [(one.name, one.box, local(one.tensor).detach().cpu()) for one in trained.model.held]
    gathered: list[Any] | None = [None] * world.layout.world_size if world.is_first else None
    if world.layout.world_size > 1:
        dist.gather_object(own, gathered)
    else:
        gathered = [own]
    if gathered is None:
        return
    weights = read_weights(saved)
    for rank, parts in enumerate(gathered):
        for name, box, here in parts:
            there = weights[name][tuple(slice(*bounds) for bounds in box)]
            error = 0.0 if torch.equal(here, there) else max(norm(here.double() - there.double()), _LEAST)
            comparison.settle((step, "checkpoint", f"{name} as saved"), error, _LEAST, rank=rank)


class _GoingOn(Comparison):
    """Calls everything that comes after loading a checkpoint by that name."""

    def note(self, key: Key, error: float, micro_batch: int | None = None) -> None:
        step, kind, name = key
        self.settle((step, "checkpoint", f"{kind} of {name} after loading"), error, self.reference.bound(key))


class _Nobody:
    def number(self, step: int, kind: str, name: str, value: float) -> None:
        pass

    def parts(self, step: int, kind: str, parts: Any) -> None:
        pass


def _go_on(work: LayoutWork, saved: Path, place: Place, comparison: Comparison, route: _Routes) -> None:
    """Load the layout's checkpoint on one process and make the next step, as one process made it."""
    world = single_process_world(place.device)
    going_on = _GoingOn(comparison.reference, place.rank, comparison.found, comparison.unsettled)
    trained = _one_process(work.subject, work.layout, work.precision, work.steps, world, _Nobody())
    load(saved, trained.model.held, trained.optimizer)
    make_steps(trained, [work.steps + 1], going_on, lambda step, model: route(trained, step, f"step {step}"))


@lru_cache(maxsize=4)
def _reference(path: Path) -> Reference:
    return Reference.load(path)


def _unsettled(subject: Subject, reference: Reference) -> frozenset[str]:
    """Lion steps by signs alone; those of a gradient that is all rounding are nobody's."""
    if reference.precision != "fp64" or not isinstance(subject.training.optimizer, Lion):
        return frozenset()
    sizes = reference.sizes
    return frozenset(
        name
        for step, kind, name in reference.tensors
        if kind == "gradient" and sizes[step, kind, name] <= _SETTLED * sizes[step, kind, ""]
    )
