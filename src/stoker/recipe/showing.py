"""A recipe in full for people and editors: with the origin of each value, and as a JSON schema."""

from __future__ import annotations

from typing import Any

from stoker.recipe import Recipe
from stoker.recipe.fields import Place, dotted
from stoker.recipe.loading import AUTO, LoadedRecipe
from stoker.recipe.presets import PRESETS
from stoker.recipe.yaml_text import dump_inline

_ORIGIN_COLUMN = 48


def with_origins(loaded: LoadedRecipe) -> str:
    """The whole recipe as YAML, each value followed by a comment that says where it came from."""
    lines: list[str] = []
    _write(loaded.recipe.model_dump(mode="json"), (), loaded, lines)
    return "\n".join(lines) + "\n"


def _write(value: dict[str, Any], place: Place, loaded: LoadedRecipe, lines: list[str]) -> None:
    indent = "  " * len(place)
    for key, inner in value.items():
        here = (*place, key)
        if isinstance(inner, dict):
            lines.append(f"{indent}{key}:")
            _write(inner, here, loaded, lines)
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            lines.append(f"{indent}{key}:")
            for position, element in enumerate(inner):
                before = len(lines)
                _write(element, (*here, position), loaded, lines)
                first = lines[before]
                at = len(indent) + 2
                lines[before] = f"{first[:at]}- {first[at + 2 :]}"
        else:
            text = f"{indent}{key}: {dump_inline(inner)}"
            origin = loaded.origins.get(dotted(here), "default")
            lines.append(f"{text:<{_ORIGIN_COLUMN}} # {origin}")


def schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a recipe, for editors: completion, descriptions, marks at mistakes."""
    result = Recipe.model_json_schema()
    model = result["$defs"]["Model"]
    required = model.pop("required")
    model["anyOf"] = [{"required": ["preset"]}, {"required": required}]
    model["properties"]["preset"]["anyOf"][0]["enum"] = sorted(PRESETS)
    for section in (result, *result["$defs"].values()):
        for described in section["properties"].values():
            if (
                "$ref" in described and "default" in described
            ):  # a section with nothing under it counts as not given
                described["anyOf"] = [{"$ref": described.pop("$ref")}, {"type": "null"}]
    result["properties"]["layout"]["anyOf"].append({"const": AUTO})
    result["properties"]["$schema"] = {"type": "string", "description": "Address of this schema, for editors."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **result}
