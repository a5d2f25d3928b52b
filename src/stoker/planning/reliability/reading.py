"""A run's description from a YAML file and from the command line, every mistake with its place and remedy."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stoker.errors import BadInput
from stoker.planning.reliability.description import RunDescription
from stoker.planning.reliability.effects import without_effect
from stoker.recipe.fields import Place, dotted, field_type, leaves, nearest
from stoker.recipe.mistakes import shown
from stoker.recipe.yaml_text import Mistake, Tree, parse

_COMMAND_LINE = "command line"
_LARGEST_BYTES = 1 << 20
_WRONG_NUMBERS = ("greater_than", "greater_than_equal", "less_than_equal", "finite_number")
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "model_type": "a section: keys and values, indented below it",
    "model_attributes_type": "a section: keys and values, indented below it",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "at least {min_length} in the list",
    "too_long": "at most {max_length} in the list",
    "missing": "a value",
}


def read_run(path: Path | None, overrides: Sequence[str] = ()) -> RunDescription:
    """The run that a file describes, with the command line's values in place of its own.

    Without a file all is as by default. Raises `BadInput` that names every mistake with its line and remedy.
    """
    tree = Tree(_COMMAND_LINE, {}) if path is None else _parsed(path)
    origins: dict[Place, str] = {}
    for text in overrides:
        _override(tree, text, origins)
    value = {} if tree.value is None else tree.value
    mistakes = list(tree.mistakes)
    if not isinstance(value, dict):
        raise BadInput(f"{tree.name}: expected fields such as `accelerators: 16384`, got {shown(value)}")
    mistakes += [Mistake(_where(tree, place, origins), dotted(place), text) for place, text in _wrong_truths(value)]
    if not mistakes:
        try:
            run = RunDescription.model_validate(value)
            mistakes = [
                Mistake(_where(tree, place, origins), dotted(place), text) for place, text in without_effect(run)
            ]
            if not mistakes:
                return run
        except ValidationError as error:
            found = [details for details in error.errors(include_url=False) if not _is_of_its_elements(details)]
            mistakes = [_mistake(details, tree, origins) for details in _one_of_a_union(found)]
    unique = list(dict.fromkeys(map(str, mistakes)))
    raise BadInput(unique[0] if len(unique) == 1 else f"{len(unique)} mistakes:\n  " + "\n  ".join(unique))


def _parsed(path: Path) -> Tree:
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise BadInput(f"{path}: too large for the description of a run (over 1 MiB); is it another file?")
        return parse(path.read_text(encoding="utf-8-sig"), str(path))
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be read ({error.strerror}); expected a YAML file that describes a run"
        ) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not text in UTF-8; expected a YAML file that describes a run") from None


def _override(tree: Tree, text: str, origins: dict[Place, str]) -> None:
    """Put one `key=value` into the tree; list elements are named by position or by their `name`, `where`."""
    location = f"override {text}"
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        tree.mistakes.append(Mistake(location, "", "expected KEY=VALUE, such as accelerators=16384"))
        return
    try:
        parsed = parse(value, location)
    except BadInput as error:
        tree.mistakes.append(Mistake("", "", f"{error}; put the value in quotes"))
        return
    if not isinstance(tree.value, dict):
        tree.value = {}
    container: Any = tree.value
    default: Any = RunDescription().model_dump(mode="json")
    place: Place = ()
    *outer, last = key.strip().split(".")
    for part in outer:
        step = _step(container, default, part)
        if step is None or not isinstance(default, dict | list):
            tree.mistakes.append(Mistake(location, dotted((*place, part)), _unknown(part, container, default)))
            return
        default = _inside(default, step)
        if isinstance(container, dict) and not isinstance(container.get(step), dict | list):
            # A list that the file does not give is changed from its default, a section is filled in by it anyway.
            container[step] = copy.deepcopy(default) if isinstance(default, list) else {}
        container = container[step]
        place = (*place, step)
    step = _step(container, default, last)
    if step is None:
        tree.mistakes.append(Mistake(location, dotted((*place, last)), _unknown(last, container, default)))
        return
    container[step] = parsed.value
    origins[(*place, step)] = location


def _step(container: Any, default: Any, part: str) -> str | int | None:
    if isinstance(container, list):
        for position, element in enumerate(container):
            if part == str(position) or (
                isinstance(element, dict) and part in (element.get("name"), element.get("where"))
            ):
                return position
        return None
    return part if isinstance(default, dict) and part in default else None


def _inside(default: Any, step: str | int) -> Any:
    if isinstance(default, list):  # elements are alike; any one says which fields there are
        return default[0] if default else {}
    return default[step]


def _unknown(part: str, container: Any, default: Any) -> str:
    if isinstance(container, list):
        names = [str(e.get("name") or e.get("where")) for e in container if isinstance(e, dict)]
        return f"no such element; name one by position 0 to {len(names) - 1} or as {', '.join(names)}"
    known = list(default) if isinstance(default, dict) else []
    near = nearest(part, known)
    hint = f"did you mean `{near}`?" if near else f"known here: {', '.join(known) or 'nothing'}"
    return f"unknown key; {hint}"


def _where(tree: Tree, place: Place, origins: dict[Place, str]) -> str:
    """The override or the line in which `place`, or what is nearest around it, was written."""
    for length in range(len(place), -1, -1):
        if place[:length] in origins:
            return origins[place[:length]]
        if length and place[:length] in tree.marks:
            break
    inner = [location for given, location in origins.items() if given[: len(place)] == place]
    return inner[-1] if inner and place not in tree.marks else tree.location(place)


def _wrong_truths(value: Any) -> list[tuple[Place, str]]:
    """`true` where a number belongs: it would be taken for 1."""
    found = []
    for place, leaf in leaves(value):
        if isinstance(leaf, bool) and not (place and place[-1] in ("replaces_node", "silent")):
            found.append((place, f"expected a number or text, got {shown(leaf)}"))
    return found


def _one_of_a_union(found: list[ErrorDetails]) -> list[ErrorDetails]:
    """Pydantic judges a value as each thing it may be. A number is wrong as a number, text as a word."""
    as_words = {_place(details) for details in found if details["type"] == "literal_error"}
    numbers = {_place(details) for details in found if details["type"] in _WRONG_NUMBERS}
    return [
        details
        for details in found
        if not (details["type"] == "literal_error" and _place(details) in numbers)
        and not (details["type"] in ("float_parsing", "float_type") and _place(details) in as_words)
    ]


def _place(details: ErrorDetails) -> Place:
    return tuple(part for part in details["loc"] if not _is_of_a_union(part))


def _is_of_its_elements(details: ErrorDetails) -> bool:
    """Pydantic also calls a list too short whose elements are wrong."""
    return details["type"] == "too_short" and len(details["input"]) >= details["ctx"]["min_length"]


def _mistake(details: ErrorDetails, tree: Tree, origins: dict[Place, str]) -> Mistake:
    place = _place(details)
    text = _words(details, place)
    if details["type"] == "value_error":
        first, colon, rest = text.partition(": ")
        named = tuple(int(part) if part.isdecimal() else part for part in first.split("."))
        if colon and " " not in first:
            place, text = place + named, rest
    return Mistake(_where(tree, place, origins), dotted(place), text)


def _is_of_a_union(part: str | int) -> bool:
    """Pydantic names the member of a union that failed, which is no place in the file."""
    return isinstance(part, str) and (part.startswith(("constrained-", "literal[")) or part in ("float", "int"))


def _words(details: ErrorDetails, place: Place) -> str:
    kind, context = details["type"], details.get("ctx", {})
    got = f"got {shown(details['input'])}"
    if kind == "value_error":
        return str(context.get("error", details["msg"]))
    if kind == "extra_forbidden":
        known = _known_at(place[:-1])
        near = nearest(str(place[-1]), known)
        return f"unknown key; did you mean `{near}`?" if near else f"unknown key; known here: {', '.join(known)}"
    if kind == "literal_error":
        words = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        return f"expected {'a number or' if len(details['loc']) > len(place) else 'one of'} {words}, {got}"
    if isinstance(details["input"], float) and not math.isfinite(details["input"]):
        return f"expected a finite number, {got}"
    expected = _EXPECTED.get(kind)
    return (
        f"{details['msg']}, {got}"
        if expected is None
        else f"expected {expected.format_map(_plain(context))}, {got}"
    )


def _plain(context: dict[str, Any]) -> dict[str, Any]:
    """Whole floats without their `.0`."""
    return {name: f"{value:.15g}" if isinstance(value, float) else value for name, value in context.items()}


def _known_at(place: Place) -> list[str]:
    """Fields of the section at `place`."""
    section: type[BaseModel] = RunDescription
    for part in place:
        if isinstance(part, int):
            continue
        kinds = field_type(section.model_fields[part].annotation).sections
        arguments = get_args(section.model_fields[part].annotation)
        inner = kinds or tuple(a for a in arguments if isinstance(a, type) and issubclass(a, BaseModel))
        if not inner:
            return []
        section = inner[0]
    return list(section.model_fields)
