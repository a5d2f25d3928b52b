"""What was measured, as it is kept in `collectives.json`. Seconds and bytes throughout.

`docs/bench.md` documents the file for other readers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stoker.bench.algorithms import Operation, Topology
from stoker.durable_files import durable_file
from stoker.errors import BadInput

Format = Literal["stoker.collectives/1"]


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Point(_Value):
    """One algorithm at one size."""

    bytes: int = Field(description="Of each rank's buffer; of a gather's or a scatter's, the whole.")
    median_seconds: float
    lower_seconds: float = Field(description="First quartile over rounds.")
    upper_seconds: float = Field(description="Third quartile.")
    bus_bytes_per_second: float = Field(description="Least bytes a rank must send, over the median.")
    rounds: int = Field(description="What α is multiplied by in the fit.")
    wire_bytes: int = Field(description="What β is multiplied by.")


class MeasuredAlgorithm(_Value):
    """One algorithm at all sizes, and the fit of seconds = rounds · alpha + wire_bytes · beta."""

    name: str
    points: tuple[Point, ...] = Field(min_length=1)
    alpha_seconds: float
    beta_seconds_per_byte: float
    worst_fit: float = Field(description="Largest distance of the fit from a median, as a share of the median.")


class Choice(_Value):
    """The fastest algorithm from a size on."""

    from_bytes: int
    algorithm: str


class Measurement(_Value):
    """One operation on one arrangement of ranks."""

    operation: Operation
    ranks: int
    node_size: int
    backend: str
    dtype: str
    measured_at: str = Field(description="ISO 8601, UTC.")
    host: str
    machine: dict[str, str | int | None]
    versions: dict[str, str]
    algorithms: tuple[MeasuredAlgorithm, ...]
    choices: tuple[Choice, ...]

    @property
    def topology(self) -> Topology:
        """How the ranks were spread over nodes."""
        return Topology(self.ranks, self.node_size)

    @property
    def _what(self) -> tuple[object, ...]:
        return (self.operation, self.ranks, self.node_size, self.backend, self.dtype, self.host)


class Measurements(_Value):
    """The file: at most one measurement of each operation, arrangement, backend, type and host."""

    format: Format = "stoker.collectives/1"
    measurements: tuple[Measurement, ...] = ()

    def with_one_more(self, new: Measurement) -> Measurements:
        """`new` in place of an older measurement of the same."""
        kept = tuple(one for one in self.measurements if one._what != new._what)
        return Measurements(measurements=(*kept, new))


def read_measurements(path: Path) -> Measurements:
    """What is in `path`; nothing where there is no file. Raises `BadInput` where it is another kind of file."""
    if not path.exists():
        return Measurements()
    try:
        return Measurements.model_validate_json(path.read_bytes())
    except (ValidationError, OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: expected measurements of `stoker bench collectives`, but it is another file "
            f"({str(error).splitlines()[0]}); name another with --output"
        ) from None


def write_measurements(path: Path, measurements: Measurements) -> None:
    """Write `path`, whole or not at all."""
    with durable_file(path) as file:
        file.write(measurements.model_dump_json(indent=2).encode() + b"\n")
