"""The command line: help, exit codes, messages, what it loads. Whole jobs are in `end_to_end/`."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from stoker import cli
from stoker.cli.arguments import load
from stoker.errors import NonFinite, StokerError
from tests.data.small_corpus import small_recipe, write_text_files
from tests.recipe.recipes import SMALL, write, write_with_text

runner = CliRunner()


def verbs() -> Iterator[tuple[str, ...]]:
    def enter(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield words
        else:
            for name, command_inside in inner.items():
                yield from enter(command_inside, (*words, name))

    yield from enter(typer.main.get_command(cli.application), ())


def stoker(*arguments: object, timeout: float = 60, **changes: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stoker", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **changes)


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run `main` in this process; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["stoker", *map(str, arguments)])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as caught:
            cli.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    return int(caught.value.code or 0)


def test_the_verbs_are_those_of_the_design() -> None:
    top = {words[0] for words in verbs()}
    assert {"run", "prepare", "plan", "train", "eval", "report", "export", "recipe", "data"} <= top


@pytest.mark.parametrize("words", list(verbs()), ids=" ".join)
def test_every_verb_has_help_with_an_example(words: tuple[str, ...]) -> None:
    result = runner.invoke(cli.application, [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    assert f"Example: stoker {' '.join(words)}" in " ".join(result.output.split())
    if words != ("recipe", "schema"):  # which is JSON anyway
        assert "--json" in result.output


@pytest.mark.parametrize("words", list(verbs()), ids=" ".join)
def test_every_verb_has_a_page(words: tuple[str, ...]) -> None:
    page = Path(__file__).parents[1] / "docs" / f"{words[0]}.md"
    assert f"stoker {' '.join(words)}" in page.read_text(encoding="utf-8")


def _modules_after(folder: Path, *arguments: object) -> set[str]:
    program = (
        "import sys\n"
        "from stoker.cli import application\n"
        f"try: application({list(map(str, arguments))!r})\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print('\\nLOADED', *sorted(name for name in sys.modules if '.' not in name))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=folder, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.rpartition("LOADED")[2].split())


def test_help_loads_only_what_help_needs(tmp_path: Path) -> None:
    loaded = _modules_after(tmp_path, "--help")
    assert "typer" in loaded
    assert not loaded & {"torch", "polars", "pyarrow", "numba", "numpy", "tokenizers", "pydantic", "yaml"}


def test_on_its_way_out_it_looks_for_garbage_in_nothing_that_was_loaded() -> None:
    program = (
        "import atexit, gc, sys\n"
        "from stoker.__main__ import main\n"
        "atexit.register(lambda: print(len(gc.get_objects()), gc.get_freeze_count()))\n"  # the last of all to run
        "sys.argv = ['stoker', 'recipe', 'presets']\n"
        "main()\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    looked_at, frozen = map(int, result.stdout.splitlines()[-1].split())
    assert frozen > 10_000 > 100 * looked_at


@pytest.mark.parametrize("words", [words for words in verbs() if words[0] == "recipe"], ids=" ".join)
def test_recipe_verbs_do_not_load_torch(tmp_path: Path, words: tuple[str, ...]) -> None:
    write_with_text(tmp_path)
    arguments = {"new": ["new.yaml"], "schema": [], "presets": []}.get(words[1], ["recipe.yaml"])
    assert not _modules_after(tmp_path, *words, *arguments) & {"torch", "polars", "pyarrow", "numba"}


def test_preparing_loads_only_what_preparing_needs(tmp_path: Path) -> None:
    write_text_files(tmp_path / "text")
    small_recipe(tmp_path, workers=1)
    loaded = _modules_after(tmp_path, "prepare", "recipe.yaml", "--json")
    assert {"numba", "pyarrow", "tokenizers"} <= loaded
    assert not loaded & {"torch", "pandas", "sklearn", "trafilatura", "lxml", "ray", "transformers", "datasets"}


def test_a_bad_recipe_ends_with_2_and_one_message_on_stderr(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL.replace("steps: 10", "stpes: 10"))
    result = stoker("recipe", "check", path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "did you mean `steps`?" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("verb", ["run", "prepare", "plan", "train"])
def test_verbs_refuse_a_bad_recipe_before_anything_is_written(tmp_path: Path, verb: str) -> None:
    path = write(tmp_path, SMALL)
    result = stoker(verb, path, "training.steps=none at all")
    assert result.returncode == 2
    assert "override training.steps=none at all: training.steps: expected a whole number" in result.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["recipe.yaml"]


@pytest.mark.parametrize("verb", ["eval", "export", "report"])
def test_verbs_refuse_a_folder_that_is_no_run(tmp_path: Path, verb: str) -> None:
    result = stoker(verb, tmp_path)
    assert result.returncode == 2
    assert "is not a run" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_data_show_refuses_a_folder_that_is_no_run(tmp_path: Path) -> None:
    result = stoker("data", "show", tmp_path, "--step", 1)
    assert (result.returncode, "is not a run" in result.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [["trian"], ["train"], ["train", "--nothing"], ["data", "why", "x"]])
def test_a_wrong_command_line_ends_with_2(arguments: list[str]) -> None:
    result = stoker(*arguments)
    assert result.returncode == 2
    assert "Usage" in result.stderr


def test_json_is_all_there_is_on_stdout(tmp_path: Path) -> None:
    path = write_with_text(tmp_path)
    result = stoker("recipe", "show", path, "training.steps=7", "--json", "--origins")
    shown = json.loads(result.stdout)
    assert shown["recipe"]["training"]["steps"] == 7
    assert shown["origins"]["training.steps"] == "override"
    assert json.loads(stoker("recipe", "check", path, "--json").stdout)["tokens"] == 10 * 8 * 16


def test_check_prints_the_derived_accumulation(tmp_path: Path) -> None:
    path = write_with_text(tmp_path)
    text = stoker("recipe", "check", path, "layout.dp_shard=2", "training.micro_batch_size=2").stdout
    assert "8 sequences = 2 ranks × 2 accumulated × 2 at a time; 128 tokens a step" in text


def test_check_shows_each_size_of_a_ramp(tmp_path: Path) -> None:
    ramp = "training.batch_ramp=[{step: 5, global_batch_size: 16}]"
    result = json.loads(stoker("recipe", "check", write_with_text(tmp_path), ramp, "--json").stdout)
    assert [(b["from_step"], b["sequences"]) for b in result["batches"]] == [(1, 8), (5, 16)]
    assert result["tokens"] == (4 * 8 + 6 * 16) * 16


def test_new_then_check_then_show(tmp_path: Path) -> None:
    path = tmp_path / "有 空格" / "recipe.yaml"
    assert stoker("recipe", "new", path, "--parameters", "1m").returncode == 0
    unfilled = stoker("recipe", "check", path)
    assert (unfilled.returncode, "text does not exist" in unfilled.stderr) == (2, True)
    (path.parent / "text").mkdir()
    (path.parent / "text" / "one.txt").write_text("text")
    assert stoker("recipe", "check", path).returncode == 0
    again = write(tmp_path, stoker("recipe", "show", path).stdout)
    assert stoker("recipe", "show", again).stdout == stoker("recipe", "show", path).stdout


def test_presets_are_listed_with_their_parameters() -> None:
    result = stoker("recipe", "presets")
    assert result.returncode == 0
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("llama-3-8b ")]
    assert "8,030,261,248" in line


def test_the_run_folder_of_the_command_line_is_relative_to_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipes").mkdir()
    write(tmp_path / "recipes")
    monkeypatch.chdir(tmp_path)
    loaded = load(Path("recipes/recipe.yaml"), None, Path("a run: #1 '\"中"))
    assert loaded.run.path == tmp_path / "a run: #1 '\"中"


@pytest.mark.parametrize(("error", "code"), [(StokerError("it failed"), 1), (NonFinite("not finite"), 76)])
def test_the_exit_code_is_the_errors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: StokerError,
    code: int,
) -> None:
    monkeypatch.setattr("stoker.recipe.loading.dump_recipe", _raising(error))
    assert run_main(monkeypatch, "recipe", "show", write(tmp_path)) == code
    assert capsys.readouterr().err.strip() == f"stoker: {error}"


def test_an_unexpected_error_is_one_line_that_says_how_to_see_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STOKER_DEBUG", raising=False)
    monkeypatch.setattr("stoker.recipe.loading.dump_recipe", _raising(KeyError("lost")))
    assert run_main(monkeypatch, "recipe", "show", write(tmp_path)) == 1
    printed = capsys.readouterr().err
    assert len(printed.splitlines()) == 1
    assert "KeyError: 'lost'" in printed
    assert "STOKER_DEBUG=1" in printed
    assert "test_cli.py:" in printed


@pytest.mark.parametrize("how", ["option", "variable"])
def test_debugging_shows_the_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    monkeypatch.setenv("STOKER_DEBUG", "1" if how == "variable" else "0")
    monkeypatch.setattr("stoker.recipe.loading.dump_recipe", _raising(KeyError("lost")))
    option = ["--debug"] if how == "option" else []
    assert run_main(monkeypatch, *option, "recipe", "show", write(tmp_path)) == 1
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_ends_with_143_and_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stoker.recipe.loading.dump_recipe", _raising(KeyboardInterrupt()))
    recipe = write(tmp_path)
    assert run_main(monkeypatch, "recipe", "show", recipe) == 143
    said = capsys.readouterr().err
    assert "stopped by Ctrl-C" in said
    assert f"The same command goes on from there: stoker recipe show {recipe}" in said


def test_a_broken_pipe_between_processes_is_not_taken_for_ctrl_d(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stoker.recipe.loading.dump_recipe", _raising(EOFError("no answer")))
    assert run_main(monkeypatch, "recipe", "show", write(tmp_path)) == 1
    assert "EOFError: no answer" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "word"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")])
def test_a_signal_ends_a_real_process_with_143(tmp_path: Path, number: int, word: str) -> None:
    """The recipe is a pipe that nobody writes to, so that the process is surely at work when the signal comes."""
    pipe = tmp_path / "recipe.yaml"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "stoker", "recipe", "show", str(pipe)],
        stderr=subprocess.PIPE,
        text=True,
        # A shell has what it starts in the background ignore Ctrl-C, these tests and what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 30
    writer = None
    while writer is None and time.monotonic() < deadline:
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)  # works once the process has opened its end
        except OSError:
            time.sleep(0.01)
    assert writer is not None
    process.send_signal(number)
    os.close(writer)  # a signal in the instant before the process reads would else be noticed only after reading
    _, error = process.communicate(timeout=30)
    assert process.returncode == 143
    assert word in error
    assert "Traceback" not in error


@pytest.mark.parametrize("megabytes", [250, 450])
def test_too_little_address_space_is_told_in_one_line_with_the_limit(tmp_path: Path, megabytes: int) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "stoker", "prepare", str(write(tmp_path))],
        capture_output=True,
        text=True,
        preexec_fn=limited,
    )
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert f"no more than {megabytes} MiB of address space (`ulimit -v`)" in last
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("verb", ["train", "run"])
def test_training_does_not_begin_where_its_libraries_cannot_be_loaded(tmp_path: Path, verb: str) -> None:
    """With a limit of about 1.4 GiB a library waited for ever for a thread that could not be started."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1_500_000 << 10, 1_500_000 << 10))

    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "stoker", verb, str(write_with_text(tmp_path))],
        capture_output=True,
        text=True,
        preexec_fn=limited,
        timeout=60,
    )
    assert result.returncode == 2
    assert "no more than 1.43 GiB of address space (`ulimit -v`)" in result.stderr


def test_a_panic_of_a_library_is_told_like_any_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    panic = type("PanicException", (BaseException,), {})
    monkeypatch.setattr("stoker.recipe.loading.dump_recipe", _raising(panic("no thread to be had")))
    assert run_main(monkeypatch, "recipe", "show", write(tmp_path)) == 1
    assert "PanicException: no thread to be had" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error_message(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [sys.executable, "-m", "stoker", "recipe", "schema"], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert result.stderr == ""
    assert result.returncode == 1


def test_the_version_is_the_packages() -> None:
    from stoker import __version__

    assert stoker("--version").stdout == f"stoker {__version__}\n"


def _raising(error: BaseException) -> Any:
    def fail(*arguments: object) -> None:
        raise error

    return fail
