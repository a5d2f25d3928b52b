"""A process that saves beside its training is killed before, within and after everything it does to a file."""

from __future__ import annotations

import multiprocessing.connection
import os
import shutil
import signal
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.checkpoint import Saver, latest, load_newest
from stoker.checkpoint.direct import BLOCK
from stoker.child_processes import fork_server
from stoker.durable_files import remove_partials
from stoker.recipe import Checkpoint
from tests.checkpoint.tiny_training import TinyTraining, assert_same

pytestmark = pytest.mark.slow

KEEP_ONE = Checkpoint(keep_last=1)
_PLAIN = ("mkdir", "open", "rename", "replace", "unlink", "rmdir")
"""Of `os`: done or not done."""


@dataclass
class _Killer:
    """Ends this process at its `number`-th phase of dealing with files."""

    number: int
    met: Callable[[str], None]
    """Is told what the last phase is."""
    flushed: set[int] = field(default_factory=set)

    def install(self) -> None:
        for name in _PLAIN:
            setattr(os, name, self._before(name, getattr(os, name)))
        os.pwrite = self._in_the_middle("pwrite", os.pwrite, place=1)  # type: ignore[assignment]
        Path.write_bytes = self._in_the_middle("write_bytes", Path.write_bytes, place=1)  # type: ignore[assignment]
        os.fsync = self._unflushed(os.fsync)  # type: ignore[assignment]

    def phase(self, name: str, damage: Callable[[], object] = lambda: None) -> None:
        self.number -= 1
        if self.number == 0:
            damage()
            self.met(name)
            os.kill(os.getpid(), signal.SIGKILL)

    def _before(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any, **options: Any) -> Any:
            self.phase(f"before {name}")
            return plain(*args, **options)

        return done

    def _in_the_middle(self, name: str, plain: Callable[..., Any], place: int) -> Callable[..., Any]:
        def done(*args: Any) -> Any:
            half, size = list(args), len(args[place]) // 2
            half[place] = args[place][: size if size < BLOCK else size // BLOCK * BLOCK]
            self.phase(f"before {name}")
            self.phase(f"within {name}", lambda: plain(*half))
            return plain(*args)

        return done

    def _unflushed(self, plain: Callable[[int], None]) -> Callable[[int], None]:
        """What was not flushed may be lost, as when the machine goes down."""

        def done(descriptor: int) -> None:
            facts = os.fstat(descriptor)
            self.phase("before fsync")
            if facts.st_ino not in self.flushed and not stat.S_ISDIR(facts.st_mode):
                self.phase("with an fsync", lambda: os.truncate(f"/proc/self/fd/{descriptor}", 1))
            self.flushed.add(facts.st_ino)
            return plain(descriptor)

        return done


def _trained(last: int) -> TinyTraining:
    training = TinyTraining.alone("lion", layers=1)
    training.train(1, last)
    return training


def _save(folder: Path, step: int, training: TinyTraining) -> None:
    saver = Saver(folder, KEEP_ONE, training.model.held, training.optimizer)
    saver.stage(step, training.progress(step))
    (outcome,) = saver.finish()
    saver.close()
    assert outcome.error is None


def _killed_at(number: int, folder: Path, training: TinyTraining, met: Callable[[str], None]) -> bool:
    """Save step 2 in another process; whether that was killed."""
    child = os.fork()
    if child == 0:
        killer = _Killer(number, met)
        killer.install()
        try:
            _save(folder, 2, training)
        finally:
            killer.number = -1
            os._exit(0 if latest(folder) == folder / "step-00000002" else 1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, f"the save of phase {number} failed"
    return os.WIFSIGNALED(status)


def _kill_everywhere(start: Path, target: Path, phases: multiprocessing.connection.Connection) -> None:
    """Leave in folders of `target` what kills leave; sends what was going on at each of them, and then None."""
    torch.set_num_threads(1)
    training = _trained(2)
    number = 1
    while _killed_at(number, Path(shutil.copytree(start, target / f"{number:03}")), training, phases.send):
        number += 1
    phases.send(None)


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Path]]:
    """At what a process was killed, and the folder of checkpoints that it left; at last one that was not killed."""
    folder = tmp_path_factory.mktemp("kills")
    _save(folder / "start", 1, _trained(1))
    context = fork_server(__name__)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_kill_everywhere, args=(folder / "start", folder, theirs))
    process.start()
    theirs.close()
    found = []
    while (phase := ours.recv()) is not None:
        found.append(phase)
    process.join(30)
    folders = sorted(folder.glob("[0-9]*"))
    return list(zip([*found, "nothing"], folders, strict=True))


def test_every_phase_of_a_save_is_met(kills: list[tuple[str, Path]]) -> None:
    phases = {phase for phase, _ in kills}
    whole = {f"before {name}" for name in ("mkdir", "open", "rename", "unlink", "rmdir", "fsync", "pwrite")}
    torn = {"within pwrite", "within write_bytes", "with an fsync"}
    assert whole | torn <= phases
    assert len(kills) > 25


def test_after_every_kill_a_complete_checkpoint_is_loaded(kills: list[tuple[str, Path]]) -> None:
    """It is bit for bit the one before or the new one, and once the new one is there it stays."""
    training = _trained(1)
    states = {1: training.whole_state()}
    training.step(2)
    states[2] = training.whole_state()
    reader = TinyTraining.alone("lion", seed=1, layers=1)
    steps = []
    for phase, folder in kills:
        found = load_newest(folder, reader.model.held, reader.optimizer)
        assert found is not None, phase
        steps.append(found[1]["step"])
        assert found[0] == latest(folder) == folder / f"step-{steps[-1]:08d}", phase
        assert_same(reader.whole_state(), states[steps[-1]])
    assert steps == sorted(steps)
    assert set(steps) == {1, 2}


def test_after_every_kill_the_next_run_saves_and_leaves_nothing_else(kills: list[tuple[str, Path]]) -> None:
    training = _trained(2)
    for phase, folder in kills:
        again = Path(shutil.copytree(folder, folder.with_name(f"again-{folder.name}")))
        remove_partials(again)  # as a run does that holds its folder
        _save(again, 2, training)
        assert [path.name for path in again.iterdir()] == ["step-00000002"], phase
