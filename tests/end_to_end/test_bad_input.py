"""What users get wrong and machines do to them, by the command line: one message, no traceback, nothing lost."""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard

from stoker.data.ledger import Ledger
from stoker.record import Record
from tests.end_to_end.small_job import command, recipe, stoker, write_job
from tests.preloaded import environment

pytestmark = pytest.mark.slow


def _thorough(value: Any) -> Any:
    """One of several amounts, the others of which run every time."""
    return pytest.param(value, marks=pytest.mark.thorough)


_LINES = "".join(
    json.dumps({"text": f"Sentence {i} of a text about rivers and lanterns."}) + "\n" for i in range(80)
)
_CHINESE = "今天天气很好，我们一起去公园散步。孩子们在草地上奔跑，老人们坐在长椅上聊天。"
_TRADITIONAL = "今天天氣很好，我們一起去公園散步。孩子們在草地上奔跑，老人們坐在長椅上聊天。"


def _parquet(text: str) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(text.splitlines(), pa.string())}), stream)
    return stream.getvalue()


def _first_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


ODD_FILES: dict[str, tuple[bytes, str]] = {
    "empty.txt": (b"", "empty"),
    "empty.jsonl": (b"", "empty"),
    "empty.jsonl.gz": (b"", "empty"),
    "empty.jsonl.zst": (b"", "empty"),
    "blank.jsonl": (b"\n\r\n\n", "empty"),
    "no rows.parquet": (_parquet(""), "empty"),
    "empty.parquet": (b"", "damaged"),
    "one byte.parquet": (b"P", "damaged"),
    "one byte.jsonl": (b"{", "not_json"),
    "binary.txt": (bytes(range(256)) * 20, "binary"),
    "zeros.jsonl": (bytes(1000), "binary"),
    "cut.jsonl.gz": (_first_half(gzip.compress(_LINES.encode())), "truncated"),
    "cut.jsonl.zst": (_first_half(zstandard.compress(_LINES.encode())), "truncated"),
    "cut.parquet": (_first_half(_parquet(_LINES)), "truncated"),
    "not packed.jsonl.gz": (_LINES.encode(), "damaged"),
    "damaged 文字.txt": (b"plain text \xff\xfe\xfa\xc3\x28 and more of it", "undecodable"),
    "no field.jsonl": (b'{"body": "x"}\n', "no_text_field"),
    "other type.jsonl": (b'{"text": 5}\n', "wrong_type"),
    "nested.jsonl": (b'{"text":' + b"[" * 100_000 + b"\n", "not_json"),
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path / "a folder 与空格")


def _with_source(job: Path, folder: str) -> None:
    content = recipe()
    content["data"]["sources"].append({"name": "odd", "paths": [folder], "weight": 0})
    content["data"] |= {"on_error": "skip", "error_budget": 1.0}
    job.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")


def _one_message(result: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert "unexpected error" not in result.stderr
    assert result.stderr.count("stoker: ") == 1
    for word in words:
        assert word in result.stderr


def test_every_unreadable_file_is_counted_and_named_and_the_rest_is_prepared(job: Path) -> None:
    folder = job.parent / "odd files 奇怪"
    folder.mkdir()
    for name, (content, _) in ODD_FILES.items():
        (folder / name).write_bytes(content)
    _with_source(job, folder.name)
    result = stoker("prepare", job, "--json")
    assert result.returncode == 0, result.stderr
    ledger = Ledger(Path(json.loads(result.stdout)["folder"]))
    for name, (_, reason) in ODD_FILES.items():
        rows = ledger.why(f"{folder.name}/{name}")
        assert reason in [row["reason"] for row in rows], f"{name}: {rows}"


def test_text_in_other_encodings_is_read(job: Path) -> None:
    folder = job.parent / "encodings"
    folder.mkdir()
    for name, text, encoding in (
        ("utf16.txt", _CHINESE, "utf-16"),
        ("utf16be.txt", _TRADITIONAL, "utf-16-be"),
        ("gbk.txt", _CHINESE, "gbk"),
        ("big5.txt", _TRADITIONAL, "big5"),
    ):
        (folder / name).write_bytes(text.encode(encoding))
    _with_source(job, "encodings")
    assert stoker("prepare", job, "--json").returncode == 0
    for name, text in (("gbk.txt", _CHINESE), ("big5.txt", _TRADITIONAL), ("utf16be.txt", _TRADITIONAL)):
        rows = json.loads(stoker("data", "why", job, f"encodings/{name}", "--json").stdout)
        assert [row["characters"] for row in rows] == [len(text)], rows
        assert rows[0]["verdict"] != "fault"


def test_a_huge_single_line_is_passed_over_in_little_memory(job: Path) -> None:
    folder = job.parent / "huge"
    folder.mkdir()
    with open(folder / "line.jsonl", "wb") as stream:
        for _ in range(300):
            stream.write(b"a" * (1 << 20))
    _with_source(job, "huge")
    peak = "import resource,subprocess,sys; code=subprocess.run(sys.argv[1:]).returncode; "
    peak += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"
    result = subprocess.run(
        [command()[0], "-c", peak, *command("prepare", job)], capture_output=True, text=True, env=environment()
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[-1]) < 900 << 10  # KiB, most of it Python and its libraries
    rows = json.loads(stoker("data", "why", job, "huge/line.jsonl", "--json").stdout)
    assert [row["reason"] for row in rows] == ["too_large"]


def test_nothing_to_read_is_refused_before_anything_is_written(job: Path) -> None:
    (job.parent / "nothing").mkdir()
    _with_source(job, "nothing")
    _one_message(stoker("prepare", job), 2, "nothing", "empty folder")
    (job.parent / "nothing").rmdir()
    _one_message(stoker("prepare", job), 2, "nothing", "does not exist")
    assert not list((job.parent / "prepared").glob("*/manifest.json"))


def test_too_little_text_is_refused_with_where_it_went(job: Path) -> None:
    (job.parent / "few.txt").write_text("a")
    _with_source(job, "few.txt")
    result = stoker("prepare", job, "data.sources.odd.weight=1")
    _one_message(result, 2, "`odd` has", "one sequence")
    _one_message(stoker("prepare", job, "tokenizer.vocabulary_size=100000"), 2, "vocabulary_size", "supports only")
    assert stoker("prepare", job).returncode == 0


@pytest.mark.parametrize("verb", [_thorough("plan"), _thorough("train"), "run"])
def test_a_model_beyond_this_machine_is_refused_before_anything_large_is_allocated(job: Path, verb: str) -> None:
    line = f"ulimit -v {12 << 20}; stoker {verb} {shlex.quote(str(job))} "
    _one_message(_shell(line + "model.hidden_size=1000000"), 2, "would not fit", " free. ")


def test_all_mistakes_of_a_recipe_are_told_at_once(job: Path) -> None:
    mistakes = ["data.sources.english.weight=-1", "training.stepz=3", "training.sequence_length=many"]
    mistakes += ["training.threads=100000", 'run=""', "name=.."]
    result = stoker("recipe", "check", job, *mistakes)
    _one_message(result, 2, "at least 0", "did you mean `training.steps`", "whole number", "at most 1024", "name:")
    zero = [f"data.sources.{name}.weight=0" for name in ("english", "chinese", "code", "mathematics")]
    _one_message(stoker("recipe", "check", job, *zero), 2, "weight")
    _one_message(stoker("recipe", "check", job, "training.global_batch_size=7"), 2, "micro_batch_size")


@pytest.mark.parametrize("verb", [("eval",), ("report",), ("export",), ("data", "show", "--step", "1")])
def test_a_folder_with_a_recipe_and_no_run_is_no_run(job: Path, verb: tuple[str, ...]) -> None:
    _one_message(stoker(*verb, job.parent), 2, "is not a run")
    assert not (job.parent / "report.html").exists()


def test_a_run_never_replaces_the_recipe_it_is_made_from(job: Path) -> None:
    before = job.read_bytes()
    _one_message(stoker("run", job, "--run", job.parent), 2, "holds the recipe itself")
    _one_message(stoker("run", job, "--run", job), 2, "is a file")
    _one_message(stoker("run", job, "--run", ""), 2, "--run")
    assert job.read_bytes() == before
    assert not (job.parent / "prepared").exists()


def test_a_changed_recipe_is_refused_before_its_text_is_prepared(job: Path) -> None:
    assert stoker("train", job, "training.steps=3").returncode == 0
    result = stoker("train", job, "training.steps=3", "data.held_out=0.05", "model.layers=3")
    _one_message(result, 2, "data.held_out: 0.08", "model.layers: 2")
    assert len(list((job.parent / "prepared").glob("*/manifest.json"))) == 1
    assert stoker("train", job, "training.steps=4").returncode == 0


def _shell(script: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line in which `stoker` is the command line."""
    line = script.replace("stoker", shlex.join(command()), 1)
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=240, env={**environment(), **changes}
    )


@pytest.mark.parametrize("streams", [*map(_thorough, ["<&-", ">&-", "2>&-"]), "<&- >&- 2>&-", "2>/dev/full"])
def test_closed_or_full_streams_stop_no_work(job: Path, streams: str) -> None:
    result = _shell(f"stoker prepare {shlex.quote(str(job))} data.workers=2 {streams}")
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert json.loads(stoker("prepare", job, "--json").stdout)["sources"]


def test_a_result_that_cannot_be_printed_is_a_failure(job: Path) -> None:
    result = _shell(f"stoker recipe show {shlex.quote(str(job))} >/dev/full")
    _one_message(result, 1, "the disk is full")


def test_a_reader_that_leaves_early_is_no_error_to_speak_of(job: Path) -> None:
    result = _shell(f"stoker recipe schema {shlex.quote(str(job))[:0]} | head -1")
    assert result.stdout == "{\n"
    assert result.stderr == ""


@pytest.mark.parametrize(
    "changes",
    [
        _thorough({"LC_ALL": "C"}),
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        _thorough({"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"}),
        {"TERM": "dumb", "COLUMNS": "1"},
    ],
    ids=["C", "no UTF-8 mode", "ascii output", "dumb terminal"],
)
def test_no_locale_or_terminal_gets_in_the_way(job: Path, changes: dict[str, str]) -> None:
    quoted = shlex.quote(str(job))
    result = _shell(f"stoker prepare {quoted} data.workers=2", **changes)
    assert result.returncode == 0, result.stderr
    result = _shell(f"stoker data why {quoted} 'text/中文 文本/文章 003.txt'", **changes)
    assert result.returncode == 0, result.stderr


def test_a_deleted_current_folder_is_told(job: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    result = _shell(
        f"cd {gone}; rmdir {gone}; PYTHONPATH={Path.cwd()}/src stoker recipe check {shlex.quote(str(job))}"
    )
    _one_message(result, 2, "current folder was deleted")


def test_a_launcher_that_says_half_of_it_is_told(job: Path) -> None:
    result = _shell(f"stoker train {shlex.quote(str(job))}", WORLD_SIZE="2")
    _one_message(result, 2, "RANK", "WORLD_SIZE")


def _mount(*arguments: str) -> bool:
    return (
        shutil.which("mount") is not None
        and subprocess.run(["mount", *arguments], capture_output=True).returncode == 0
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, of 8 KiB."""
    folder = tmp_path / "small disk"
    folder.mkdir()
    if os.geteuid() != 0 or not _mount("-t", "tmpfs", "-o", "size=8k", "tmpfs", str(folder)):
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _grow(disk: Path) -> None:
    assert _mount("-o", "remount,size=64m", str(disk))


@pytest.mark.parametrize("kilobytes", [_thorough(8), 200, _thorough(400)])
def test_a_full_disk_while_preparing_is_told_and_the_same_command_goes_on(
    job: Path, small_disk: Path, kilobytes: int
) -> None:
    assert _mount("-o", f"remount,size={kilobytes}k", str(small_disk))
    arguments = ("prepare", job, f"data.prepared={json.dumps(str(small_disk / 'prepared'))}", "data.workers=2")
    full = stoker(*arguments)
    _one_message(full, 1, "the disk is full")
    assert not list(small_disk.rglob("*/manifest.json"))
    assert not list(small_disk.rglob(".*.partial-*"))
    _grow(small_disk)
    assert stoker(*arguments).returncode == 0
    assert json.loads(stoker("prepare", job, "--json").stdout)["fingerprint"] in os.listdir(small_disk / "prepared")


@pytest.mark.parametrize("kilobytes", [*map(_thorough, [0, 8, 30]), 600, _thorough(1300)])
def test_a_full_disk_while_training_is_told_and_the_same_command_goes_on(
    job: Path, small_disk: Path, kilobytes: int
) -> None:
    if kilobytes == 0:
        (small_disk / "filler").write_bytes(bytes(8 << 10))
    else:
        assert _mount("-o", f"remount,size={kilobytes}k", str(small_disk))
    run = small_disk / "run"
    full = stoker("run", job, "--run", run)
    _one_message(full, 1, "the disk is full")
    assert not list(small_disk.rglob(".*.partial-*"))
    _grow(small_disk)
    assert stoker("run", job, "--run", run, "--json").returncode == 0
    assert (run / "report.html").is_file()


def test_a_disk_that_fills_only_while_recording_stops_no_training_and_is_told(job: Path, small_disk: Path) -> None:
    run = job.parent / "runs" / "small"
    run.mkdir(parents=True)
    (run / "record").symlink_to(small_disk)
    result = stoker("run", job)
    assert result.returncode == 0, result.stderr
    assert "the record cannot be written; training goes on" in result.stderr
    assert "of 12 steps could be recorded" in result.stderr
    assert (run / "checkpoints" / "step-00000012").is_dir()
    assert "a checkpoint of step 12 was saved" in (run / "report.html").read_text()
    _grow(small_disk)
    assert stoker("train", job, "training.steps=14").returncode == 0
    assert Record(run / "record").steps()["step"].to_list()[-2:] == [13, 14]


def test_a_disk_too_full_for_the_report_is_told_and_the_same_command_writes_it(job: Path, small_disk: Path) -> None:
    _grow(small_disk)
    run = small_disk / "run"
    assert stoker("train", job, "--run", run).returncode == 0
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - (64 << 10)))  # a report takes more
    full = stoker("run", job, "--run", run)
    _one_message(full, 1, "report.html", "the disk is full")
    assert "evaluate: english" in full.stderr
    assert not list(small_disk.rglob(".*.partial-*"))
    filler.unlink()
    assert stoker("run", job, "--run", run).returncode == 0
    assert (run / "report.html").is_file()


def test_a_read_only_run_can_be_read_and_says_that_it_cannot_be_written(job: Path) -> None:
    assert stoker("train", job, "training.steps=3").returncode == 0
    run = job.parent / "runs" / "small"
    if os.geteuid() != 0 or not _mount("--bind", str(run), str(run)):
        pytest.skip("mounting a folder read-only needs root")
    try:
        assert _mount("-o", "remount,bind,ro", str(run))
        _one_message(stoker("train", job, "training.steps=4"), 1, "read-only")
        _one_message(stoker("report", run), 1, "read-only")
        assert stoker("data", "show", run, "--step", "2").returncode == 0
    finally:
        subprocess.run(["umount", str(run)], check=True)
