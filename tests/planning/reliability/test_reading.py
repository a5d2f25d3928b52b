"""Descriptions from files and the command line: what is wrong is said with its place and its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from stoker.errors import BadInput
from stoker.planning.reliability import RunDescription, read_run
from stoker.planning.reliability.description import Checkpoint
from stoker.planning.reliability.kinds import Kind

_EXAMPLES = Path(__file__).parents[3] / "examples" / "simulate"


def _refused(tmp_path: Path, text: str, *overrides: str) -> str:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        read_run(path, overrides)
    return str(caught.value).replace(str(path), "run.yaml")


@pytest.mark.parametrize("path", sorted(_EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_read_and_has_its_files_name(path: Path) -> None:
    assert read_run(path).name == path.stem


def test_without_a_file_all_is_as_by_default() -> None:
    run = read_run(None, ["accelerators=1024"])
    assert (run.nodes, run.spare_count, run.replica_count) == (128, 3, 128)


def _defaults(section: type[BaseModel], before: str = "") -> Iterator[tuple[str, object]]:
    """Every field that can be given, and its default."""
    lists = {"kinds": (Kind, "NAME"), "checkpoints": (Checkpoint, "WHERE")}
    for name, field in section.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from _defaults(type(field.default), f"{before}{name}.")
            continue
        yield before + name, field.default
        if name in lists:
            element, called = lists[name]
            yield from _defaults(element, f"{before}{name}.{called}.")


def test_every_field_stands_in_the_documentation_with_its_default() -> None:
    page = (_EXAMPLES.parents[1] / "docs" / "simulate.md").read_text(encoding="utf-8")
    rows = dict(line.strip("|").split("|")[:2] for line in page.splitlines() if line.startswith("| `"))
    told = {field.strip(" `"): default.strip() for field, default in rows.items()}
    for name, default in _defaults(RunDescription):
        if name == "failures.kinds.NAME.name":
            continue
        assert told[name]
        if isinstance(default, bool | str | int | float):
            assert told[name] == (str(default).lower() if isinstance(default, bool | str) else f"{default:.10g}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "accelerators: 16384\naccelerator_per_node: 8",
            "run.yaml:2:1: accelerator_per_node: unknown key; did you",
        ),
        (
            "accelerators: 10000000000000",
            "run.yaml:1:1: accelerators: expected a number of at most 1000000, got 100",
        ),
        ("accelerators: .nan", "run.yaml:1:1: accelerators: expected a finite number, got not-a-number"),
        ("accelerators: true", "run.yaml:1:1: accelerators: expected a number or text, got true"),
        (
            "accelerators: 1001",
            "run.yaml:1:1: accelerators: expected a multiple of accelerators_per_node (8), got 1001",
        ),
        ("accelerators: 64\nspares:\n  count: 9", "run.yaml:3:3: spares.count: expected at most the run's 8 nodes"),
        ("spares:\n  count: -1", "run.yaml:2:3: spares.count: expected a number of at least 0, got -1"),
        ("step_seconds: 0", "run.yaml:1:1: step_seconds: expected a number above 0, got 0"),
        ("price_per_accelerator_hour: .inf", "expected a finite number, got inf"),
        ("failures:\n  per_1000_node_days: -3", "run.yaml:2:3: failures.per_1000_node_days: expected a number of"),
        (
            "checkpoints:\n- interval_seconds: 0",
            "run.yaml:2:3: checkpoints.0.interval_seconds: expected a number above",
        ),
        ("checkpoints:\n- interval_seconds: soon", "interval_seconds: expected a number or optimal, got 'soon'"),
        (
            "failures:\n  per_1000_node_days: 3\n  kinds:\n  - {name: x, per_day: 1}",
            "expected a kind with a rate per",
        ),
        (
            "failures:\n  kinds:\n  - {name: x, per_day: 1, grows_with: accelerators}",
            "failures.kinds.0.grows_with: exp",
        ),
        ("checkpoints:\n- interval_seconds: 30", "expected write_seconds (60) or more, got 30"),
        ("checkpoints:\n- stall_seconds: 70", "expected stall_seconds (70) or more, got 60"),
        ("checkpoints: []", "no copy outlives that; add `where: peer`"),
        ("checkpoints:\n- where: store\n- where: peer", "at most once and in this order, got store, peer"),
        (
            "replicas:\n  count: 7",
            "run.yaml:2:3: replicas.count: expected a divisor of the run's 2048 nodes, got 7",
        ),
        ("replicas:\n  mode: elastic", "replicas.mode: expected one of fixed, shrink, per_step, got 'elastic'"),
        ("failures:\n  spacing: regular", "it needs `replicas.mode: per_step` and `checkpoints: []`"),
        (
            "failures:\n  kinds:\n  - name: x",
            "run.yaml:3:5: failures.kinds.0: expected one of per_1000_node_days and per_day, got neither",
        ),
        (
            "ideal_days: 3\nwall_days: 4",
            "run.yaml:2:1: wall_days: expected one of ideal_days and wall_days, got both",
        ),
        ("- 1", "run.yaml: expected fields such as `accelerators: 16384`, got a list of 1"),
        ("name: [", "run.yaml:1:8: not valid YAML"),
    ],
    ids=lambda value: value.replace("\n", " ")[:40],
)
def test_nonsense_is_refused_with_its_line_and_a_remedy(tmp_path: Path, text: str, said: str) -> None:
    assert said in _refused(tmp_path, text)


def test_a_wrong_number_is_one_mistake_where_a_word_could_stand_too(tmp_path: Path) -> None:
    said = _refused(tmp_path, "checkpoints:\n- interval_seconds: 0")
    assert said == "run.yaml:2:3: checkpoints.0.interval_seconds: expected a number above 0, got 0"


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    said = _refused(tmp_path, "accelerators: -8\nstep_seconds: -1\n")
    assert said.startswith("2 mistakes:")
    assert "run.yaml:1:1: accelerators" in said
    assert "run.yaml:2:1: step_seconds" in said


def test_a_mistake_of_the_command_line_names_the_override(tmp_path: Path) -> None:
    assert "override spares.count=-2: spares.count: expected" in _refused(tmp_path, "", "spares.count=-2")
    assert "override spare.count=2: spare: unknown key; did you mean `spares`?" in _refused(
        tmp_path, "", "spare.count=2"
    )
    assert "expected KEY=VALUE" in _refused(tmp_path, "", "spares")


def test_elements_of_lists_are_overridden_by_name_and_by_position() -> None:
    run = read_run(None, ["failures.kinds.software.detection_seconds=30", "checkpoints.store.stall_seconds=1"])
    (software,) = [kind for kind in run.failures.kinds if kind.name == "software"]
    assert software.detection_seconds == 30
    assert run.checkpoints[0].stall_seconds == 1
    assert read_run(None, ["checkpoints.0.load_seconds=7"]).checkpoints[0].load_seconds == 7
    with pytest.raises(BadInput, match="no such element; name one by position 0 to 11 or as gpu, hbm"):
        read_run(None, ["failures.kinds.gremlins.per_day=1"])


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.yaml: cannot be read"):
        read_run(tmp_path / "none.yaml")
