"""Fits find what made the times; choices follow what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.bench.algorithms import Operation, Topology, cost, names
from stoker.bench.choice import choose, crossovers
from stoker.bench.fitting import fit, worst_error
from stoker.bench.request import request_of, sizes_of
from stoker.bench.results import (
    MeasuredAlgorithm,
    Measurement,
    Measurements,
    Point,
    read_measurements,
    write_measurements,
)
from stoker.bench.rounds import Cost
from stoker.errors import BadInput

SIZES = (1024, 65_536, 2**20, 2**24)


def _measured(
    topology: Topology,
    alphas: dict[str, float],
    beta: float,
    operation: Operation = "all_reduce",
    host: str = "here",
) -> Measurement:
    """Times made by the model itself."""
    algorithms = []
    for name in (*names(operation, topology), "library"):
        points = []
        for size in SIZES:
            rounds, length = cost(operation, name, topology, size)
            seconds = rounds * alphas.get(name, alphas["others"]) + length * beta
            points.append(
                Point(
                    bytes=size,
                    median_seconds=seconds,
                    lower_seconds=seconds,
                    upper_seconds=seconds,
                    bus_bytes_per_second=size / seconds,
                    rounds=rounds,
                    wire_bytes=length,
                )
            )
        costs = [cost(operation, name, topology, size) for size in SIZES]
        alpha, beta_found = fit(costs, [point.median_seconds for point in points])
        algorithms.append(
            MeasuredAlgorithm(
                name=name,
                points=tuple(points),
                alpha_seconds=alpha,
                beta_seconds_per_byte=beta_found,
                worst_fit=0.0,
            )
        )
    return Measurement(
        operation=operation,
        ranks=topology.ranks,
        node_size=topology.node_size,
        backend="gloo",
        dtype="fp32",
        measured_at="2026-11-29T12:00:00+00:00",
        host=host,
        machine={},
        versions={},
        algorithms=tuple(algorithms),
        choices=(),
    )


def test_the_fit_finds_latency_and_time_per_byte() -> None:
    costs = [Cost(rounds, length) for rounds, length in ((6, 1500), (6, 96_000), (6, 1.5e6), (24, 2.4e7))]
    seconds = [c.rounds * 2e-4 + c.length * 3e-9 for c in costs]
    alpha, beta = fit(costs, seconds)
    assert alpha == pytest.approx(2e-4, rel=1e-9)
    assert beta == pytest.approx(3e-9, rel=1e-9)
    assert worst_error(costs, seconds, (alpha, beta)) < 1e-9


def test_a_fit_is_never_negative() -> None:
    costs = [Cost(1, 1000), Cost(1, 1_000_000)]
    assert fit(costs, [2.0, 1.0])[1] == 0.0  # the larger was the faster
    alpha, beta = fit(costs, [1e-9, 1.0])
    assert alpha >= 0
    assert beta > 0
    assert fit([Cost(1, 1000)], [0.5]) in ((0.5, 0.0), (0.0, 0.5 / 1000))
    assert fit([Cost(0, 0)], [0.5]) == (0.0, 0.0)


def test_the_choice_goes_from_few_rounds_to_few_bytes() -> None:
    topology = Topology(7, 7)
    measured = Measurements(measurements=(_measured(topology, {"others": 1e-3, "library": 1.0}, 1e-8),))
    assert choose(1024, 7, 7, measured) == "tree"
    assert choose(2**24, 7, 7, measured) == "ring"
    found = crossovers(topology, measured.measurements[0])
    assert found[0] == (found[0].model_copy(update={"from_bytes": 1024, "algorithm": "tree"}))
    for one in found[1:]:
        assert choose(one.from_bytes, 7, 7, measured) == one.algorithm
        assert choose(int(one.from_bytes / 1.05), 7, 7, measured) != one.algorithm


def test_the_library_is_chosen_where_it_is_faster() -> None:
    measured = Measurements(measurements=(_measured(Topology(4, 4), {"others": 1e-3, "library": 1e-6}, 1e-9),))
    assert all(choose(size, 4, 4, measured) == "library" for size in (8, *SIZES, 2**30))


def test_another_arrangement_is_judged_by_the_model_of_the_nearest() -> None:
    near, far = (_measured(Topology(r, r), {"others": 1e-4, "library": a}, 1e-9) for r, a in ((8, 1e-6), (2, 10.0)))
    measured = Measurements(measurements=(near, far))
    assert choose(1024, 16, 16, measured) == "library"
    assert choose(1024, 2, 2, measured) != "library"
    levels = _measured(Topology(8, 4), {"others": 1e-4, "hierarchical": 1e-6, "library": 10.0}, 1e-9)
    measured = measured.with_one_more(levels)
    assert choose(1024, 8, 4, measured) == "hierarchical"
    assert choose(1024, 16, 4, measured) == "hierarchical"
    assert choose(1024, 8, 8, measured) == "library"


def test_what_was_not_measured_is_not_guessed() -> None:
    measured = Measurements(measurements=(_measured(Topology(2, 2), {"others": 1e-4}, 1e-9),))
    with pytest.raises(BadInput, match="all_to_all was not measured"):
        choose(1024, 2, 2, measured, "all_to_all")
    with pytest.raises(BadInput, match="measured: nothing"):
        choose(1024, 2, 2, Measurements())


def test_the_file_keeps_one_measurement_of_a_kind(tmp_path: Path) -> None:
    path = tmp_path / "collectives.json"
    assert read_measurements(path) == Measurements()
    first = _measured(Topology(2, 2), {"others": 1e-4}, 1e-9)
    again = _measured(Topology(2, 2), {"others": 2e-4}, 1e-9)
    elsewhere = _measured(Topology(2, 2), {"others": 2e-4}, 1e-9, host="there")
    other = _measured(Topology(2, 2), {"others": 1e-4}, 1e-9, "all_gather")
    for one in (first, elsewhere, other, again):
        write_measurements(path, read_measurements(path).with_one_more(one))
    assert read_measurements(path).measurements == (elsewhere, other, again)


@pytest.mark.parametrize("content", ["", "[]", '{"format": "stoker.collectives/2"}', "\udcff", '{"a": 1}'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "collectives.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(BadInput, match="name another with --output"):
        read_measurements(path)
    with pytest.raises(BadInput, match="name another with --output"):
        read_measurements(tmp_path)


def test_sizes() -> None:
    assert sizes_of("1m, 1k,64K,1kib,8,2g") == (8, 1024, 65_536, 2**20, 2**31)
    for wrong in ("", "1k,", "4", "0", "1.5k", "-1k", "1x", "1k 2k"):
        with pytest.raises(BadInput, match="--sizes: expected"):
            sizes_of(wrong)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operation": "gather"}, "--op: expected one of all_reduce"),
        ({"ranks": 1}, "--ranks: expected 2 to 64"),
        ({"ranks": 1000}, "--ranks: expected 2 to 64"),
        ({"node_size": 3}, "--node-size: expected 1 to 2"),
        ({"node_size": 0}, "--node-size: expected 1 to 2"),
        ({"dtype": "int8"}, "--dtype: expected"),
        ({"device": "tpu"}, "--device: expected"),
        ({"sizes": "4096g"}, "GiB are free"),
    ],
)
def test_requests_that_cannot_work_are_refused(changes: dict[str, object], message: str) -> None:
    given = {
        "operation": "all_reduce",
        "sizes": "1k",
        "ranks": 2,
        "node_size": None,
        "rounds": 1,
        "dtype": "fp32",
        "device": "cpu",
    }
    with pytest.raises(BadInput, match=message):
        request_of(**(given | changes))  # type: ignore[arg-type]


def test_a_launcher_says_how_many_ranks_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    request = request_of("all_reduce", "1k", None, None, 1, "fp32", "cpu")
    assert request.topology == Topology(8, 4)
    with pytest.raises(BadInput, match="the launcher started 8"):
        request_of("all_reduce", "1k", 4, None, 1, "fp32", "cpu")
