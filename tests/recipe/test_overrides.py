"""Every value can be overridden on the command line, and an override that does nothing is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from stoker.errors import BadInput
from stoker.recipe import Model, Recipe
from stoker.recipe.fields import Place, dotted, fields_at, leaves
from stoker.recipe.loading import dump_recipe, load_recipe
from stoker.recipe.showing import with_origins
from stoker.recipe.yaml_text import dump_inline, parse
from tests.recipe.recipes import SMALL, write


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(BadInput) as caught:
        load_recipe(path, overrides)
    return str(caught.value)


_PARTICULAR: dict[str, tuple[Any, list[str]]] = {
    # places where any other value would contradict the rest: the value to try, and what goes with it
    "data.sources.0.name": ("english2", []),
    "data.sources.1.name": ("other", []),
    "data.sources.0.packages": ([{"package": "stdlib", "files": ["*.py"]}], ["data.sources.0.paths=[]"]),
    "data.sources.1.packages": ([{"package": "stdlib", "files": ["*.py"]}], ["data.sources.1.paths=[]"]),
    "data.sources.0.weight": (3.5, []),
    "data.synthetic_share_at_most": (0.9, ["data.sources.0.synthetic=true"]),
    "data.worker_memory_gb": (3, []),
    "data.prepared_cache": ("cache", ["data.prepared=s3://bucket/prepared"]),
    "data.cleaning.rules": (["gopher", "c4"], []),
    "data.cleaning.personal_data.mask": (["email"], []),
    "data.cleaning.personal_data.mask_in_code": (["email", "key"], []),
    "data.cleaning.decontaminate.fields": (["question"], ["data.cleaning.decontaminate.paths=[e.jsonl]"]),
    "data.cleaning.decontaminate.ngram": (8, ["data.cleaning.decontaminate.paths=[e.jsonl]"]),
    "data.cleaning.decontaminate.ngram_characters": (20, ["data.cleaning.decontaminate.paths=[e.jsonl]"]),
    "data.cleaning.decontaminate.action": ("cut", ["data.cleaning.decontaminate.paths=[e.jsonl]"]),
    "data.cleaning.quality.model": ("quality.model", []),
    "data.cleaning.quality.minimum": (0.25, ["data.cleaning.quality.model=q"]),
    "data.cleaning.quality.keep_best": (0.8, ["data.cleaning.quality.model=q"]),
    "data.cleaning.quality.kinds": (["prose"], ["data.cleaning.quality.model=q"]),
    "data.cleaning.perplexity.model": ("characters.model", []),
    "data.cleaning.perplexity.drop_lowest": (0.05, ["data.cleaning.perplexity.model=c"]),
    "data.cleaning.perplexity.drop_highest": (0.05, ["data.cleaning.perplexity.model=c"]),
    "data.cleaning.perplexity.kinds": (["prose"], ["data.cleaning.perplexity.model=c"]),
    "data.cleaning.off": (["markup", "links"], []),
    "data.mixture.weights": ("temperature", []),
    "data.mixture.alpha": (0.5, ["data.mixture.weights=temperature"]),
    "data.mixture.losses": ({"english": 2.0, "中文": 3.0}, ["data.mixture.weights=difficulty"]),
    "data.mixture.from_run": ("runs/base", ["data.mixture.weights=difficulty"]),
    "data.mixture.reference_losses": (
        {"english": 1.0, "中文": 2.0},
        ["data.mixture.weights=difficulty", "data.mixture.losses={english: 2.0, 中文: 3.0}"],
    ),
    "data.mixture.exponent": (
        2.0,
        ["data.mixture.weights=difficulty", "data.mixture.losses={english: 2.0, 中文: 3.0}"],
    ),
    "data.mixture.most_epochs": (4.0, []),
    "data.mixture.when_exceeded": ("share", ["data.mixture.most_epochs=4"]),
    "data.mixture.stages": ([{"until": 5, "weights": {"english": 1.0}}, {"weights": "tokens"}], []),
    "data.deduplication.bands": (32, ["data.deduplication.rows=4"]),
    "data.deduplication.rows": (4, ["data.deduplication.bands=32"]),
    "data.deduplication.quality": ("fluency", ["data.deduplication.keep=best"]),
    "data.deduplication.keep": ("longest", []),
    "data.deduplication.against": (["text"], []),
    "data.deduplication.paragraph_characters": (80, ["data.deduplication.paragraph_copies=1"]),
    "data.deduplication.line_characters": (80, ["data.deduplication.line_copies=1"]),
    "data.deduplication.passages_of": (["prose"], ["data.deduplication.substring_bytes=100"]),
    "data.deduplication.substring_bytes": (100, []),
    "model.hidden_size": (64, []),
    "model.heads": (2, []),
    "model.kv_heads": (4, []),
    "model.head_size": (16, []),
    "model.preset": ("1m", []),
    "checkpoint.folder": ("s3://bucket/run", []),
    "training.steps": (20, []),
    "training.batch_ramp": ([{"step": 3, "global_batch_size": 16}], []),
    "training.global_batch_size": (16, []),
    "training.micro_batch_size": (2, []),
    "training.optimizer.name": ("lion", []),
    "training.schedule.decay_steps": (3, ["training.schedule.name=wsd"]),
    "training.loss_scale.initial": (8.0, ["training.precision=fp16"]),
    "training.loss_scale.growth_interval": (8, ["training.precision=fp16"]),
    "training.loss_scale.minimum": (0.5, ["training.precision=fp16"]),
    "training.memory.recompute.name": ("full", []),
    "training.memory.recompute.every": (2, ["training.memory.recompute.name=full"]),
    "training.memory.recompute.operations": (["attention"], ["training.memory.recompute.name=operations"]),
    "training.memory.recompute.budget_mib": (64.0, ["training.memory.recompute.name=budget"]),
    "training.memory.release_gradients": (True, ["training.gradient_clip=null"]),
    "recovery.copy_gradients_every": (2, ["recovery.copy_every=1"]),
    "evaluation.sample_tokens": (9, ["evaluation.prompts=[a]"]),
    "evaluation.temperature": (0.1, ["evaluation.prompts=[a]"]),
    "model.mtp_loss_weight": (0.25, ["model.mtp_depth=1"]),
    "model.moe": ({"experts": 4, "experts_per_token": 2, "capacity_factor": 1.5}, []),
    "model.latent_attention": (
        {"kv_rank": 8, "nope_head_size": 4, "rope_head_size": 4, "value_head_size": 4},
        ["model.kv_heads=null", "model.head_size=null", "model.qk_norm=none", "model.attention_bias=false"],
    ),
    "layout.dp_replicate": (2, []),
    "layout.dp_shard": (2, []),
    "layout.pp": (2, []),
    "layout.cp": (2, []),
    "layout.ep": (2, ["layout.dp_replicate=2", "model.moe={experts: 4, experts_per_token: 2}"]),
    "layout.zero_stage": (2, ["layout.dp_shard=2"]),
    "alerts.rules.checkpoint_age.limit": (4.0, []),
    "alerts.own": ([{"name": "hot", "figure": "machine.temperature_celsius", "above": 90.0}], []),
    "alerts.webhook": ("https://example.org/hook", []),
    "alerts.repeat_seconds": (600.0, []),
    "exporters.mlflow.tracking_uri": ("sqlite:///other.db", []),
}


def _another(place: Place, value: Any) -> Any:
    """A valid value that is not `value`."""
    fields = fields_at(place[:-1], parse(SMALL, "x").value) or {}
    annotation = fields[str(place[-1])].annotation
    choices = get_args(annotation) if get_origin(annotation) is not None else ()
    texts = [choice for choice in choices if isinstance(choice, str)]
    if texts:
        return next(text for text in texts if text != value)
    if isinstance(value, bool):
        return not value
    if int in (annotation, *choices):
        return (value or 1) * 2 + 2
    if float in (annotation, *choices):
        return 0.25 if value != 0.25 else 0.125
    if get_origin(annotation) is tuple:
        return ["changed"]
    return "changed"


def _cases() -> Iterator[tuple[str, Any, list[str]]]:
    recipe = Recipe.model_validate(parse(SMALL, "x").value)
    for place, value in leaves(recipe.model_dump(mode="json")):
        name = dotted(place)
        new, together = _PARTICULAR.get(name, (None, []))
        yield name, new if name in _PARTICULAR else _another(place, value), together


@pytest.mark.parametrize(("name", "value", "together"), [pytest.param(*case, id=case[0]) for case in _cases()])
def test_every_leaf_of_the_recipe_can_be_overridden(
    tmp_path: Path, name: str, value: Any, together: list[str]
) -> None:
    path = write(tmp_path)
    before = load_recipe(path)
    loaded = load_recipe(path, [*together, f"{name}={dump_inline(value)}"])
    dumped: Any = loaded.recipe.model_dump(mode="json")
    old: Any = before.recipe.model_dump(mode="json")
    for part in name.split("."):
        key = int(part) if part.isdecimal() else part
        dumped, old = dumped[key], old[key]
    assert old != value
    if isinstance(value, dict):
        assert value.items() <= dumped.items()
        assert {loaded.origins[f"{name}.{key}"] for key in dumped} == {"override"}
    elif not isinstance(value, list) or not isinstance(value[0], dict):
        assert dumped == value
        assert loaded.origins[name] == "override"
    else:
        assert [dumped[0][key] for key in value[0]] == list(value[0].values())


def test_no_number_of_the_recipe_is_infinite(tmp_path: Path) -> None:
    path = write(tmp_path)
    taken = []
    for name, value, together in _cases():
        if isinstance(value, float):
            with suppress(BadInput):
                load_recipe(path, [*together, f"{name}=.inf"])
                taken.append(name)
    assert taken == []


def test_nothing_is_left_out_of_the_leaves() -> None:
    """The property above is about every field: a section that `leaves` missed would be silently untested."""
    names = {name.split(".")[0] for name, _, _ in _cases()}
    assert names == set(Recipe.model_fields)


def test_a_source_is_named_by_position_or_by_name(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert load_recipe(path, ["data.sources.1.weight=5"]) == load_recipe(path, ["data.sources.中文.weight=5"])


def test_values_are_read_as_yaml(tmp_path: Path) -> None:
    recipe = load_recipe(
        write(tmp_path),
        [
            "evaluation.prompts=['The river', 山水]",
            "training.gradient_clip=null",
            "training.optimizer.learning_rate=1e-4",
        ],
    ).recipe
    assert recipe.evaluation.prompts == ("The river", "山水")
    assert recipe.training.gradient_clip is None
    assert recipe.training.optimizer.learning_rate == 1e-4


def test_an_unknown_override_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert "unknown key 'training.stpes'; did you mean `training.steps`?" in refusal(path, "training.stpes=3")
    assert "did you mean `training.steps`?" in refusal(path, "steps=3")
    assert "did you mean `training.optimizer.learning_rate`?" in refusal(path, "learning_rate=3")
    assert "did you mean `data.sources.english`?" in refusal(path, "data.sources.englsh.weight=1")
    assert "name one by position 0 to 1" in refusal(path, "data.sources.7.weight=1")
    assert "has no element '0'; it is empty" in refusal(path, "training.batch_ramp.0.step=3")
    assert "holds one value" in refusal(path, "training.steps.more=1")
    assert "there is no `=`" in refusal(path, "training.steps")
    assert "there is no key" in refusal(path, "=3")
    assert "not valid YAML" in refusal(path, "name=[")


def test_a_wrong_value_names_the_override_it_came_in(tmp_path: Path) -> None:
    assert "override training.optimizer.name=sgd: training.optimizer.name: expected one of adamw" in refusal(
        write(tmp_path), "training.optimizer.name=sgd"
    )
    assert "override training.steps=many: training.steps: expected a whole number" in refusal(
        write(tmp_path), "training.steps=many"
    )


@pytest.mark.parametrize(
    ("overrides", "because"),
    [
        (["training.loss_scale.initial=4"], "training.precision is not fp16"),
        (["training.schedule.decay_steps=2"], "training.schedule.name is not wsd"),
        (["training.schedule.minimum=0.5", "training.schedule.name=constant"], "has no minimum"),
        (["tokenizer.vocabulary_size=300", "tokenizer.path=a.json"], "tokenizer.path is given"),
        (["model.rope_theta=7", "model.position=alibi"], "model.position is not rope"),
        (["evaluation.temperature=0"], "evaluation.prompts names no prompt"),
        (["data.deduplication.threshold=0.7", "data.deduplication.near=false"], "data.deduplication.near is false"),
        (["training.steps=3", "training.steps=4"], "training.steps=4 comes after it"),
        (["model.layers=3", "model={hidden_size: 8, layers: 1, heads: 1, ffn_hidden_size: 8}"], "comes after it"),
    ],
)
def test_an_override_without_effect_is_an_error(tmp_path: Path, overrides: list[str], because: str) -> None:
    message = refusal(write(tmp_path), *overrides)
    assert "has no effect" in message
    assert because in message


def test_the_effective_recipe_is_printed_with_the_origin_of_each_value(tmp_path: Path) -> None:
    loaded = load_recipe(write(tmp_path), ["checkpoint.every=7"])
    text = with_origins(loaded)
    assert Recipe.model_validate(parse(text, "x").value) == loaded.recipe
    found = {line.split(":")[0].strip(): line.rpartition("# ")[2] for line in text.splitlines() if "#" in line}
    assert found["every"] in ("override", "default")
    lines = text.splitlines()
    assert any(line.startswith("  every: 7 ") and line.endswith("# override") for line in lines)
    assert any(line.startswith("  steps: 10 ") and line.endswith("# recipe.yaml:17") for line in lines)
    assert any(line.startswith("seed: 0 ") and line.endswith("# default") for line in lines)


MOE = Model(preset="deepseek-v3").model_dump(mode="json")


@pytest.mark.parametrize(
    "name", [f"{section}.{key}" for section in ("moe", "latent_attention") for key in MOE[section]]
)
def test_every_value_of_an_optional_section_can_be_overridden_over_a_preset(tmp_path: Path, name: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(re.sub(r"(?ms)^model:\n.*?^(?=\w)", "model:\n  preset: deepseek-v3\n", SMALL))
    section, key = name.split(".")
    old: Any = MOE[section][key]
    particular = {
        "experts": 64,
        "experts_per_token": 4,
        "gate": "softmax",
        "group_score": "best",
        "groups_per_token": 2,
        "value_head_size": 64,
    }
    value = particular.get(
        key, not old if isinstance(old, bool) else 2.0 if isinstance(old, float) else (old or 1) * 2
    )
    loaded = load_recipe(path, [f"model.{name}={dump_inline(value)}"])
    dumped = loaded.recipe.model_dump(mode="json")["model"]
    assert dumped[section] == {**MOE[section], key: value}
    assert loaded.origins[f"model.{name}"] == "override"
    others = {loaded.origins[f"model.{section}.{other}"] for other in MOE[section] if other != key}
    assert others <= {"preset deepseek-v3", "default"}
    assert "preset deepseek-v3" in others
    assert load_text(tmp_path, dump_recipe(loaded.recipe)) == loaded.recipe


def load_text(folder: Path, text: str) -> Recipe:
    (folder / "again.yaml").write_text(text)
    return load_recipe(folder / "again.yaml").recipe


@pytest.mark.parametrize("schedule", ["{warmup_steps: 8}", "{name: wsd, warmup_steps: 1, decay_steps: 6}"])
def test_fewer_steps_than_the_schedule_has_names_the_second_override_to_give(tmp_path: Path, schedule: str) -> None:
    recipe = write(tmp_path, SMALL.replace("steps: 10", f"steps: 10\n  schedule: {schedule}"))
    with pytest.raises(BadInput, match=r"such as training\.schedule\.\w+=\d+") as caught:
        load_recipe(recipe, ["training.steps=5"])
    second = str(caught.value).split("such as ")[1].split()[0]
    assert load_recipe(recipe, ["training.steps=5", second]).recipe.training.steps == 5
