"""A wrong recipe is refused with every mistake at once, each with its place and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.errors import BadInput
from stoker.recipe.loading import load_recipe
from tests.recipe.recipes import SMALL, write


def refusal(folder: Path, text: str | bytes, *overrides: str) -> str:
    path = folder / "recipe.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput) as caught:
        load_recipe(path, overrides)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(folder) + "/", "")


def lines(message: str) -> list[str]:
    return [line.strip() for line in message.splitlines()[1:]]


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = (
        SMALL.replace("weight: 1\n", "wieght: 1\n")
        .replace("layers: 2", "layers: two")
        .replace("steps: 10", "stpes: 10")
        .replace(
            "sequence_length: 16", "sequence_length: 16\n  precision: fp64\n  optimizer: {name: adamw, beta1: 1.5}"
        )
    )
    assert lines(refusal(tmp_path, text, "checkpoint.every=0")) == [
        "recipe.yaml:6:7: data.sources.0.wieght: unknown key; did you mean `weight`?",
        "recipe.yaml:12:3: model.layers: expected a whole number, got 'two'",
        "recipe.yaml:17:3: training.stpes: unknown key; did you mean `steps`?",
        "recipe.yaml:19:3: training.precision: expected one of fp32, bf16, fp16, pure_bf16, got 'fp64'",
        "recipe.yaml:20:28: training.optimizer.beta1: expected a number below 1, got 1.5",
        "override checkpoint.every=0: checkpoint.every: expected a number of at least 1, got 0",
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("steps: 10", "steps: ten", "recipe.yaml:17:3: training.steps: expected a whole number, got 'ten'"),
        ("steps: 10", "steps: 10.5", "training.steps: expected a whole number, got 10.5"),
        ("steps: 10", "steps: true", "training.steps: expected a number, got true"),
        ("steps: 10", "steps: [10]", "training.steps: expected a whole number, got a list of 1"),
        ("steps: 10", "steps:", "training.steps: expected a whole number, got nothing"),
        ("steps: 10", "steps: " + "9" * 5000, "training.steps: expected a smaller whole number, got '999"),
        ("steps: 10", "steps: 0", "training.steps: expected a number of at least 1, got 0"),
        (
            "weight: 1",
            "weight: -1",
            "recipe.yaml:6:7: data.sources.0.weight: expected a number of at least 0, got -1",
        ),
        ("weight: 1", "weight: .nan", "data.sources.0.weight: expected a finite number, got not-a-number"),
        ("steps: 10", "steps: 1000000000000000", "training.steps: expected a number of at most 1000000000000, got"),
        ("weight: 1", "weight: .inf", "data.sources.0.weight: expected a finite number, got inf"),
        ("name: small", "name: 12", "recipe.yaml:1:1: name: expected text (put it in quotes), got 12"),
        (
            "name: small",
            "name: a/b",
            "name: expected only letters, digits, `_`, `-` and `.`, and not dots alone, got 'a/b'",
        ),
        ("paths: [text/english]", "paths: text", "data.sources.0.paths: expected a list, got 'text'"),
        ("model:", "modle:", "recipe.yaml:10:1: modle: unknown key; did you mean `model`?"),
        ("  steps: 10", "  steps: 10\n  hidden_size: 3", "unknown key here; it belongs to `model.hidden_size`"),
        ("  kv_heads: 2", "  zzz: 2", "unknown key; known here: preset, hidden_size"),
        ("heads: 4", "heads: 5", "model.hidden_size: hidden_size 32 is not a multiple of heads 5"),
        ("kv_heads: 2", "kv_heads: 3", "recipe.yaml:13:3: model.heads: heads 4 is not a multiple of kv_heads 3"),
        ("hidden_size: 32", "preset: 3n", "recipe.yaml:11:3: model.preset: none is named '3n'; near: 3m"),
        (
            "steps: 10",
            "steps: 10\n  optimizer: {name: adanw}",
            "training.optimizer.name: expected one of adamw, muon, adafactor, lion, got 'adanw'; did you mean",
        ),
        (
            "steps: 10",
            "steps: 10\n  optimizer: {name: lion, epsilon: 1}",
            "training.optimizer.epsilon: unknown key",
        ),
        (
            "steps: 10",
            "steps: 10\n  micro_batch_size: 3",
            "recipe.yaml:20:3: training.global_batch_size: 8 sequences per rank are not a multiple of "
            "micro_batch_size 3; use one of 1, 2, 4, 8",
        ),
        (
            "name: small",
            "name: small\nlayout: {dp_shard: 3}",
            "training.global_batch_size: global_batch_size 8 cannot be split evenly over 3 data-parallel ranks "
            "(dp_shard=3); use 6 or 9, or another layout",
        ),
        ("steps: 10", "steps: 10\n  schedule: {warmup_steps: 11}", "schedule.warmup_steps (11) exceeds steps (10)"),
        ("name: 中文", "name: english", "source names must be unique; repeated: english"),
        ("      weight: 2\n", "", "give every source a weight, or none; without one: 中文"),
        (
            "weight: 1\n    - name: 中文\n      paths: [text/中文]\n      weight: 2",
            "weight: 0",
            "all weights are zero",
        ),
        (
            "training:\n",
            "training: 5\nother:\n",
            "training: expected a section: keys and values, indented below it, got 5",
        ),
    ],
)
def test_a_mistake_says_what_was_expected_what_came_and_where(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert old in SMALL
    assert expected in refusal(tmp_path, SMALL.replace(old, new, 1))


def test_what_is_missing_is_named_with_what_it_means(tmp_path: Path) -> None:
    message = refusal(tmp_path, SMALL.replace("  steps: 10\n", ""))
    assert lines(message) == ["recipe.yaml:16:1: training.steps: required, but not given (Optimizer steps)"]


def test_a_mistyped_required_key_is_one_mistake_not_two(tmp_path: Path) -> None:
    message = refusal(tmp_path, SMALL.replace("steps: 10", "step: 10"))
    assert lines(message) == ["recipe.yaml:17:3: training.step: unknown key; did you mean `steps`?"]


def test_mistakes_between_fields_are_found_beside_mistakes_in_fields(tmp_path: Path) -> None:
    text = SMALL.replace(
        "steps: 10", "steps: 10\n  precision: fp9\n  micro_batch_size: 3\n  schedule: {warmup_steps: 99}"
    )
    message = refusal(tmp_path, text)
    assert "training.precision" in message
    assert "warmup_steps (99) exceeds steps (10)" in message


def test_a_wrong_field_starts_no_false_findings_about_others(tmp_path: Path) -> None:
    text = SMALL.replace("hidden_size: 32", "hidden_size: 30\n  head_size: eight")
    assert len(lines(refusal(tmp_path, text))) == 1


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, SMALL.replace("layers: 2", "layers: 2\n  layers: 4"))
    assert lines(message) == ["recipe.yaml:13:3: model.layers: given twice, first on line 12; keep one of the two"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("- a\n- b\n", "recipe.yaml:1:1: a recipe is a mapping"),
        ("just words", "a recipe is a mapping"),
        ("a: [1, 2\nb: 3\n", "recipe.yaml:2:2: not valid YAML"),
        ("a: 1\n b: 2\n", "recipe.yaml:2:3: not valid YAML"),
        ("a: 'b\n", "not valid YAML"),
        ("\tname: x\n", "recipe.yaml:1:1: not valid YAML"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: \x07\n", "recipe.yaml:1: not valid YAML"),
        (b"\xff\xfen\x00a\x00", "UTF-16; save it as UTF-8"),
        ("name: 书".encode("gbk"), "recipe.yaml:1: not UTF-8 (byte 6)"),
        ("[" * 5000, "nested too deeply"),
        ("a: &x [*x]\n", "an alias inside what it stands for"),
        ("name: !!python/name:os.system x\n", "the tag !!python/name:os.system is not allowed"),
        ("{a: 1}: 2\n", "a key must be a single word"),
        ("a: 1\n" * 300_000, "a recipe is a small YAML file"),
    ],
)
def test_text_that_is_no_recipe_is_refused_clearly(tmp_path: Path, text: str | bytes, expected: str) -> None:
    assert expected in refusal(tmp_path, text)


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 9):
        bomb += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
    assert "too many or too deeply nested values" in refusal(tmp_path, bomb)


def test_a_missing_file_is_answered_with_files_near_it(tmp_path: Path) -> None:
    write(tmp_path, name="recipe.yaml")
    with pytest.raises(BadInput, match=r"there is no recipe at .*recipie\.yaml; near it: .*recipe\.yaml"):
        load_recipe(tmp_path / "recipie.yaml")


def test_a_folder_is_answered_with_the_recipe_in_it(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(BadInput, match=r"is a folder.*did you mean .*recipe\.yaml"):
        load_recipe(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"the folder .*nowhere does not exist"):
        load_recipe(tmp_path / "nowhere" / "recipe.yaml")
