"""`stoker diagnose` on records as a run writes them: whole, torn, with ranks or columns missing, gone back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.diagnosis import Diagnosis, Evidence, Finding, Remedy, diagnose
from stoker.diagnosis.course import RANKS_CHANGED, course_of
from stoker.diagnosis.diagnose import without_sameness
from stoker.diagnosis.in_a_line import in_a_line
from stoker.diagnosis.telling import in_text
from stoker.diagnosis.told import told
from stoker.record import SUPERVISOR, Record, RecordWriter
from stoker.run_directory import RunDirectory

ROWS = 240
CLOCK_SKEW = 3_000.0
KEYS = {
    "kind", "cause", "severity", "first_step", "last_step", "ranks", "sources", "documents", "confidence",
    "evidence", "remedy", "score", "alternatives", "names", "part",
}  # fmt: skip


def step_rows(rank: int = 0, ranks: int = 1, rows: int = ROWS) -> list[dict[str, Any]]:
    draw = np.random.default_rng(rank)
    found = []
    for step in range(1, rows + 1):
        loss = float((2 + 8 * step**-0.4) * np.exp(0.01 * draw.standard_normal()))
        forward, backward = (float(s * np.exp(0.01 * draw.standard_normal())) for s in (0.3, 0.6))
        found.append(
            {
                "attempt": 1,
                "step": step,
                "time": 1.7e9 + CLOCK_SKEW * rank + step,
                "loss": loss,
                "gradient_norm": float(0.3 * np.exp(0.1 * draw.standard_normal())),
                "learning_rate": 3e-4,
                "tokens": 1000,
                "first_sample": (step - 1) * 4,
                "last_sample": step * 4,
                "skipped": False,
                "seconds": {
                    "data": 0.01,
                    "forward": forward,
                    "backward": backward,
                    "total": forward + backward + 0.1,
                },
                "memory_peak_bytes": 2**30,
                "ranks": ranks,
            }
        )
    return found


def write_run(folder: Path, rows: Iterable[dict[str, Any]], rank: int = 0, kind: str = "step") -> RunDirectory:
    run = RunDirectory(folder)
    folder.mkdir(exist_ok=True)
    run.recipe.write_text("name: drawn\n")
    writer = RecordWriter(run.record, rank, flush_seconds=1.0)
    for row in rows:
        writer.append(kind, row)
    assert writer.close()
    return run


def event(name: str, step: int | None, **detail: Any) -> dict[str, Any]:
    return {"attempt": 1, "step": step, "time": 1.7e9 + (step or 0), "event": name, "detail": detail}


def kinds(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    return [(finding.severity, finding.kind) for finding in diagnosis.findings]


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(cli.application, ["diagnose", *map(str, arguments)])


def test_a_healthy_run_ends_with_0_and_says_that_nothing_stands_out(tmp_path: Path) -> None:
    write_run(tmp_path, step_rows())
    result = invoke(tmp_path)
    assert result.exit_code == 0
    assert "Nothing stands out." in result.output


def test_a_divergence_ends_with_1_and_is_told_with_its_samples(tmp_path: Path) -> None:
    rows = step_rows()
    for row in rows[150:]:
        row["loss"] *= 1.8
    write_run(tmp_path, rows)
    result = invoke(tmp_path)
    assert result.exit_code == 1
    assert "ALARM    divergence, steps 151 to 240" in result.output
    assert "samples 600–631" in result.output
    assert "recovery.on_divergence: rollback" in result.output


def test_json_gives_findings_with_every_key_of_the_contract(tmp_path: Path) -> None:
    rows = step_rows()
    for row in rows[150:153]:
        row["loss"] *= 1.8
    write_run(tmp_path, rows)
    result = invoke(tmp_path, "--json")
    assert result.exit_code == 0
    told = json.loads(result.output)
    (finding,) = told["findings"]
    assert set(finding) == KEYS
    assert (finding["kind"], finding["cause"], finding["severity"]) == ("spike", "hard_documents", "warning")
    assert (finding["first_step"], finding["last_step"], finding["documents"]) == (151, 153, [[600, 611]])
    assert all(set(one) == {"measure", "expected", "observed", "step"} for one in finding["evidence"])
    assert set(finding["remedy"]) == {"action", "arguments"}


def test_since_leaves_out_what_was_over_before(tmp_path: Path) -> None:
    rows = step_rows()
    for row in rows[100:103]:
        row["loss"] *= 1.8
    run = write_run(tmp_path, rows)
    assert kinds(diagnose(run, since=103)) == [("warning", "spike")]
    assert kinds(diagnose(run, since=104)) == []


def test_a_folder_that_is_no_run_is_bad_input(tmp_path: Path) -> None:
    result = invoke(tmp_path)
    assert result.exception is not None
    assert getattr(result.exception, "exit_code", None) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_step_is_diagnosed_as_such(tmp_path: Path) -> None:
    run = write_run(tmp_path, [event("started", 0)], kind="event")
    diagnosis = diagnose(run)
    assert (diagnosis.rows, diagnosis.findings) == (0, ())
    assert "no step has been recorded" in in_text(diagnosis)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 12])
def test_a_very_short_run_has_no_finding(tmp_path: Path, rows: int) -> None:
    assert diagnose(write_run(tmp_path, step_rows(rows=rows))).findings == ()


def test_a_torn_tail_and_a_missing_rank_are_said_and_the_rest_is_read(tmp_path: Path) -> None:
    rows = step_rows(ranks=3)
    rows[150]["loss"] = float("nan")
    run = write_run(tmp_path, rows)
    write_run(tmp_path, step_rows(rank=1, ranks=3), rank=1)
    live = run.record / "rank-00000" / "live.frames"
    live.write_bytes(live.read_bytes()[:-7])
    diagnosis = diagnose(run)
    assert diagnosis.last_step == ROWS - 1
    assert kinds(diagnosis) == [("warning", "nan")]
    assert {"rank", "tail"} <= {gap.kind for gap in diagnosis.gaps}
    assert "rank 2 has left no record" in in_text(diagnosis)


def test_rows_of_an_older_format_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    rows = [{"step": row["step"], "loss": row["loss"]} for row in step_rows()]
    for row in rows[150:]:
        row["loss"] *= 1.8
    diagnosis = diagnose(write_run(tmp_path, rows))
    assert kinds(diagnosis) == [("alarm", "divergence")]
    assert {"time", "gradient_norm", "learning_rate", "seconds"} <= set(diagnosis.missing)
    assert "gradient norm" in in_text(diagnosis)


def test_a_figure_that_is_not_finite_is_spelled_out(tmp_path: Path) -> None:
    rows = step_rows()
    rows[-1]["loss"], rows[-1]["gradient_norm"] = float("nan"), float("inf")
    write_run(tmp_path, rows)
    result = invoke(tmp_path, "--json")
    assert result.exit_code == 1
    (finding,) = json.loads(result.output)["findings"]
    assert finding["kind"] == "nan"
    assert {one["observed"] for one in finding["evidence"]} == {"NaN", "Inf"}


def test_clocks_that_differ_between_ranks_make_no_finding_and_a_slow_rank_does(tmp_path: Path) -> None:
    run = write_run(tmp_path, step_rows(ranks=3))
    write_run(tmp_path, step_rows(rank=1, ranks=3), rank=1)
    slow = step_rows(rank=2, ranks=3)
    for row in slow[120:]:
        row["seconds"]["backward"] *= 2
    write_run(tmp_path, slow, rank=2)
    (finding,) = diagnose(run).findings
    assert (finding.kind, finding.ranks, finding.severity) == ("slow_rank", (2,), "warning")
    assert abs((finding.first_step or 0) - 121) <= 16


def test_a_run_under_way_is_said_to_be_and_its_silence_is_a_stall(tmp_path: Path) -> None:
    run = write_run(tmp_path, step_rows())
    with run.held("a test"):
        diagnosis = diagnose(run)
    assert diagnosis.under_way
    assert kinds(diagnosis) == [("alarm", "stall")]
    assert not diagnose(run).under_way


def test_what_the_guard_and_the_supervisor_recorded_is_told_with_its_cause(tmp_path: Path) -> None:
    run = write_run(tmp_path, step_rows())
    write_run(tmp_path, [event("save_failed", 50, reason="no space left on device")], kind="event")
    failure = event("failure", 90, kind="killed", ranks=[1], message="rank 1 was killed by SIGKILL", retried=True)
    write_run(tmp_path, [failure], rank=SUPERVISOR, kind="event")
    found = {finding.kind: finding for finding in diagnose(run).findings}
    assert set(found) == {"save_failed", "failure"}
    assert (found["failure"].cause, found["failure"].severity, found["failure"].ranks) == ("killed", "note", (1,))
    assert (found["save_failed"].cause, found["save_failed"].first_step) == ("storage", 50)


def test_a_spike_that_the_guard_saw_too_is_one_finding_with_the_guards_documents(tmp_path: Path) -> None:
    rows = step_rows()
    rows[150]["loss"] *= 2.2
    rows[151]["loss"] *= 1.6
    run = write_run(tmp_path, rows)
    seen = {"measure": "loss", "observed": 6.0, "expected": 3.0, "limit": 3.3, "first_step": 151}
    write_run(tmp_path, [event("spike", 151, samples=[600, 604], response="wait", **seen)], kind="event")
    (finding,) = diagnose(run).findings
    assert (finding.kind, finding.first_step, finding.documents) == ("spike", 151, ((600, 603),))


def test_a_step_that_was_given_up_is_known_from_its_event_alone(tmp_path: Path) -> None:
    rows = step_rows()
    again = [dict(row) for row in rows[99:]]
    rows[119]["loss"] = float("nan")
    run = write_run(tmp_path, [*rows[:120], *again])
    write_run(tmp_path, [event("non_finite", 120, reason="the loss is nan")], kind="event")
    (finding,) = diagnose(run).findings
    assert (finding.kind, finding.severity, finding.first_step) == ("nan", "warning", 120)


def test_the_last_failure_of_a_run_that_gave_up_is_an_alarm(tmp_path: Path) -> None:
    run = write_run(tmp_path, step_rows())
    gave_up = event(
        "gave_up", ROWS, kind="hang", ranks=[0], message="rank 0 hangs", reason="three times at one step"
    )
    write_run(tmp_path, [gave_up], rank=SUPERVISOR, kind="event")
    (finding,) = diagnose(run).findings
    assert (finding.kind, finding.severity, finding.cause) == ("hang", "alarm", "hung_collective")


def test_evaluations_and_routing_are_looked_at(tmp_path: Path) -> None:
    run = write_run(tmp_path, step_rows())
    held_out = [4.0, 3.5, 3.2, 3.1, 3.05, 3.2, 3.4, 3.6]
    write_run(
        tmp_path,
        [{"attempt": 1, "step": 30 * i, "source": "english", "loss": one} for i, one in enumerate(held_out, 1)],
        kind="evaluation",
    )
    loads = [(1.2, 0.8) if step < 150 else (6.0, 0.01) for step in range(1, ROWS + 1)]
    write_run(
        tmp_path,
        [
            {"attempt": 1, "step": step, "module": "blocks.1.moe", "largest_load": most, "smallest_load": least}
            for step, (most, least) in enumerate(loads, 1)
        ],
        kind="routing",
    )
    assert set(kinds(diagnose(run))) == {("warning", "overfitting"), ("alarm", "router_collapse")}


def test_a_rank_that_computes_wrong_bits_again_is_an_alarm_and_once_a_warning(tmp_path: Path) -> None:
    run = write_run(tmp_path, step_rows())
    wrong = [
        event("silent_corruption", 60, ranks=[1], verdict="transient"),
        event("silent_corruption", 180, ranks=[2], verdict="persistent"),
    ]
    write_run(tmp_path, wrong, kind="event")
    found = {finding.ranks: finding for finding in diagnose(run).findings}
    assert {ranks: one.severity for ranks, one in found.items()} == {(1,): "warning", (2,): "alarm"}
    assert {one.cause for one in found.values()} == {"wrong_numbers"}


def test_what_is_wrong_again_in_an_earlier_step_that_is_done_again_began_where_it_was_seen_first(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path, step_rows())
    first, again = (event("silent_corruption", step, ranks=[0, 1], verdict="undecided") for step in (128, 124))
    write_run(tmp_path, [first, {**again, "time": first["time"] + 1}], kind="event")
    (finding,) = diagnose(run).findings
    assert (finding.first_step, finding.last_step) == (128, 128)


def test_of_two_ranks_that_disagreed_only_the_one_that_was_wrong_is_named_once_that_is_known(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path, step_rows())
    wrong = [
        event("silent_corruption", 88, ranks=[0, 1], verdict="undecided"),
        event("silent_corruption", 88, ranks=[0], verdict="transient", settles=True, first_step=82),
    ]
    write_run(tmp_path, wrong, kind="event")
    (finding,) = diagnose(run).findings
    assert (finding.first_step, finding.ranks) == (82, (0,))


def test_the_same_failure_many_times_is_one_finding_that_counts_them(tmp_path: Path) -> None:
    run = write_run(tmp_path, step_rows())
    killed = [event("failure", step, kind="killed", ranks=[1], message="SIGKILL") for step in range(20, 120, 10)]
    write_run(tmp_path, killed, rank=SUPERVISOR, kind="event")
    (finding,) = diagnose(run).findings
    assert (finding.first_step, finding.last_step) == (20, 110)
    assert [one.observed for one in finding.evidence if one.measure == "times"] == [10.0]


def test_a_failure_that_the_run_recovered_from_needs_nobody_until_it_repeats(tmp_path: Path) -> None:
    run = write_run(tmp_path, step_rows())
    killed = event("failure", 90, kind="killed", ranks=[1], message="rank 1 was killed by SIGKILL.", retried=True)
    write_run(tmp_path, [killed], rank=SUPERVISOR, kind="event")
    told = in_text(diagnose(run))
    assert "cause: killed (certain)" in told
    assert "at step 90: rank 1 was killed by SIGKILL; the ranks are started again" in told
    assert "nothing: the run went on by itself; only if it repeats" in told
    write_run(tmp_path, [killed, killed], rank=SUPERVISOR, kind="event")
    (finding,) = diagnose(run).findings
    assert (finding.severity, finding.remedy.action) == ("warning", "recovered_often")


def test_a_stop_that_was_asked_for_is_a_note_of_its_own_and_blames_nobody(tmp_path: Path) -> None:
    run = write_run(tmp_path, step_rows())
    write_run(tmp_path, [event("terminated", ROWS)], kind="event")
    asked = event("failure", ROWS, kind="terminated", ranks=[3], message="asked to stop", retried=False)
    write_run(tmp_path, [asked], rank=SUPERVISOR, kind="event")
    (finding,) = diagnose(run).findings
    assert (finding.kind, finding.severity, finding.ranks) == ("stop_requested", "note", ())


def test_a_kill_of_the_whole_command_and_another_layout_after_it_are_told(tmp_path: Path) -> None:
    """Attempt 1 has no recorded end; attempt 2 goes on from step 118 with 4 ranks, and slower steps."""
    first = step_rows(rows=120, ranks=2)
    second = [{**row, "attempt": 2, "time": row["time"] + 500, "ranks": 4} for row in step_rows()[118:]]
    for row in second:
        row["seconds"] = {name: 2 * value for name, value in row["seconds"].items()}
    run = write_run(tmp_path, [*first, *second])
    resumed = {**event("resumed", 118), "attempt": 2, "time": 1.7e9 + 610}
    ended = {**event("finished", ROWS), "attempt": 2, "time": 1.7e9 + 800}
    write_run(tmp_path, [event("started", 0), resumed, ended], kind="event")
    found = {finding.cause: finding for finding in diagnose(run).findings}
    assert set(found) == {"command_killed", "layout_changed"}
    assert (found["command_killed"].kind, found["command_killed"].severity) == ("failure", "note")
    assert (found["layout_changed"].kind, found["layout_changed"].first_step) == ("throughput_drop", 119)
    told = in_text(diagnose(run))
    assert "the layout changed: 2 ranks before, 4 ranks since" in told
    assert "certain" not in told


def test_another_layout_of_as_many_ranks_is_told(tmp_path: Path) -> None:
    first, second = step_rows(rows=120, ranks=2), [{**row, "attempt": 2} for row in step_rows(ranks=2)[120:]]
    run = write_run(tmp_path, [*first, *second])
    began = [event("started", 0, layout="dp_shard=2"), {**event("resumed", 120, layout="tp=2"), "attempt": 2}]
    write_run(tmp_path, began, kind="event")
    (told,) = [one for one in course_of(Record(run.record), under_way=False) if one["event"] == RANKS_CHANGED]
    assert in_a_line(told) == "the layout changed: dp_shard=2 before, tp=2 since"


def test_evidence_that_is_as_expected_is_left_out() -> None:
    same = Evidence(measure="ranks", expected=2.0, observed=2.0, step=5)
    other = Evidence(measure="loss", expected=2.0, observed=3.0, step=5)
    finding = Finding(
        kind="spike", severity="note", first_step=5, last_step=5, confidence=0.9, evidence=(same, other),
        remedy=Remedy(action="none"),
    )  # fmt: skip
    assert without_sameness(finding).evidence == (other,)


def test_diagnose_loads_no_torch(tmp_path: Path) -> None:
    write_run(tmp_path, step_rows(rows=20))
    program = "import sys\nfrom stoker.cli import application\ntry: application(['diagnose', sys.argv[1]])\n" + (
        "except SystemExit as end: assert not end.code\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, capture_output=True, timeout=60)


def test_documents_at_fault_are_those_that_the_step_was_given(tmp_path: Path) -> None:
    """As when the feed is at fault: the recipe's samples of the step were seen by nobody."""
    rows = step_rows()
    for row in rows[200:203]:
        row["loss"] *= 2
    rows[200]["given_samples"] = [[12, 14], [800, 802]]
    (spike,) = [one for one in diagnose(write_run(tmp_path / "run", rows)).findings if one.kind == "spike"]
    assert spike.first_step == 201
    assert spike.documents[:2] == ((12, 13), (800, 801))
    assert all(first != 802 for first, _ in spike.documents)


def test_a_spike_in_the_last_step_of_a_run_that_is_done_stands_in_nobodys_way() -> None:
    spike = event("spike", 90, measure="loss", observed=6.0, expected=3.0, samples=[0, 8], response="wait")
    begun, done = event("started", 1), event("finished", 90)
    assert [one.severity for one in told([begun, spike, done], 90)] == ["note"]
    assert [one.severity for one in told([begun, spike], 90)] == ["alarm"]
    assert [one.severity for one in told([begun, done, event("resumed", 60), spike], 90)] == ["alarm"]


def test_what_the_loss_said_of_two_gradients_is_told_of_the_wrong_one_and_only_where_it_decided() -> None:
    asked = {"why": "…", "derivative": 0.5, "error": 0.01, "by_gradients": [0.51, 8.0e3]}
    decided = event("silent_corruption", 60, ranks=[1], verdict="persistent", arbiter=asked)
    open_ = event("silent_corruption", 60, ranks=[0, 1], verdict="undecided", arbiter=asked)
    (named,), (unnamed,) = told([decided], 90), told([open_], 90)
    assert [(one.expected, one.observed) for one in named.evidence[1:]] == [(0.5, 8.0e3)]
    assert len(unnamed.evidence) == 1
