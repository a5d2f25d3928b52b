"""What is described but changes nothing, because of what else is described: it was meant, so it is refused."""

from __future__ import annotations

from collections.abc import Iterator

from stoker.planning.reliability.description import (
    Failures,
    Planned,
    Recovery,
    Replicas,
    RunDescription,
    Spares,
    Stragglers,
)
from stoker.planning.reliability.kinds import Kind
from stoker.recipe.fields import Place
from stoker.recipe.section import Section

_LARGEST_FACTOR = 10


def without_effect(run: RunDescription) -> Iterator[tuple[Place, str]]:
    """Each value that is not its default and has no effect, with a sentence that says why and what to do."""
    yield from _of_replicas(run)
    yield from _of_kinds(run)
    stragglers, planned, spares = run.stragglers, run.planned, run.spares
    if not stragglers.slow_nodes_per_1000_node_days:
        for name in _changed(stragglers, Stragglers(), "slowdown", "found_after_hours"):
            yield (
                ("stragglers", name),
                "no node becomes slow, so this changes nothing; give slow_nodes_per_1000_node_days, or leave it "
                "out",
            )
    if not planned.per_day:
        for name in _changed(planned, Planned(), "pause_seconds"):
            yield ("planned", name), "nothing is planned, so this changes nothing; give per_day, or leave it out"
    if not stragglers.slow_nodes_per_1000_node_days and not any(kind.replaces_node for kind in run.failures.kinds):
        for name in _changed(spares, Spares(), "swap_seconds", "repair_hours", "replace_hours"):
            yield (
                ("spares", name),
                "no kind of failure replaces a node, so this changes nothing; set replaces_node for one, or leave "
                "it out",
            )


def _of_replicas(run: RunDescription) -> Iterator[tuple[Place, str]]:
    used = {
        "fixed": (),
        "shrink": ("count", "minimum"),
        "per_step": ("count", "minimum", "batch", "reconfigure_seconds", "heal_seconds"),
    }
    mode = run.replicas.mode
    usual = Replicas(count=run.nodes if run.replicas.count == run.nodes else None)
    for name in _changed(run.replicas, usual, *used["per_step"]):
        if name not in used[mode]:
            better = [other for other in ("shrink", "per_step") if name in used[other]]
            yield (
                ("replicas", name),
                f"`mode: {mode}` does not look at this, so it changes nothing; take `mode: "
                f"{' or '.join(better)}`, or leave it out",
            )


def _of_kinds(run: RunDescription) -> Iterator[tuple[Place, str]]:
    kinds, recovery = run.failures.kinds, run.recovery
    if all(kind.detection_seconds is not None for kind in kinds):
        for name in _changed(recovery, Recovery(), "detection_seconds"):
            yield (
                ("recovery", name),
                "every kind of failure says itself how soon it is found, so this changes nothing; "
                + _instead(kinds, recovery.detection_seconds),
            )
    if not any(recovery.detection_seconds if k.detection_seconds is None else k.detection_seconds for k in kinds):
        for name in _changed(run.failures, Failures(), "detection_factor"):
            yield ("failures", name), "every kind is found at once, so this changes nothing; leave it out"


def _instead(kinds: tuple[Kind, ...], wanted: float) -> str:
    """What finds all kinds sooner or later."""
    single = f"set failures.kinds.{kinds[0].name}.detection_seconds for one kind"
    soonest = min((kind.detection_seconds for kind in kinds if kind.detection_seconds), default=None)
    if soonest is None or wanted / soonest > _LARGEST_FACTOR:
        return f"{single}, or leave it out"
    return (
        f"take failures.detection_factor={wanted / soonest:.3g} to scale all of them ({soonest:g} s become "
        f"{wanted:g} s), or {single}"
    )


def _changed(section: Section, usual: Section, *names: str) -> Iterator[str]:
    given, default = section.model_dump(), usual.model_dump()
    return (name for name in names if given[name] != default[name])
