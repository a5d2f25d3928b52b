"""Every mistake of a recipe at once, in plain words, each with the place where it was written."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stoker.recipe import Recipe
from stoker.recipe.fields import (
    FieldType,
    Place,
    dotted,
    elsewhere,
    field_type,
    fields_at,
    leaves,
    nearest,
    section_for,
    type_at,
)
from stoker.recipe.yaml_text import Mistake

Locate = Callable[[Place], str]
_FORMER = {"module_norms_every": "modules_every"}
"""What fields were called when older runs were begun, which are read and go on all the same."""


def validate(tree: Any, locate: Locate) -> Recipe | list[Mistake]:
    """The recipe that `tree` describes, or all its mistakes, each located by `locate`."""
    truths = _truth_values_for_numbers(tree)
    unknown, repaired, renamed = _without_unknown_keys(tree)
    errors: list[ErrorDetails] = []
    recipe: Recipe | None = None
    try:
        recipe = Recipe.model_validate(repaired)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        errors += _hidden_behind(repaired, errors)
    found: list[tuple[Place, str]] = [*unknown, *truths]
    for details in errors:
        place = _place(details, repaired)
        text = _words(details, place, repaired)
        place, text = _closer(place, text, repaired)
        found.append((renamed.get(place, place), text))
    if not found and recipe is not None:
        return recipe
    told = {place for place, _ in truths}
    found = [
        item for i, item in enumerate(found) if item not in found[:i] and (item[0] not in told or item in truths)
    ]
    return [Mistake(locate(place), dotted(place), text) for place, text in found]


def _truth_values_for_numbers(tree: Any) -> list[tuple[Place, str]]:
    """`true` where a number belongs: pydantic would take it for 1."""
    found: list[tuple[Place, str]] = []
    for place, value in leaves(tree):
        if isinstance(value, bool):
            kind = type_at(place, tree)
            if kind is not None and kind.is_number and not kind.is_list:
                found.append((place, f"expected a number, got {shown(value)}"))
    return found


def _without_unknown_keys(tree: Any) -> tuple[list[tuple[Place, str]], Any, dict[Place, Place]]:
    """Name the unknown keys, and read each as the key it was meant to be, so that the rest can be judged too."""
    found: list[tuple[Place, str]] = []
    renamed: dict[Place, Place] = {}

    def enter(value: Any, kind: FieldType | None, place: Place, given: Place) -> Any:
        if isinstance(value, list):
            element = FieldType(kind.sections, False, kind.plain) if kind and kind.is_list else None
            return [enter(item, element, (*place, i), (*given, i)) for i, item in enumerate(value)]
        section = None
        if isinstance(value, dict) and kind and kind.sections and not kind.is_list:
            section = section_for(kind, value)
        if section is None:
            return copy.deepcopy(value)
        fields = section.model_fields
        result: dict[str, Any] = {}
        for key, inner in value.items():
            meant: str | None = key
            if key not in fields and _FORMER.get(key) in fields:
                meant = _FORMER[key]
            elif key not in fields:
                meant = nearest(key, list(fields))
                found.append(((*given, key), _unknown_key(key, meant, list(fields))))
                if meant in value or meant in result:
                    meant = None
            if meant is not None:
                renamed[(*place, meant)] = (*given, key)
                result[meant] = enter(inner, field_type(fields[meant].annotation), (*place, meant), (*given, key))
        return result

    return found, enter(tree, FieldType((Recipe,), False, ()), (), ()), renamed


def _unknown_key(key: str, near: str | None, known: list[str]) -> str:
    if near is not None:
        return f"unknown key; did you mean `{near}`?"
    there = elsewhere(key)
    if there is not None:
        return f"unknown key here; it belongs to `{there}`"
    return f"unknown key; known here: {', '.join(known)}"


def _hidden_behind(tree: Any, errors: Iterable[ErrorDetails]) -> list[ErrorDetails]:
    """Mistakes between fields, which pydantic does not look for where a single field is wrong.

    Wrong fields are left out (so that their defaults stand in) and the rest is judged again. A second
    finding that speaks of a field that was left out is dropped, because it may not be one.
    """
    faulty = {_place(details, tree) for details in errors if details["type"] != "missing"}
    trimmed = copy.deepcopy(tree)
    for place in sorted(faulty, key=len, reverse=True):
        if place and isinstance(place[-1], str):
            _remove(trimmed, place)
    try:
        Recipe.model_validate(trimmed)
    except ValidationError as error:
        second = [details for details in error.errors(include_url=False) if details["type"] == "value_error"]
    else:
        second = []
    names = {str(part) for place in faulty for part in place[-1:]}
    layout_unknown = any(place[:1] == ("layout",) for place in faulty)
    return [
        details
        for details in second
        if not names & set(re.findall(r"\w+", str(details["msg"]))) and not (layout_unknown and not details["loc"])
    ]


def _remove(tree: Any, place: Place) -> None:
    container = tree
    for part in place[:-1]:
        try:
            container = container[part]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(container, dict):
        container.pop(place[-1], None)


def _place(details: ErrorDetails, tree: Any) -> Place:
    """Pydantic's location without the name it inserts for the chosen one of several sections."""
    place: Place = ()
    value = tree
    location = details["loc"]
    for index, part in enumerate(location):
        inside = (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        if inside:
            value = value[part]
            place = (*place, part)
        elif index == len(location) - 1:
            place = (*place, part)
    return (*place, "name") if details["type"].startswith("union_tag") else place


def _closer(place: Place, text: str, tree: Any) -> tuple[Place, str]:
    """A message of a whole section that begins with one of its fields belongs to that field's line."""
    first, colon, rest = text.partition(" ")
    named = first.removesuffix(":")
    parts = tuple(int(p) if p.isdecimal() else p for p in re.split(r"[.\[\]]+", named) if p)
    if place + parts != place and parts and type_at(place + parts, tree) is not None:
        return place + parts, rest if first.endswith(":") and colon else text
    return place, text


def _words(details: ErrorDetails, place: Place, tree: Any) -> str:
    """One of pydantic's errors in the words of this program."""
    kind, context = details["type"], details.get("ctx", {})
    if kind == "value_error":
        return str(context.get("error", details["msg"]))
    if kind == "missing":
        return "required, but not given" + _described(place, tree)
    got = f"got {shown(details['input'])}"
    if kind.startswith("union_tag"):
        names = str(context.get("expected_tags", "")).replace("'", "")
        near = nearest(str(context.get("tag")), names.split(", "))
        hint = f"; did you mean `{near}`?" if near else ""
        return f"expected one of {names}, got {shown(context.get('tag'))}{hint}"
    if kind == "literal_error":
        return f"expected one of {str(context['expected']).replace(chr(39), '').replace(' or ', ', ')}, {got}"
    expected = _EXPECTED.get(kind)
    if expected is None:
        return f"{details['msg'].removeprefix('Input should be ').removeprefix('Value error, ')}, {got}"
    return f"expected {expected.format_map(_Numbers(context))}, {got}"


class _Numbers(dict[str, Any]):
    """Fills `{ge}` and the like; whole floats without their `.0`."""

    def __getitem__(self, key: str) -> str:
        value = super().__getitem__(key)
        return f"{value:g}" if isinstance(value, float) and abs(value) < 1e15 else str(value)


_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text (put it in quotes)",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "model_type": "a section: keys and values, indented below it",
    "model_attributes_type": "a section: keys and values, indented below it",
    "dict_type": "a section: keys and values, indented below it",
    "too_short": "at least {min_length} in the list",
    "string_too_short": "at least {min_length} character",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "only letters, digits, `_`, `-` and `.`, and not dots alone",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
}


def _described(place: Place, tree: Any) -> str:
    fields = fields_at(place[:-1], tree) or {}
    field = fields.get(str(place[-1])) if place else None
    if field is None or not field.description:
        return ""
    first = field.description.split("\n")[0].rstrip(".")
    return f" ({first})"


def shown(value: Any) -> str:
    """A value as an error message shows it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "not-a-number" if math.isnan(value) else f"{value:g}"
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = str(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return repr(text) if isinstance(value, str) else text
