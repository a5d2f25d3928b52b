"""Looks at ranks that do not move: what each has entered and left of its collectives, its stack, its process."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from stoker.recovery.blame import GroupView, RankView
from stoker.training.marks import Mark

Progress = tuple[tuple[int, ...], int, int, str]
"""Of a rank in a group: its members, the last collective entered, the last complete, and what it was."""
QUESTION = {"ask": "collectives"}
ANSWER_SECONDS = 1.0
"""How long ranks have to answer."""
_STACK_SECONDS = 3.0
_FRAMES = 40


def states_of(pids: Sequence[int | None]) -> list[str]:
    """The state of each process as the system names it; `?` where it does not say."""
    return [_state_of(pid) for pid in pids]


def _state_of(pid: int | None) -> str:
    try:
        said = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "?"
    letter = said.rpartition(")")[2].split()[0]
    return "T" if letter == "t" else letter


def views_of(
    pids: Sequence[int | None], answers: Mapping[int, Mapping[str, GroupView]], marks: Sequence[Mark]
) -> list[RankView]:
    """What is known of every rank, `answers` being what some have said of their collectives.

    Takes seconds at most, whatever state the ranks are in.
    """
    return [
        RankView(state, mark.beats, answers.get(number), stack)
        for number, (state, mark, stack) in enumerate(zip(states_of(pids), marks, _stacks(pids), strict=True))
    ]


def ask(connections: Sequence[Connection]) -> None:
    """Ask every rank for its collectives; a rank that cannot be asked stays silent."""
    for connection in connections:
        with contextlib.suppress(OSError, ValueError):
            connection.send(QUESTION)


def collectives_here() -> dict[str, Progress]:
    """How far this process has come in each of its process groups, from torch's flight recorder.

    By name of the group.
    """
    import torch.distributed as dist

    if not dist.is_initialized():
        return {}
    from torch._C import _distributed_c10d as native
    from torch.distributed import distributed_c10d as groups

    trace = json.loads(native._dump_fr_trace_json())  # type: ignore[attr-defined]
    last = {entry["process_group"][0]: entry["profiling_name"] for entry in trace.get("entries", [])}
    found: dict[str, Progress] = {}
    for group, members in groups._world.pg_group_ranks.items():
        name = groups._world.pg_names.get(group) if isinstance(group, dist.ProcessGroup) else None
        status = trace.get("pg_status", {}).get(name)
        if name is not None and status is not None:
            entered, left = (int(status[f"last_{what}_collective"]) for what in ("enqueued", "completed"))
            found[str(name)] = (tuple(sorted(members)), entered, left, last.get(name, "collective"))
    return found


def as_views(found: dict[str, Progress]) -> dict[str, GroupView]:
    """What a rank answered."""
    return {name: GroupView(*progress) for name, progress in found.items()}


def _stacks(pids: Sequence[int | None]) -> list[tuple[str, ...]]:
    """The main thread's stack of each process, innermost call first, read from outside by py-spy.

    It needs nothing from the process, which may be stopped or hold the interpreter's lock.
    """
    program = Path(sys.executable).with_name("py-spy")
    command = [str(program) if program.is_file() else "py-spy", "dump", "--nonblocking", "--json", "--pid"]
    readers: list[subprocess.Popen[str] | None] = []
    for pid in pids:
        try:
            readers.append(
                subprocess.Popen([*command, str(pid)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            )
        except OSError:  # not installed for this system
            readers.append(None)
    deadline = time.monotonic() + _STACK_SECONDS
    return [() if reader is None else _read_stack(reader, deadline) for reader in readers]


def _read_stack(reader: subprocess.Popen[str], deadline: float) -> tuple[str, ...]:
    try:
        said, _ = reader.communicate(timeout=max(0.1, deadline - time.monotonic()))
        threads = json.loads(said)
    except (subprocess.TimeoutExpired, ValueError):
        reader.kill()
        reader.wait()
        return ()
    main = [thread for thread in threads if thread.get("os_thread_id") == thread.get("pid")] or threads[:1]
    frames = main[0]["frames"] if main else []
    return tuple(f"{frame['name']} ({_short(frame['filename'])}:{frame['line']})" for frame in frames[:_FRAMES])


def _short(filename: str) -> str:
    """The path from the package on: `stoker/training/step.py`, `torch/distributed/distributed_c10d.py`."""
    parts = Path(filename).parts
    for package in ("stoker", "torch"):
        if package in parts:
            return "/".join(parts[len(parts) - 1 - parts[::-1].index(package) :])
    return parts[-1] if parts else filename
