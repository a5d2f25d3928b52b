"""Who is in a run over several nodes: this node's place, and the notice in the run's folder that says who leads."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch

from stoker.durable_files import durable_file
from stoker.errors import BadInput
from stoker.recipe import Recipe
from stoker.recovery.processes import Address
from stoker.run_directory import RunDirectory

_NOTICE = "leader.json"


@dataclass(frozen=True)
class Place:
    """This node among those of a job."""

    node: str
    """Its name."""
    nodes: int
    """How many there are, spares included."""
    job: str
    """What tells this job from any other that is given the same folder."""
    host: str
    """Where the other nodes reach this one."""


@dataclass(frozen=True)
class Notice:
    """Who leads."""

    job: str
    node: str
    identity: str
    """Of the run; empty while the leader still prepares."""
    host: str
    port: int
    """0 while the leader still prepares."""
    token: str
    begun: bool
    """Whether the run's ranks have been started by this job before."""

    @property
    def address(self) -> Address | None:
        """Where the leader listens; None when it does not yet."""
        return (self.host, self.port) if self.port else None


def placed(environment: Mapping[str, str] = os.environ) -> Place | None:
    """This node's place as the scheduler or the user says; None for a run on one node.

    `STOKER_NODES`, `STOKER_NODE` and `STOKER_JOB`, or what `srun` sets. Raises `BadInput` when that makes no sense.
    """
    if "STOKER_NODES" in environment:
        nodes = _number(environment, "STOKER_NODES")
        missing = [name for name in ("STOKER_NODE", "STOKER_JOB") if not environment.get(name)]
        if missing:
            raise BadInput(
                f"STOKER_NODES is set, so {' and '.join(missing)} must be too: this node's name, and a name of the "
                "job that is the same on all its nodes and on those of no other"
            )
        node, job = environment["STOKER_NODE"], environment["STOKER_JOB"]
    elif "SLURM_STEP_ID" in environment:
        nodes = _number(environment, "SLURM_STEP_NUM_NODES", environment.get("SLURM_JOB_NUM_NODES", "1"))
        if nodes > 1 and _number(environment, "SLURM_STEP_NUM_TASKS", str(nodes)) != nodes:
            raise BadInput(
                f"srun starts {environment['SLURM_STEP_NUM_TASKS']} tasks on {nodes} nodes, but there is to be one "
                "command on each node, which starts the ranks itself; give srun --ntasks-per-node=1"
            )
        node = environment.get("SLURMD_NODENAME") or f"node-{environment.get('SLURM_NODEID', '0')}"
        job = ".".join(
            environment.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
        )
    else:
        return None
    if "/" in node or node.startswith("."):
        raise BadInput(f"{node!r} cannot name a node: it becomes the name of a folder")
    return Place(node, nodes, job, _host(environment)) if nodes > 1 else None


def ranks_on(place: Place, recipe: Recipe) -> int:
    """How many ranks this node can hold."""
    if recipe.recovery.ranks_per_node is not None:
        return recipe.recovery.ranks_per_node
    if recipe.training.device != "cpu" and (devices := torch.cuda.device_count()):
        return devices
    return -(-recipe.layout.world_size // place.nodes)


def led(run: RunDirectory, place: Place) -> bool:
    """Whether this node was the last to lead the run, so that what is done once is its to do."""
    notice = read_notice(run)
    return notice is not None and (notice.job, notice.node) == (place.job, place.node)


def new_token() -> str:
    """Known to whoever may read the notice."""
    return secrets.token_hex(32)


def write_notice(run: RunDirectory, notice: Notice) -> None:
    """Say who leads. For this user's eyes only: it holds the token. The caller holds the folder."""
    with durable_file(run.path / _NOTICE) as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.write(json.dumps(asdict(notice), indent=2).encode())


def read_notice(run: RunDirectory) -> Notice | None:
    """Who leads, or led last; None when nobody has."""
    try:
        os.listdir(run.path)  # a network file system then asks its server what there is by this name now
        return Notice(**json.loads((run.path / _NOTICE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _number(environment: Mapping[str, str], name: str, default: str = "") -> int:
    value = environment.get(name, default)
    if not value.isdecimal() or int(value) < 1:
        raise BadInput(f"{name} must be a whole number from 1 on, but it is {value!r}")
    return int(value)


def _host(environment: Mapping[str, str]) -> str:
    """`STOKER_ADDRESS`, or the address that this machine's name has, or the one it would reach others from."""
    if environment.get("STOKER_ADDRESS"):
        return environment["STOKER_ADDRESS"]
    try:
        found = socket.gethostbyname(socket.gethostname())
    except OSError:
        found = "127.0.0.1"
    if not found.startswith("127."):
        return found
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # connecting it sends nothing
        try:
            probe.connect(("192.0.2.1", 9))  # an address kept for documentation, routed as any other
            return str(probe.getsockname()[0])
        except OSError:
            return found
