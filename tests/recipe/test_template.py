"""`stoker recipe new` writes a whole recipe that loads, of the wanted size, with reasons that hold."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.data.tokenizer import train_tokenizer
from stoker.errors import BadInput
from stoker.model import parameter_count
from stoker.recipe import Recipe
from stoker.recipe.consequences import consequences_of
from stoker.recipe.derivation import derive, read_amount
from stoker.recipe.fields import leaves
from stoker.recipe.loading import load_recipe
from stoker.recipe.template import write_template

SIZES = ["100k", "1m", "10m", "25m", "60m", "125m", "350m", "1b", "7b", "70b", "405b"]


@pytest.mark.parametrize("size", SIZES)
def test_a_new_recipe_loads_and_has_the_wanted_size(tmp_path: Path, size: str) -> None:
    recipe = load_recipe(write_template(tmp_path / "recipe.yaml", size, [])).recipe
    total = parameter_count(recipe.model, recipe.tokenizer.vocabulary_size).total
    assert total == pytest.approx(read_amount(size, "size"), rel=0.1)
    assert recipe.model.heads % recipe.model.key_value_heads == 0
    tokens = recipe.training.samples_before(recipe.training.steps + 1) * recipe.training.sequence_length
    assert tokens == pytest.approx(20 * total, rel=0.01)


@pytest.mark.parametrize("size", SIZES)
def test_every_layout_up_to_eight_ranks_divides_the_derived_batch(size: str) -> None:
    batch = derive(read_amount(size, "size"), None).global_batch_size.value
    assert isinstance(batch, int)
    assert batch % 8 == 0


def test_the_learning_rate_and_the_batch_follow_the_published_rule() -> None:
    derivation = derive(1e9, 2e10)
    compute = 6 * (derivation.parameters - 65536 * 2048) * 2e10
    assert derivation.learning_rate.value == pytest.approx(0.3118 * compute**-0.125, rel=0.01)
    assert isinstance(derivation.global_batch_size.value, int)
    assert derivation.global_batch_size.value * 2048 == pytest.approx(0.2920 * compute**0.3271, rel=0.01)


def test_given_tokens_are_trained_on_even_when_they_are_few(tmp_path: Path) -> None:
    recipe = load_recipe(write_template(tmp_path / "a.yaml", "10m", [], "3m")).recipe
    tokens = recipe.training.samples_before(recipe.training.steps + 1) * recipe.training.sequence_length
    assert 3e6 <= tokens <= 3e6 + recipe.training.global_batch_size * recipe.training.sequence_length
    tiny = load_recipe(write_template(tmp_path / "b.yaml", "1b", [], "1000")).recipe
    assert tiny.training.steps == 1


def test_every_field_of_the_recipe_is_in_the_text_and_its_default_too(tmp_path: Path) -> None:
    """Taking away every `# ` in front of a default gives the same recipe."""
    path = write_template(tmp_path / "recipe.yaml", "10m", [])
    plain = load_recipe(path).recipe
    lines = []
    for line in path.read_text().splitlines():
        uncommented = re.sub(r"^(\s*)# (\w+: \S.*)$", r"\1\2", line)
        lines.append(line if "# weight:" in line or "a default" in line else uncommented)
    (tmp_path / "all.yaml").write_text("\n".join(lines))
    assert load_recipe(tmp_path / "all.yaml").recipe == plain
    written = "\n".join(lines)
    for place, _ in leaves(Recipe.model_validate(plain.model_dump()).model_dump()):
        if place[-1] not in ("packages", "weight") and not isinstance(place[-1], int):
            assert re.search(rf"^\s*{place[-1]}: ", written, re.M) or place == ("run",), place


def test_the_fields_of_a_source_are_explained_once_however_many_sources_there_are(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("books", "pages", "verse")]
    for folder in folders:
        folder.mkdir()
        (folder / "a.txt").write_text("some text")
    written = write_template(tmp_path / "recipe.yaml", "10m", folders).read_text()
    assert written.count("# text_field: text") == 1
    assert [source.name for source in load_recipe(tmp_path / "recipe.yaml").recipe.data.sources] == [
        "books", "pages", "verse",
    ]  # fmt: skip


def test_what_a_field_means_is_not_cut_off_within_a_citation(tmp_path: Path) -> None:
    lines = write_template(tmp_path / "recipe.yaml", "10m", []).read_text().splitlines()
    comments = [line.strip() for line in lines if line.strip().startswith("#")]
    assert any("et al. 20" in comment for comment in comments)
    assert [comment for comment in comments if comment.endswith("et al")] == []


def test_sources_are_named_and_their_kind_and_language_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "书 籍").mkdir()
    (tmp_path / "书 籍" / "一.txt").write_text("山水花鸟风月，星河春夏秋冬。", encoding="utf-8")
    (tmp_path / "code").mkdir()
    for i in range(3):
        (tmp_path / "code" / f"{i}.py").write_text("x = 1\n")
    (tmp_path / "deep" / "code").mkdir(parents=True)
    data = [tmp_path / "书 籍", tmp_path / "code", tmp_path / "deep" / "code"]
    sources = load_recipe(write_template(tmp_path / "recipes" / "r.yaml", "1m", data)).recipe.data.sources
    assert [(s.name, s.paths, s.kind, s.language) for s in sources] == [
        ("书-籍", ("../书 籍",), "prose", "zh"),
        ("code", ("../code",), "code", None),
        ("code-2", ("../deep/code",), "prose", None),
    ]


@pytest.mark.parametrize("encoding", ["gbk", "big5", "utf-16", "utf-8"])
def test_text_in_an_old_encoding_is_chinese_too(tmp_path: Path, encoding: str) -> None:
    folder = tmp_path / "手 册"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_bytes("山水花石風月，星河春夏秋冬。他去公園看花。".encode(encoding))
    arguments = ["recipe", "new", str(tmp_path / "r.yaml"), "--parameters", "1m", "--data", str(folder)]
    assert CliRunner().invoke(cli.application, arguments).exit_code == 0
    (source,) = load_recipe(tmp_path / "r.yaml").recipe.data.sources
    assert source.language == "zh"


@pytest.mark.parametrize(
    ("parameters", "tokens", "expected"),
    [
        ("many", None, "--parameters: expected an amount such as 350m"),
        ("1", None, "--parameters: expected 100k to 1t, got 1"),
        ("9t", None, "--parameters: expected 100k to 1t"),
        ("1m", "-5", "--tokens: expected an amount"),
        ("1m", "0", "--tokens: expected an amount above zero"),
    ],
)
def test_amounts_that_are_none_are_refused(
    tmp_path: Path, parameters: str, tokens: str | None, expected: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(expected)):
        write_template(tmp_path / "recipe.yaml", parameters, [], tokens)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_recipe_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = write_template(tmp_path / "recipe.yaml", "1m", [])
    before = path.read_text()
    with pytest.raises(BadInput, match="exists already"):
        write_template(path, "10m", [])
    assert path.read_text() == before
    write_template(path, "10m", [], overwrite=True)
    assert path.read_text() != before


def test_missing_text_is_refused_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    with pytest.raises(BadInput, match=r"there is nothing at .*bocks; folders there: books"):
        write_template(tmp_path / "recipe.yaml", "1m", [tmp_path / "bocks"])


@pytest.mark.parametrize(
    ("text", "number"),
    [("10m", 1e7), ("1.5B", 1.5e9), ("2e9", 2e9), ("1_000_000", 1e6), ("3,000k", 3e6), ("2T", 2e12)],
)
def test_amounts_are_read(text: str, number: float) -> None:
    assert read_amount(text, "x") == pytest.approx(number)


def test_two_recipes_in_one_folder_have_two_runs(tmp_path: Path) -> None:
    runs = {load_recipe(write_template(tmp_path / name, "1m", [])).run.path for name in ("a.yaml", "b c.yaml")}
    assert runs == {tmp_path / "runs" / "a", tmp_path / "runs" / "b-c"}


def test_the_vocabulary_is_one_that_the_text_supports(tmp_path: Path) -> None:
    """By the tokenizer's own judgement, and with a tenth to spare."""
    draw = random.Random(3)
    words = ["".join(draw.choices("aeinrst", k=4)) for _ in range(60)]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text(" ".join(draw.choices(words, k=4000)))
    new = CliRunner().invoke(
        cli.application,
        ["recipe", "new", str(tmp_path / "r.yaml"), "--parameters", "1m", "--data", str(tmp_path / "text")],
    )
    assert new.exit_code == 0, new.output
    path = tmp_path / "r.yaml"
    assert "less than the usual 2,048: the text given supports no 2,048 entries" in path.read_text()
    tokenizer = load_recipe(path).recipe.tokenizer
    assert 260 <= tokenizer.vocabulary_size <= 512
    train_tokenizer({"text": [(tmp_path / "text" / "a.txt").read_text()]}, tokenizer, tmp_path / "t.json")


def test_sources_of_which_likely_nothing_is_held_out_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for number in range(9):
        (tmp_path / "text" / f"{number}.txt").write_text("text")
    path = write_template(tmp_path / "r.yaml", "1m", [tmp_path / "text"])
    (warning,) = consequences_of(load_recipe(path)).warnings
    assert "source text: 9 documents" in warning
    assert "(9% with data.held_out 0.01)" in warning
    assert "warning     source text" in consequences_of(load_recipe(path)).as_text()
    (nothing,) = consequences_of(load_recipe(path, ["data.held_out=0"])).warnings
    assert "nothing is held out" in nothing
    assert consequences_of(load_recipe(path, ["data.sources.text.documents=paragraph"])).warnings == ()
    (tmp_path / "text" / "9.txt").write_text("text")
    assert consequences_of(load_recipe(path)).warnings == ()
