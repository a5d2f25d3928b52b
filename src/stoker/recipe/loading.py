"""From a recipe's file and the command line's overrides to a `Recipe`, and back to text."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from stoker.errors import BadInput
from stoker.plural import counted
from stoker.recipe import Recipe
from stoker.recipe.fields import Place, dotted, leaves
from stoker.recipe.files import missing_files
from stoker.recipe.mistakes import validate
from stoker.recipe.overrides import Override, apply_overrides, fill_empty_sections, ineffective
from stoker.recipe.presets import PRESETS
from stoker.recipe.yaml_text import Mistake, Tree, dump, parse
from stoker.run_directory import RunDirectory

_LARGEST_RECIPE_BYTES = 1 << 20
_SCHEMA_KEY = "$schema"
AUTO = "auto"
"""In place of a layout: the planner chooses."""


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe and the file it came from, which its relative paths start at."""

    recipe: Recipe
    path: Path
    folder: Path
    """Folder of the file."""
    layout_is_open: bool = False
    """The recipe says `layout: auto`: the planner is to choose, and until then it is that of one process."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each value (by dotted name) came from: `recipe.yaml:12`, `override`, `preset …`, `default`."""

    def resolve(self, relative: str) -> Path:
        """A path of the recipe as a path of this process."""
        return self.folder / Path(relative).expanduser()

    @property
    def run(self) -> RunDirectory:
        """The run's folder: `run`, or `runs/<name>` beside the recipe."""
        return RunDirectory(self.resolve(self.recipe.run or f"runs/{self.recipe.name}"))

    @property
    def prepared_folder(self) -> Path:
        """Folder of this machine for prepared corpora: where they are made, or kept of what stands under a URL."""
        return self.resolve(self.recipe.data.prepared_here)


def load_recipe(path: Path, overrides: Sequence[str] = (), *, with_files: bool = False) -> LoadedRecipe:
    """Read the recipe at `path` and put `overrides` (`training.steps=200`) over it.

    `with_files` looks whether the text and the tokenizer it names are there, too. Raises `BadInput`
    that lists every mistake, each with file, line and column.
    """
    tree = parse(_read(path), str(path))
    if tree.value is None:
        raise BadInput(f"{path} is empty; `stoker recipe new` writes a recipe to start from")
    if not isinstance(tree.value, dict):
        raise BadInput(
            f"{tree.location(())}: a recipe is a mapping of sections (`name:`, `data:`, `model:`, `training:`), "
            "but this file holds something else"
        )
    tree.value.pop(_SCHEMA_KEY, None)
    placed = apply_overrides(tree, overrides)
    layout_is_open = tree.value.get("layout") == AUTO
    if layout_is_open:
        tree.value["layout"] = {}
    fill_empty_sections(tree.value, (), tree.value)
    result = validate(tree.value, lambda place: _location(tree, placed, place))
    mistakes = list(tree.mistakes)
    if with_files:
        folder = path.absolute().parent
        mistakes += missing_files(tree.value, folder, lambda place: _location(tree, placed, place))
    if isinstance(result, list):
        mistakes += result
    else:
        mistakes += ineffective(result, placed)
    if mistakes or isinstance(result, list):
        raise BadInput(_listed(path, mistakes))
    origins = {dotted(place): _origin(tree, placed, place, result) for place, _ in leaves(result.model_dump())}
    absolute = path.absolute()
    result = _with_whole_paths(result, absolute.parent)
    return LoadedRecipe(result, absolute, absolute.parent, layout_is_open, origins)


def _with_whole_paths(recipe: Recipe, folder: Path) -> Recipe:
    """Checkpoints stay where they are when a run goes on from its own copy of the recipe."""
    where = recipe.checkpoint.folder
    if where is None or "://" in where:
        return recipe
    whole = str(folder / Path(where).expanduser())
    return recipe.model_copy(update={"checkpoint": recipe.checkpoint.model_copy(update={"folder": whole})})


def dump_recipe(recipe: Recipe) -> str:
    """The recipe as YAML with every value, defaults included; `load_recipe` reads the same recipe back."""
    return dump(recipe.model_dump(mode="json"))


def _read(path: Path) -> str:
    if path.is_dir():
        inside = sorted(p.name for p in path.glob("*.y*ml"))
        hint = f"; did you mean {path / inside[0]}?" if inside else ""
        raise BadInput(f"{path} is a folder, but a recipe is a YAML file{hint}")
    try:
        size = path.stat().st_size
        if size > _LARGEST_RECIPE_BYTES:
            raise BadInput(
                f"{path} is no recipe: it has {counted(size, 'bytes')}, but a recipe is a small YAML file"
            )
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_RECIPE_BYTES + 1)  # a device has no size, and may have no end
        if len(content) > _LARGEST_RECIPE_BYTES:
            raise BadInput(f"{path} is no recipe: it goes on and on, but a recipe is a small YAML file")
    except FileNotFoundError:
        raise BadInput(f"there is no recipe at {path}{_near_files(path)}") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    for mark, name in ((codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16")):
        if content.startswith(mark):
            raise BadInput(f"{path} is written in {name}; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path}:{line}: not UTF-8 (byte {error.start}); save the recipe as UTF-8") from None


def _near_files(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f": the folder {folder} does not exist"
    present = [entry.name for entry in folder.iterdir() if entry.suffix in (".yaml", ".yml")]
    present += [f"{entry.parent.name}/{entry.name}" for entry in folder.glob("*/recipe.yaml")]
    near = get_close_matches(path.name, present, n=3, cutoff=0.5) or sorted(present)[:3]
    return f"; near it: {', '.join(str(folder / name) for name in near)}" if near else ""


def _override_of(placed: Sequence[Override], place: Place) -> Override | None:
    for override in reversed(placed):
        if place[: len(override.place)] == override.place:
            return override
    return None


def _location(tree: Tree, placed: Sequence[Override], place: Place) -> str:
    override = _override_of(placed, place)
    return override.location if override else tree.location(place)


def _origin(tree: Tree, placed: Sequence[Override], place: Place, recipe: Recipe) -> str:
    if _override_of(placed, place) is not None:
        return "override"
    if place in tree.marks:
        return f"{Path(tree.name).name}:{tree.marks[place].line}"
    preset = recipe.model.preset
    if preset is not None and place[0] == "model" and _is_within(place[1:], PRESETS[preset].shape):
        return f"preset {preset}"
    return "default"


def _is_within(place: Place, value: Any) -> bool:
    for part in place:
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True


def _listed(path: Path, mistakes: Sequence[Mistake]) -> str:
    count = counted(len(mistakes), "mistakes") if len(mistakes) > 1 else "a mistake"
    ordered = sorted(mistakes, key=_line)
    return "\n".join([f"{path} has {count}:", *(f"  {mistake}" for mistake in ordered)])


def _line(mistake: Mistake) -> tuple[bool, int, int]:
    found = re.search(r":(\d+):(\d+)$", mistake.location)
    inside = found is not None and not mistake.location.startswith("override ")
    return (not inside, int(found[1]), int(found[2])) if found and inside else (True, 0, 0)
