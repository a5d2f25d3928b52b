"""The commands that train models of quality, write text and judge it, as a user calls them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.data.ledger import Ledger
from stoker.data.prepare import prepare
from stoker.errors import BadInput
from stoker.progress import Silent
from tests.data.small_corpus import paragraph, sentence, small_recipe
from tests.data.synthetic.fake_server import fake_server

runner = CliRunner()


def stoker(*arguments: object, code: int = 0) -> str:
    result = runner.invoke(cli.application, ["data", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def write_texts(folder: Path, seed: int, extra: str, count: int = 60) -> Path:
    draw = random.Random(seed)
    folder.mkdir()
    for number in range(count):
        text = sentence(draw, 30) if number % 2 else paragraph(draw, 50)
        (folder / f"{number}.txt").write_text(f"{text}\n{extra}\n")
    return folder


def test_a_classifier_is_trained_and_told_about(tmp_path: Path) -> None:
    good, bad = write_texts(tmp_path / "good", 1, "river 山水"), write_texts(tmp_path / "bad", 2, "casino 广告")
    options = ("train-classifier", "--positive", good, "--negative", bad, "--output", tmp_path / "model")
    text = stoker(*options)
    assert "AUC" in text
    assert "casino (-" in text
    assert "data.cleaning.quality.model" in text
    found = json.loads(stoker(*options, "--json"))
    assert found["description"]["positive"]["documents"] == 60
    assert {"river", "山", "水"} & {run["run"] for run in found["telling"]["good"]}
    assert (tmp_path / "model").is_file()


def test_a_model_of_characters_is_trained_and_told_about(tmp_path: Path) -> None:
    options = (
        "train-perplexity",
        "--text",
        write_texts(tmp_path / "text", 1, "river"),
        "--output",
        tmp_path / "model",
    )
    assert "Bits per character" in stoker(*options)
    found = json.loads(stoker(*options, "--json"))
    assert found["characters"] > 0
    assert {one["group"] for one in found["groups"]} <= {"prose en", "prose zh", "prose mixed"}


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    result = runner.invoke(
        cli.application, ["data", "train-perplexity", "--text", str(tmp_path / "none"), "--output", "m"]
    )
    assert result.exit_code == 1
    assert "none does not exist" in str(result.exception)


def test_text_is_asked_for_voted_on_and_measured(tmp_path: Path) -> None:
    prompts, output = tmp_path / "p.txt", tmp_path / "out.jsonl"
    prompts.write_text("What is 6 times 7?\nWhat is 2 and 2?\n")
    draw = random.Random(1)

    def reply(number: int, body: dict[str, Any]) -> Any:
        answer = 42 if "6" in body["messages"][0]["content"] else number
        text = f"{sentence(draw, 200)} #### {answer}"
        usage = {"completion_tokens": 9, "total_tokens": 20}
        return 200, {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage}, {}

    with fake_server() as server:
        server.reply = reply
        options = ("synthesize", "--prompts", prompts, "--output", output, "--from", server.url, "--model", "m")
        assert "4 of 4 rows, 4 new (36 tokens)" in stoker(*options)
        assert json.loads(stoker(*options, "--json"))["new"] == 0
    kept, others = tmp_path / "kept.jsonl", tmp_path / "others.jsonl"
    counts = json.loads(stoker("vote", output, "--output", kept, "--rejected", others, "--json"))
    assert (counts["kept"], counts["reasons"]["no_agreement"], counts["reasons"]["repeats_the_winner"]) == (1, 2, 1)
    (row,) = [json.loads(line) for line in kept.read_text().splitlines()]
    assert row["vote"] == {"answer": "42", "votes": 2, "of": 2, "models": 1}
    assert {json.loads(line)["vote"]["reason"] for line in others.read_text().splitlines()} == {
        "no_agreement",
        "repeats_the_winner",
    }
    assert "kept" in stoker("vote", output, "--output", kept)
    told = stoker("diversity", output, "--real", output)
    assert "in real text" in told
    assert "\n\n" in told
    assert "\n\n\n" not in told
    (one,) = json.loads(stoker("diversity", output, "--real", output, "--json"))
    assert one["in_real"] == 1.0


def test_several_generators_write_vote_and_become_a_source(tmp_path: Path) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"{n} times 7?", "id": f"q{n}"}) + "\n" for n in range(6)))
    draw = random.Random(1)

    def reply(number: int, body: dict[str, Any]) -> Any:
        factor = int(body["messages"][0]["content"].split()[0])
        # All know small products, two of three the middle ones; the others everybody guesses.
        knows = factor < 2 or (factor < 4 and body["model"] != "c")
        answer = 7 * factor if knows else 100 + "abc".index(body["model"])
        choice = {"message": {"content": f"{sentence(draw, 60)} #### {answer}"}, "finish_reason": "stop"}
        return 200, {"choices": [choice], "usage": {"completion_tokens": 9, "total_tokens": 20}}, {}

    files = [tmp_path / f"{model}.jsonl" for model in "abc"]
    with fake_server() as server:
        server.reply = reply
        for file in files:
            options = ("--output", file, "--from", server.url, "--model", file.stem, "--temperatures", "1.0")
            assert "6 of 6 rows" in stoker("synthesize", "--prompts", prompts, *options)
    kept, others = tmp_path / "kept.jsonl", tmp_path / "others.jsonl"
    counts = json.loads(stoker("vote", *files, "--output", kept, "--rejected", others, "--json"))
    assert counts["kept"] == 4
    assert counts["reasons"] == {"no_answer": 0, "outvoted": 2, "no_agreement": 6, "repeats_the_winner": 6}
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(row["prompt_id"], row["vote"]["votes"], row["vote"]["models"]) for row in rows] == [
        ("q0", 3, 3),
        ("q1", 3, 3),
        ("q2", 2, 2),
        ("q3", 2, 2),
    ]
    loaded = small_recipe(
        tmp_path,
        sources=[{"name": "agreed", "paths": [str(kept)], "id_field": "id", "synthetic": True}],
        cleaning={"filters": False},
        deduplication={"near": False},
    )
    ledger = Ledger(prepare(loaded, Silent()).folder).rows().collect()
    assert set(ledger["identifier"].to_list()) == {row["id"] for row in rows}, "a document leads back to its prompt"


def test_a_collapse_ends_with_code_1_and_its_absence_with_0(tmp_path: Path) -> None:
    draw = random.Random(1)
    words = [f"{a}{b}{c}" for a in "bdfgkl" for b in "aeiou" for c in "nrst"]
    files = []
    for generation, tail in enumerate((1.0, 1.3, 1.6)):
        weights = [1 / (rank + 1) ** tail for rank in range(len(words))]
        texts = [" ".join(draw.choices(words, weights, k=60)) for _ in range(120)]
        files.append(tmp_path / f"{generation}.jsonl")
        files[-1].write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert "diversity falls" in stoker("collapse", *files, code=1)
    found = json.loads(stoker("collapse", *files[::-1], "--json"))
    assert not found["warns"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give either a run"),
        (("--from", "http://127.0.0.1:9/v1"), "needs --model"),
        (("--from", "http://127.0.0.1:9/v1", "--model", "m", "--step", "3"), "--step is for a run's model"),
        (("run", "--token-budget", "9"), "--token-budget is for a server"),
        (("--from", "http://127.0.0.1:9/v1", "--model", "m", "--temperatures", "warm"), "from 0 to 10"),
        (("--from", "http://127.0.0.1:9/v1", "--model", "m", "--temperatures", "1,1"), "different numbers"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_asked(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    (tmp_path / "p.txt").write_text("a\n")
    given = ["data", "synthesize", "--prompts", str(tmp_path / "p.txt"), "--output", str(tmp_path / "o"), *options]
    result = runner.invoke(cli.application, given)
    assert result.exit_code == 1
    assert said in str(result.exception)


def test_voting_writes_over_no_file_that_it_reads(tmp_path: Path) -> None:
    rows, kept = tmp_path / "rows.jsonl", tmp_path / "kept.jsonl"
    rows.write_text('{"prompt": "p\\ud800", "text": "a\\u2028b 5"}\n' * 2)
    before = rows.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(rows)
    for output, rejected in ((rows, kept), (tmp_path / "link.jsonl", kept), (kept, rows), (kept, kept)):
        given = ["data", "vote", str(rows), "--output", str(output), "--rejected", str(rejected)]
        result = runner.invoke(cli.application, given)
        assert isinstance(result.exception, BadInput)
        assert "name another" in str(result.exception)
    assert rows.read_bytes() == before
    assert not kept.exists()
    assert json.loads(stoker("vote", rows, "--output", kept, "--json"))["kept"] == 1
    assert json.loads(kept.read_text())["text"] == "a\u2028b 5"
