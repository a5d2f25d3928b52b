"""How fast state is saved and loaded: against plain files of the same bytes, and beside torch's own checkpoints.

    python benchmarks/checkpoint.py --mib 1024 --ranks 1 4 --folder /path/on/the/disk

Every ratio is measured in one run on one folder, round by round; what is compared takes turns in being first, and
given is the median over the rounds, with the smallest and the largest. Plain files are one a rank, written from
memory in order with an fsync, and read back in order, all ranks at once. Before anything is read the system is
asked to drop it from memory. Nothing is removed in the time of a write; `tidy` is the removal of a checkpoint.
State is that of AdamW in fp32, divided over the ranks as dp_shard divides it. `beside` is a save that happens while
a step that computes nothing goes on, from its beginning until it is durable, `stalled` for how long training stands
still for it: the time until the state may be changed, less what the step takes anyway.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from stoker.checkpoint import Saver, load, save
from stoker.checkpoint.saving import whole_state
from stoker.checkpoint.state import allocate_state
from stoker.recipe import AdamW, Checkpoint
from stoker.training.optimizer import AdamWOptimizer

ROWS, COLUMNS = 4096, 1024
KEEP_ALL = Checkpoint(keep_last=100)
Rounds = list[dict[str, "Seconds"]]


@dataclass(frozen=True)
class Held:
    name: str
    tensor: Tensor
    shape: tuple[int, ...]
    box: tuple[tuple[int, int], ...]


def make_state(mib: int, rank: int, ranks: int) -> tuple[list[Held], AdamWOptimizer]:
    """Matrices of 16 MiB and vectors, whose weights and moments are `mib` MiB over all ranks."""
    mesh = init_device_mesh("cpu", (ranks,)) if ranks > 1 else None
    held = []
    generator = torch.Generator().manual_seed(rank)
    for number in range(max(1, mib // (3 * 16))):
        for name, shape in ((f"blocks.{number}.matrix", (ROWS, COLUMNS)), (f"blocks.{number}.norm", (COLUMNS,))):
            own = shape[0] // ranks
            tensor: Tensor = torch.randn((own, *shape[1:]), generator=generator)
            if mesh is not None:
                tensor = DTensor.from_local(tensor, mesh, [Shard(0)], run_check=False)
            box = ((rank * own, (rank + 1) * own), *((0, size) for size in shape[1:]))
            held.append(Held(name, nn.Parameter(tensor), shape, box))
    groups = [{"params": [one.tensor for one in held], "lr": 0.0, "weight_decay": 0.0}]
    optimizer = AdamWOptimizer(groups, AdamW(), fused=True)
    allocate_state(optimizer)
    for part in whole_state(held, optimizer).values():
        part.tensor.add_(1.0)
    return held, optimizer


def forget(folder: Path) -> None:
    """Ask the system to drop files from memory."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


class Seconds(NamedTuple):
    """Of the clock, and of the processor's time that this rank took for it in all threads."""

    wall: float
    processor: float


def timed(action: Callable[[], object], ranks: int) -> Seconds:
    """Seconds until all ranks are through."""
    if ranks > 1:
        dist.barrier()
    begun, used = time.perf_counter(), time.process_time()
    action()
    if ranks > 1:
        dist.barrier()
    return Seconds(time.perf_counter() - begun, time.process_time() - used)


def write_plain(path: Path, content: list[np.ndarray]) -> None:
    with open(path, "wb") as stream:
        for one in content:
            stream.write(one.data)
        stream.flush()
        os.fsync(stream.fileno())


def read_plain(path: Path, content: list[np.ndarray]) -> None:
    with open(path, "rb", buffering=0) as stream:
        for one in content:
            stream.readinto(one.data)


def measure(rank: int, ranks: int, folder: Path, options: argparse.Namespace) -> Rounds:
    """Seconds of everything, in each round."""
    held, optimizer = make_state(options.mib, rank, ranks)
    whole = {name: _as_saved(name, held, optimizer) for name in whole_state(held, optimizer)}
    saver = Saver(folder / "beside", KEEP_ALL, held, optimizer)
    rounds = []
    for number in range(options.rounds + 1):
        actions = [
            lambda: _measure_plain(held, optimizer, folder / "plain", rank, ranks),
            lambda number=number: _measure_stoker(held, optimizer, folder, number, rank, ranks),
            lambda number=number: _measure_beside(saver, number, options.step, rank, ranks),
        ]
        if not options.without_torch:
            actions.append(lambda number=number: _measure_torch(whole, folder / f"torch-{number}", rank, ranks))
        found: dict[str, Seconds] = {}
        for action in actions if number % 2 else reversed(actions):
            found |= action()
        rounds.append(found)
    saver.close()
    return rounds[1:]  # memory that the system hands out for the first time is slow


def _measure_plain(
    held: list[Held], optimizer: AdamWOptimizer, folder: Path, rank: int, ranks: int
) -> dict[str, Seconds]:
    parts = whole_state(held, optimizer).values()
    content = [part.tensor.reshape(-1).view(torch.uint8).numpy() for part in parts]
    folder.mkdir(exist_ok=True)
    plain = folder / f"rank-{rank}"
    written = timed(lambda: write_plain(plain, content), ranks)
    _settled(folder, rank, ranks)
    read = timed(lambda: read_plain(plain, content), ranks)
    plain.unlink()
    return {"plain write": written, "plain read": read}


def _measure_stoker(
    held: list[Held], optimizer: AdamWOptimizer, folder: Path, number: int, rank: int, ranks: int
) -> dict[str, Seconds]:
    saved: list[Path] = []
    written = timed(lambda: saved.append(save(folder / "stoker", number, held, optimizer, {}, KEEP_ALL)), ranks)
    _settled(folder / "stoker", rank, ranks)
    read = timed(lambda: load(saved[0], held, optimizer), ranks)
    removed = timed(lambda: _removed(saved[0], rank, ranks), ranks)
    return {"save": written, "load": read, "tidy": removed}


def _measure_beside(saver: Saver, number: int, step: float, rank: int, ranks: int) -> dict[str, Seconds]:
    found: list[tuple[float, float]] = []
    used = timed(lambda: found.append(beside(saver, number, step)), ranks).processor
    _removed(saver.checkpoints / f"step-{number:08d}", rank, ranks)
    stalled, seconds = found[0]
    return {"stalled": Seconds(stalled, 0.0), "beside": Seconds(seconds, used)}


def beside(saver: Saver, number: int, step: float) -> tuple[float, float]:
    """A save beside a step that computes nothing; for how long the step has to wait, and until it is durable."""
    begun = time.perf_counter()
    saver.stage(number, {})
    stalled = time.perf_counter() - begun
    time.sleep(step)
    stalled += saver.settle()
    (outcome,) = saver.finish()
    if outcome.error is not None:
        raise outcome.error
    return stalled, outcome.seconds


def _as_saved(name: str, held: list[Held], optimizer: AdamWOptimizer) -> Tensor:
    by_name = {one.name: one.tensor for one in held}
    if name.startswith("model."):
        return by_name[name.removeprefix("model.")].detach()
    parameter, _, key = name.removeprefix("optimizer.").rpartition(".")
    found: Tensor = optimizer.state[by_name[parameter]][key]
    return found


def _measure_torch(whole: dict[str, Tensor], target: Path, rank: int, ranks: int) -> dict[str, Seconds]:
    found = {"torch save": timed(lambda: dcp.save(whole, checkpoint_id=target), ranks)}
    _settled(target, rank, ranks)
    found["torch load"] = timed(lambda: dcp.load(whole, checkpoint_id=target), ranks)
    _removed(target, rank, ranks)
    begun, used = time.perf_counter(), time.process_time()
    future: Any = dcp.async_save(whole, checkpoint_id=target)
    found["torch stalled"] = Seconds(time.perf_counter() - begun, time.process_time() - used)
    future.result()
    found["torch beside"] = Seconds(time.perf_counter() - begun, time.process_time() - used)
    _removed(target, rank, ranks)
    return found


def _removed(target: Path, rank: int, ranks: int) -> None:
    if ranks > 1:
        dist.barrier()
    if rank == 0:
        shutil.rmtree(target)
    if ranks > 1:
        dist.barrier()


def _settled(folder: Path, rank: int, ranks: int) -> None:
    if rank == 0:
        forget(folder)
    if ranks > 1:
        dist.barrier()


def rank_main(rank: int, ranks: int, folder: Path, options: argparse.Namespace, results: Any) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("cpu:gloo", store=store, rank=rank, world_size=ranks)
    found = measure(rank, ranks, folder, options)
    if rank == 0:
        results.put(found)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="of weights and moments, over all ranks")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4])
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to be measured"
    )
    parser.add_argument("--step", type=float, default=1.0, help="seconds of a step")
    parser.add_argument("--rounds", type=int, default=7, help="that count; one before them does not")
    parser.add_argument("--without-torch", action="store_true", help="leave out torch's own checkpoints")
    options = parser.parse_args()
    context = get_context("fork")
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            results = context.Queue()
            arguments = (ranks, Path(folder), options, results)
            processes = [context.Process(target=rank_main, args=(rank, *arguments)) for rank in range(ranks)]
            for process in processes:
                process.start()
            rounds = results.get(timeout=1800)
            for process in processes:
                process.join()
        show(ranks, options.mib, options.step, rounds)


def show(ranks: int, mib: int, step: float, rounds: Rounds) -> None:
    print(f"\n{mib} MiB, {ranks} ranks, {len(rounds)} rounds; load of the machine {os.getloadavg()[0]:.1f}")
    for name in rounds[0]:
        wall, processor = (statistics.median(one[name][place] for one in rounds) for place in (0, 1))
        print(f"  {name:14} {wall:8.3f} s  {mib / 1024 / wall:6.2f} GiB/s  processor {processor:7.3f} s a rank")
    for name in ("save", "beside", "torch save"):
        show_ratio(name, "plain write", rounds)
    for name in ("load", "torch load"):
        show_ratio(name, "plain read", rounds)
    for name in ("stalled", "torch stalled"):
        if name in rounds[0]:
            print(
                f"  {name} {statistics.median(one[name].wall for one in rounds) / step:.2%} of a step of {step} s"
            )


def show_ratio(name: str, plain: str, rounds: Rounds) -> None:
    if name in rounds[0]:
        found = sorted(one[plain].wall / one[name].wall for one in rounds)
        middle = statistics.median(found)
        print(f"  {name} at {middle:.0%} of the {plain}, round by round from {found[0]:.0%} to {found[-1]:.0%}")


if __name__ == "__main__":
    main()
