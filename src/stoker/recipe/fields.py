"""What the recipe's types say about a place in it: its fields, its type, the names near a wrong one."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stoker.recipe import AdamW, Recipe

Place = tuple[str | int, ...]
"""Where something is in a recipe: keys and list positions from the top."""

DEFAULT_OPTIMIZER = AdamW.model_fields["name"].default


def dotted(place: Place) -> str:
    """`("data", "sources", 0, "weight")` as `data.sources.0.weight`."""
    return ".".join(map(str, place))


@dataclass(frozen=True)
class FieldType:
    """What a field holds: one value, a section (or one of several), or a list of either."""

    sections: tuple[type[BaseModel], ...]
    is_list: bool
    plain: tuple[Any, ...]
    """Types that are no sections, `None` included where the field may be empty."""

    @property
    def is_number(self) -> bool:
        """Whether a number is expected, and no truth value."""
        return bool({int, float} & set(self.plain)) and bool not in self.plain


def field_type(annotation: Any) -> FieldType:
    """Take a field's annotation apart."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return field_type(get_args(annotation)[0])
    if origin is Union or origin is types.UnionType:
        parts = [field_type(part) for part in get_args(annotation)]
        return FieldType(
            sections=tuple(section for part in parts for section in part.sections),
            is_list=any(part.is_list for part in parts),
            plain=tuple(plain for part in parts for plain in part.plain),
        )
    if origin is tuple:
        inner = field_type(get_args(annotation)[0])
        return FieldType(inner.sections, True, inner.plain)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return FieldType((annotation,), False, ())
    return FieldType((), False, (annotation,))


def section_for(kind: FieldType, value: Any) -> type[BaseModel] | None:
    """The section that `value` is meant to be, where a field may hold one of several; None when it says none."""
    if len(kind.sections) > 1:
        wanted = value.get("name", DEFAULT_OPTIMIZER) if isinstance(value, Mapping) else DEFAULT_OPTIMIZER
        for section in kind.sections:
            if wanted in get_args(section.model_fields["name"].annotation):
                return section
        return None
    return kind.sections[0]


def fields_at(place: Place, tree: Any) -> dict[str, FieldInfo] | None:
    """Fields of the section at `place`, or None when no section is there."""
    section: type[BaseModel] | None = Recipe
    kind: FieldType | None = None
    value: Any = tree
    for part in place:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            value = None
        if kind is not None and kind.is_list and isinstance(part, int):
            kind = FieldType(kind.sections, False, kind.plain)
        elif kind is not None and (kind.is_list or not kind.sections):
            return None
        else:
            field = section.model_fields.get(str(part)) if section else None
            if field is None:
                return None
            kind = field_type(field.annotation)
        if kind.sections and not kind.is_list:
            section = section_for(kind, value)
    if section is None or (kind is not None and (kind.is_list or not kind.sections)):
        return None
    return dict(section.model_fields)


def type_at(place: Place, tree: Any) -> FieldType | None:
    """What the field at `place` holds, or None when there is no such field."""
    if not place:
        return FieldType((Recipe,), False, ())
    last = place[-1]
    if isinstance(last, int):
        outer = type_at(place[:-1], tree)
        return FieldType(outer.sections, False, outer.plain) if outer and outer.is_list else None
    fields = fields_at(place[:-1], tree)
    if fields is None or last not in fields:
        return None
    return field_type(fields[last].annotation)


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value of a dumped recipe that is no section: lists of sections are entered, other lists are not."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
        for position, inner in enumerate(value):
            yield from leaves(inner, (*place, position))
    else:
        yield place, value


def every_key() -> list[str]:
    """Dotted names of all fields outside lists, for suggestions."""
    found: list[str] = []

    def enter(section: type[BaseModel], prefix: str) -> None:
        for name, field in section.model_fields.items():
            found.append(prefix + name)
            kind = field_type(field.annotation)
            if not kind.is_list:
                for inner in kind.sections:
                    enter(inner, f"{prefix}{name}.")

    enter(Recipe, "")
    return list(dict.fromkeys(found))


def nearest(wrong: str, known: list[str]) -> str | None:
    """The known name that a wrong one was most likely meant to be."""
    by_plain = {name.lower().replace("-", "_"): name for name in known}
    plain = wrong.lower().replace("-", "_")
    matches = get_close_matches(plain, by_plain, n=1, cutoff=0.6)
    if matches:
        return by_plain[matches[0]]
    contained = [name for key, name in by_plain.items() if len(plain) > 2 and (plain in key or key in plain)]
    return contained[0] if contained else None


def elsewhere(wrong: str) -> str | None:
    """A key of that very name in another section, dotted."""
    found = [key for key in every_key() if key.rsplit(".", 1)[-1] == wrong]
    return min(found, key=lambda key: key.count(".")) if found else None
