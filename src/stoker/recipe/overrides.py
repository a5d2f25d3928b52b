"""Values given on the command line in place of those in the file: `training.steps=200`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.errors import BadInput
from stoker.recipe import Recipe
from stoker.recipe.fields import Place, dotted, elsewhere, every_key, field_type, fields_at, nearest, type_at
from stoker.recipe.yaml_text import Mistake, Tree, parse


@dataclass(frozen=True)
class Override:
    """One `key=value` as it was given, and the place in the recipe it names."""

    text: str
    key: str
    value: Any
    place: Place

    @property
    def location(self) -> str:
        """How mistakes name it."""
        return f"override {self.text}"


def apply_overrides(tree: Tree, texts: Sequence[str]) -> list[Override]:
    """Put each override's value into `tree`; what cannot be placed becomes a mistake of the tree."""
    placed: list[Override] = []
    for text in texts:
        override = _read(tree, text)
        if override is None:
            continue
        for earlier in placed:
            if earlier.place[: len(override.place)] == override.place:
                tree.mistakes.append(
                    Mistake(
                        earlier.location, "", f"has no effect: {override.text} comes after it; keep one of the two"
                    )
                )
        placed.append(override)
        _put(tree, override)
    return placed


def _read(tree: Tree, text: str) -> Override | None:
    key, equals, value_text = text.partition("=")
    key = key.strip()
    if not equals or not key:
        tree.mistakes.append(
            Mistake(f"override {text}", "", "expected KEY=VALUE, such as training.steps=200; there is no `=`")
            if not equals
            else Mistake(f"override {text}", "", "expected KEY=VALUE, such as training.steps=200; there is no key")
        )
        return None
    try:
        parsed = parse(value_text, f"override {text}")
    except BadInput as error:
        tree.mistakes.append(Mistake("", "", f"{error}; put the value in quotes"))
        return None
    tree.mistakes.extend(parsed.mistakes)
    place = _locate(tree, key, text)
    return None if place is None else Override(text, key, parsed.value, place)


def _locate(tree: Tree, key: str, text: str) -> Place | None:
    """The place that a dotted key names. List elements are named by position or by their `name`."""
    place: Place = ()
    value: Any = tree.value
    for part in key.split("."):
        kind = type_at(place, tree.value)
        if kind is not None and kind.is_list:
            elements = value if isinstance(value, list) else []
            position = _position(elements, part)
            if position is None:
                names = [str(e["name"]) for e in elements if isinstance(e, dict) and "name" in e]
                known = f"name one by position 0 to {len(elements) - 1}" if elements else "it is empty"
                named = f" or by name: {', '.join(names)}" if names else ""
                near = nearest(part, names)
                hint = f"; did you mean `{dotted((*place, near))}`?" if near else ""
                wrong = f"{dotted(place)} has no element {part!r}; {known}{named}{hint}"
                tree.mistakes.append(Mistake(f"override {text}", "", wrong))
                return None
            place = (*place, position)
            value = elements[position]
            continue
        fields = fields_at(place, tree.value)
        if fields is None:
            wrong = f"{dotted(place)} holds one value; there is nothing named {part!r} inside it"
            tree.mistakes.append(Mistake(f"override {text}", "", wrong))
            return None
        if part not in fields:
            tree.mistakes.append(Mistake(f"override {text}", "", _unknown(place, part, key, list(fields))))
            return None
        place = (*place, part)
        value = value.get(part) if isinstance(value, dict) else None
    return place


def _unknown(place: Place, part: str, key: str, known: list[str]) -> str:
    near = nearest(part, known)
    if near is not None:
        suggestion = dotted((*place, near))
    else:
        suggestion = elsewhere(part) or nearest(key, every_key()) or ""
    hint = f"did you mean `{suggestion}`?" if suggestion else f"known here: {', '.join(known)}"
    return f"unknown key {dotted((*place, part))!r}; {hint}"


def _position(elements: list[Any], part: str) -> int | None:
    if part.isdecimal() and int(part) < len(elements):
        return int(part)
    for position, element in enumerate(elements):
        if isinstance(element, dict) and element.get("name") == part:
            return position
    return None


def _put(tree: Tree, override: Override) -> None:
    *outer, last = override.place
    if not isinstance(tree.value, dict):
        tree.value = {}
    container: Any = tree.value
    for part in outer:
        inner: Any = container[part] if part in container or isinstance(part, int) else None
        if not isinstance(inner, dict | list):
            inner = {}
            container[part] = inner
        container = inner
    container[last] = override.value


@dataclass(frozen=True)
class _Condition:
    """A field that is only read when another has a certain value."""

    field: str
    holds: Callable[[Recipe], bool]
    otherwise: str


_CONDITIONS = (
    _Condition("tokenizer.vocabulary_size", lambda r: r.tokenizer.path is None, "tokenizer.path is given"),
    _Condition("tokenizer.training_megabytes", lambda r: r.tokenizer.path is None, "tokenizer.path is given"),
    _Condition("training.loss_scale", lambda r: r.training.precision == "fp16", "training.precision is not fp16"),
    _Condition(
        "training.schedule.decay_steps",
        lambda r: r.training.schedule.name == "wsd",
        "training.schedule.name is not wsd",
    ),
    _Condition(
        "training.schedule.minimum",
        lambda r: r.training.schedule.name in ("cosine", "linear", "wsd"),
        "this schedule has no minimum",
    ),
    _Condition("model.mtp_loss_weight", lambda r: r.model.mtp_depth > 0, "model.mtp_depth is 0"),
    _Condition("model.rope_theta", lambda r: r.model.position == "rope", "model.position is not rope"),
    _Condition(
        "evaluation.sample_tokens", lambda r: bool(r.evaluation.prompts), "evaluation.prompts names no prompt"
    ),
    _Condition(
        "evaluation.temperature", lambda r: bool(r.evaluation.prompts), "evaluation.prompts names no prompt"
    ),
    *(
        _Condition(
            f"data.cleaning.decontaminate.{field}",
            lambda r: bool(r.data.cleaning.decontaminate.paths),
            "data.cleaning.decontaminate.paths names no evaluation set",
        )
        for field in ("fields", "ngram", "ngram_characters", "action")
    ),
    _Condition(
        "data.deduplication.threshold", lambda r: r.data.deduplication.near, "data.deduplication.near is false"
    ),
    _Condition(
        "data.deduplication.shingle_size", lambda r: r.data.deduplication.near, "data.deduplication.near is false"
    ),
    _Condition(
        "data.deduplication.permutations", lambda r: r.data.deduplication.near, "data.deduplication.near is false"
    ),
    _Condition(
        "data.deduplication.paragraph_characters",
        lambda r: r.data.deduplication.paragraph_copies is not None,
        "data.deduplication.paragraph_copies is null",
    ),
    _Condition(
        "data.deduplication.line_characters",
        lambda r: r.data.deduplication.line_copies is not None,
        "data.deduplication.line_copies is null",
    ),
    _Condition(
        "data.deduplication.passages_of",
        lambda r: r.data.deduplication.cuts_passages,
        "data.deduplication cuts no passages",
    ),
    _Condition(
        "data.cleaning.quality.kinds",
        lambda r: r.data.cleaning.quality.model is not None,
        "data.cleaning.quality.model is null",
    ),
    _Condition(
        "data.cleaning.perplexity.kinds",
        lambda r: r.data.cleaning.perplexity.model is not None,
        "data.cleaning.perplexity.model is null",
    ),
    _Condition("data.deduplication.bands", lambda r: r.data.deduplication.near, "data.deduplication.near is false"),
    _Condition("data.deduplication.rows", lambda r: r.data.deduplication.near, "data.deduplication.near is false"),
    _Condition(
        "data.deduplication.clusters", lambda r: r.data.deduplication.near, "data.deduplication.near is false"
    ),
)


def ineffective(recipe: Recipe, overrides: Sequence[Override]) -> list[Mistake]:
    """Overrides that set a field which this recipe never reads."""
    found = []
    for override in overrides:
        name = dotted(override.place)
        for condition in _CONDITIONS:
            concerned = name == condition.field or name.startswith(condition.field + ".")
            if concerned and not condition.holds(recipe):
                found.append(Mistake(override.location, "", f"has no effect: {condition.otherwise}"))
    return found


def fill_empty_sections(value: Any, place: Place, tree: Any) -> Any:
    """Read a section with nothing under it (`checkpoint:` alone on a line) as one that was not given."""
    if isinstance(value, dict):
        fields = fields_at(place, tree) or {}
        for key, inner in value.items():
            if inner is None and key in fields:
                kind = field_type(fields[key].annotation)
                if kind.sections and not kind.is_list and type(None) not in kind.plain:
                    value[key] = {}
                    continue
            fill_empty_sections(inner, (*place, key), tree)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            fill_empty_sections(inner, (*place, position), tree)
    return value
