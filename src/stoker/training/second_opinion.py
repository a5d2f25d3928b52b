"""A second opinion: what one rank computed, another computes once more from the same weights and samples.

Ranks with other samples hold the same weights, and any rank can read any samples. So each copy of the model (with
experts: each set of copies that share them) computes what its neighbour did, alone, before anything is summed, and
the bits are compared before the update. Where they differ, the same rank and a third one compute it too.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch

from stoker.checkpoint.agreement import from_everyone
from stoker.data.feeding import Feed
from stoker.errors import StokerError
from stoker.layout import Layout
from stoker.parallel.alone import Glance, Seen, Witness, apart, forget
from stoker.parallel.parallel_model import Inputs
from stoker.training.arbiter import Arbiter, Arbitration, differing, worth_keeping
from stoker.training.precision import autocast, compute_dtype
from stoker.training.replicas import Replicas
from stoker.training.step import TrainingStep, inputs_of

Kind = Literal["transient", "persistent", "undecided"]


class Votes(NamedTuple):
    """What was computed of one rank's part of a step, by that rank and by others."""

    own: Seen
    again: Seen
    """By the same rank."""
    second: Seen
    """By its counterpart in the next copy of the model …"""
    second_again: Seen
    third: Seen | None
    """… and in the one after; None where there is none."""


@dataclass(frozen=True)
class Verdict:
    """Who computes wrong numbers, and how it is known."""

    kind: Kind
    """`transient`: it came out right the second time; `undecided`: one of `ranks` is wrong, not all."""
    ranks: tuple[int, ...]
    votes: Mapping[int, Votes]
    """Of the ranks whose part did not come out alike everywhere."""
    arbitration: Arbitration | None = None
    """What the loss itself says, where two copies of the model could not be told apart by votes."""

    def __str__(self) -> str:
        ranks = ", ".join(map(str, self.ranks))
        how = {
            "transient": f"rank {ranks} computed other bits than another rank and than itself the second time",
            "persistent": f"rank {ranks} computes other bits than two others do"
            if self.arbitration is None
            else f"rank {ranks} computes other gradients than the loss has, and than another rank does",
            "undecided": f"ranks {ranks} compute different bits",
        }
        return f"{how[self.kind]} from the same weights and samples"

    def as_evidence(self) -> dict[str, Any]:
        """For the record: checksums in hexadecimal, losses before gradients."""
        votes = {
            str(rank): {
                name: f"{seen.losses % 2**64:016x} {seen.gradients % 2**64:016x}"
                for name, seen in one._asdict().items()
                if seen is not None
            }
            for rank, one in self.votes.items()
        }
        asked = {} if self.arbitration is None else {"arbiter": self.arbitration.as_evidence()}
        return {"verdict": self.kind, "votes": votes, **asked}

    def refusal(self, step: int, why: str) -> StokerError:
        """That the run does not go on with these ranks."""
        ranks = ", ".join(map(str, self.ranks))
        return StokerError(
            f"step {step}: {self}. {why} Take the machine of rank {ranks} out and give the command again."
        )


@dataclass(frozen=True)
class _Disputed:
    """What one of two copies of the model computed of one copy's part of a step, and the other copy as well."""

    copy: int
    """Whose part it is."""
    places: tuple[int, ...]
    """Of this rank's leaves, those whose gradients are held against its counterpart's."""


@dataclass(frozen=True)
class _Unsettled:
    """A disagreement of two, about a step that is to be done again."""

    step: int
    micro_batches: int | None
    verdict: Verdict


def judge(votes: Mapping[int, Votes], layout: Layout) -> Verdict | None:
    """Who is wrong, from the votes on every rank's part; None when all agree.

    Who computes something else the second time was wrong once. Of three ranks the one that stands alone is wrong;
    where there are two, and each computes its own bits again and again, both are named.
    """
    decided: dict[int, bool] = {}
    """Whether the rank was wrong once only."""
    open_: set[int] = set()
    for rank, (own, again, second, second_again, third) in votes.items():
        other = counterpart(layout, rank, 1)
        if again != own:
            decided[rank] = decided.get(rank, True) and again == second_again
        if second_again != second:
            decided[other] = decided.get(other, True) and again == second_again
        if again == second_again:
            if third is not None and third != again:
                decided[counterpart(layout, rank, 2)] = False
        elif third is not None and third == again:
            decided[other] = False
        elif third is not None and third == second_again:
            decided[rank] = False
        elif again != second_again:
            open_.update((rank, other) if third is None else (rank, other, counterpart(layout, rank, 2)))
    differing = {rank: one for rank, one in votes.items() if len(set(one) - {None}) > 1}
    if not differing:
        return None
    if not decided:
        return Verdict("undecided", tuple(sorted(open_)), differing)
    return Verdict("transient" if all(decided.values()) else "persistent", tuple(sorted(decided)), differing)


def copies_apart(layout: Layout) -> int:
    """How many data-parallel ranks compute together: one, or those that hold each other's experts."""
    return layout.ep // math.gcd(layout.ep, layout.cp * (1 if layout.expert_tp else layout.tp))


def counterpart(layout: Layout, rank: int, places: int) -> int:
    """The rank that is in the copy of the model `places` further on what `rank` is in its own."""
    inner, ranks = layout.cp * layout.tp, layout.data_parallel_size
    stage, rest = divmod(rank, ranks * inner)
    at, within = divmod(rest, inner)
    return (stage * ranks + (at + places * copies_apart(layout)) % ranks) * inner + within


class SecondOpinion:
    """Asks for it. Collective: all ranks ask about the same step."""

    def __init__(self, feed: Feed, step: TrainingStep) -> None:
        """Collective. Ranks on different kinds of processors round differently, and are not asked."""
        self._feed, self._step = feed, step
        self._recipe, self._world = step.recipe, step.model.world
        layout = self._world.layout
        self._copies = layout.data_parallel_size // copies_apart(layout)
        alike = len(set(from_everyone(_processor(self._world.device)))) == 1
        self.possible = self._copies > 1 and alike and not self._recipe.training.memory.release_gradients
        """Whether there is another rank that computes the same bits."""
        self.glance = Glance(step.model)
        self.passed = 0
        """The last step in which all agreed."""
        self.named: set[int] = set()
        """Ranks that were wrong since this process began."""
        self._warm = False
        self._unsettled: _Unsettled | None = None
        self._tables: list[list[Seen]] = []
        self._seen: tuple[Witness, Witness] | None = None
        """Of the last step that was asked about: of this rank's own part, and of its neighbour's."""

    def spot_check(self, step: int) -> AbstractContextManager[None]:
        """Around the computation of `step`: asks where a check is due, or where ranks have disagreed about it.

        Not in a process's first step: it may be half done already.
        """
        warm, self._warm = self._warm, True
        every = self._recipe.recovery.spot_check_every
        if self._unsettled is not None and self._unsettled.step == step:
            return self.asked(step, self._unsettled.micro_batches)
        return self.asked(step, 1) if warm and every > 0 and step % every == 0 else nullcontext()

    def asked(self, step: int, micro_batches: int | None) -> AbstractContextManager[None]:
        """Around the computation of `step`: the guard leaves the update out when another rank disagrees.

        Of the first `micro_batches` of each rank; None: of all. Where nobody can be asked, nothing happens.
        """
        return self._asked(step, micro_batches) if self.possible else nullcontext()

    def find(self, step: int, micro_batches: int | None) -> Verdict:
        """Who is wrong, once there was a disagreement about `step`, which has not been applied."""
        own, second = self._tables
        disputed = self._disputed()
        witnesses = [self._compute(step, micro_batches, places, disputed) for places in (0, -1)]
        again, second_again = (
            self._share(one.seen(), places) for one, places in zip(witnesses, (0, -1), strict=True)
        )
        third: list[Seen] | list[None] = [None] * len(own)
        if self._copies > 2:
            third = self._share(self._compute(step, micro_batches, -2).seen(), -2)
        votes = [Votes(*of_rank) for of_rank in zip(own, again, second, second_again, third, strict=True)]
        verdict = judge(dict(enumerate(votes)), self._world.layout)
        assert verdict is not None, "there was a disagreement"
        if verdict.kind == "undecided" and disputed is not None:
            witness = witnesses[self._copy != disputed.copy]
            verdict = self._arbitrated(verdict, step, micro_batches, disputed, witness)
        self._unsettled = _Unsettled(step, micro_batches, verdict) if verdict.kind == "undecided" else None
        return verdict

    def settle(self, step: int, replicas: Replicas) -> dict[str, Any] | None:
        """For the record: which of two ranks was wrong, now that they agree about `step`, which was done again.

        Whose bits are those of now was right. Where the weights were wrong already, whose own losses were the first
        to come out otherwise was not. None where there was nothing to settle, or nothing shows it. Collective.
        """
        unsettled = self._unsettled
        if unsettled is None or unsettled.step != step or self.passed != step:
            return None
        self._unsettled, wrong = None, set[int]()
        for rank, votes in unsettled.verdict.votes.items():
            other, now = counterpart(self._world.layout, rank, 1), self._tables[0][rank]
            wrong |= {other} if now == votes.own else {rank} if now == votes.second else set()
        first = step
        if len(wrong) != 1:
            ranks, since = replicas.first_to_differ()
            wrong, first = set(ranks), since or step
        replicas.forget()
        if not wrong:
            return None
        self.named = wrong | (self.named - set(unsettled.verdict.ranks))
        return {"ranks": sorted(wrong), "first_step": first, "verdict": "transient", "settles": True}

    @contextmanager
    def _asked(self, step: int, micro_batches: int | None) -> Iterator[None]:
        second = self._compute(step, micro_batches, -1)
        witness = Witness(self._step.model, micro_batches)

        def disagree() -> bool:
            self._tables = [self._share(witness.seen(), 0), self._share(second.seen(), -1)]
            self._seen = witness, second
            agree = self._tables[0] == self._tables[1]
            if agree:
                self.passed = step
            return not agree

        guard = self._step.guard
        guard.doubt = disagree
        try:
            with witness.watching():
                yield
        finally:
            guard.doubt = None

    def _compute(
        self, step: int, micro_batches: int | None, places: int, disputed: _Disputed | None = None
    ) -> Witness:
        """What the rank so many copies further on computes at `step`, from the same bits.

        Gradients are kept where that is what is `disputed`.
        """
        model = apart(self._step.model)
        keeps = disputed is not None and places == -abs(self._copy - disputed.copy)
        witness = Witness(model, keep=disputed.places if disputed is not None and keeps else ())
        model.train()
        with witness.watching(drop=True):
            model.forward_backward(
                self._inputs(step, micro_batches, places),
                **self._settings(step),
                autocast=lambda: autocast(self._recipe.training.precision, self._world.device),
                phase=self._phase,
            )
        forget(model)
        return witness

    def _inputs(self, step: int, micro_batches: int | None, places: int) -> list[Inputs]:
        """What the rank so many copies further on reads at `step`."""
        world = self._world
        whose = world.layout.data_parallel_rank(counterpart(world.layout, world.rank, places))
        batches = self._feed.micro_batches(step, whose, world.layout.data_parallel_size)[:micro_batches]
        return [inputs_of(batch.to(world.device), self._recipe.training.document_mask) for batch in batches]

    def _settings(self, step: int) -> dict[str, Any]:
        scale = self._step.loss_scale
        loss_scale = (scale.scale if scale else 1.0) / max(self._feed.valid_tokens(step), 1)
        return {"step": step, "seed": self._recipe.seed, "loss_scale": loss_scale}

    @property
    def _copy(self) -> int:
        """This rank's copy of the model."""
        return self._world.data_parallel_rank // copies_apart(self._world.layout)

    def _disputed(self) -> _Disputed | None:
        """Which gradients the arbiter should see when two copies compute them again; None: nobody asks it.

        Not where weights have 16 bits, which cannot be moved by little.
        """
        if self._copies != 2 or self._recipe.training.precision == "pure_bf16" or self._seen is None:
            return None
        own, second = self._tables
        layout = self._world.layout
        apart_by = copies_apart(layout)
        copy = min(
            layout.data_parallel_rank(rank) // apart_by for rank in range(len(own)) if own[rank] != second[rank]
        )
        witness = self._seen[self._copy != copy]
        mine = witness.by_leaf()
        theirs = from_everyone(mine)[counterpart(layout, self._world.rank, 1)]
        return _Disputed(copy, tuple(worth_keeping(differing(mine, theirs), witness.elements)))

    def _arbitrated(
        self, verdict: Verdict, step: int, micro_batches: int | None, disputed: _Disputed, witness: Witness
    ) -> Verdict:
        """The verdict once the loss itself has been asked."""
        world, training = self._world, self._recipe.training
        model = apart(self._step.model)
        arbiter = Arbiter(
            model,
            self._copy,
            counterpart(world.layout, world.rank, 1),
            torch.finfo(compute_dtype(training.precision)).eps / 2,
            lambda: self._phase("forward"),
        )
        found = arbiter.ask(
            witness.kept,
            witness.sizes,
            self._inputs(step, micro_batches, -abs(self._copy - disputed.copy)),
            non_finite_is_wrong=training.precision != "fp16",
            **self._settings(step),
        )
        forget(model)
        if found.wrong is None:
            return replace(verdict, arbitration=found)
        apart_by = copies_apart(world.layout)
        wrong = tuple(
            rank for rank in verdict.ranks if world.layout.data_parallel_rank(rank) // apart_by == found.wrong
        )
        return replace(verdict, kind="persistent", ranks=wrong, arbitration=found)

    def _phase(self, name: str, wait: str | None = None) -> AbstractContextManager[None]:
        """So that this rank is seen to be alive. Nothing is summed, so there is no communication of the step's."""
        return self._step.clock.phase(name) if name in ("forward", "backward") else nullcontext()

    def _share(self, seen: Seen, places: int) -> list[Seen]:
        """What was seen of every rank's part; this rank's is about the one so many copies further on."""
        layout, device = self._world.layout, self._world.device
        table = torch.zeros((layout.world_size, 2), dtype=torch.int64, device=device)
        table[counterpart(layout, self._world.rank, places)] = torch.tensor(seen, dtype=torch.int64, device=device)
        return [Seen(losses, gradients) for losses, gradients in self._world.sum(table).tolist()]


def _processor(device: torch.device) -> tuple[str, int]:
    """What computes on this rank: its kind, and how many threads share a sum."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device), 0
    return f"{platform.processor()} {torch.backends.cpu.get_cpu_capability()} {_model()}", torch.get_num_threads()


def _model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return ""
