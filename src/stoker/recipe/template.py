"""`stoker recipe new`: a whole recipe as text, each derived value with its reason, each default as a comment."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import Any

from pydantic import BaseModel

from stoker.durable_files import write_text
from stoker.errors import BadInput
from stoker.plural import counted
from stoker.recipe import Data, Model, Recipe, Source, Training
from stoker.recipe.derivation import Derivation, Derived, derive, read_amount
from stoker.recipe.fields import field_type, section_for
from stoker.recipe.given_text import as_utf8, whole_text
from stoker.recipe.yaml_text import dump_inline

_COLUMN, _LONGEST_LINE = 32, 120
_CODE = {".py", ".js", ".ts", ".c", ".h", ".cc", ".cpp", ".java", ".go", ".rs", ".rb", ".sh", ".sql", ".scala"}
_MATHEMATICS = {".tex", ".lean", ".v"}
_FILES_LOOKED_AT, _FILES_READ, _BYTES_READ = 2000, 8, 20_000


@dataclass(frozen=True)
class _SourceGuess:
    name: str
    path: str
    kind: Derived
    language: Derived | None


def write_template(
    path: Path,
    parameters: str,
    data: Sequence[Path],
    tokens: str | None = None,
    name: str | None = None,
    overwrite: bool = False,
    supports: Callable[[Sequence[str], int], bool] | None = None,
    decoded: Callable[[bytes], str] = as_utf8,
) -> Path:
    """Write a recipe for a model of about `parameters` (`25m`) on the text in `data`; returns its path.

    `supports` says whether a vocabulary of so many entries can be trained on texts; without it the vocabulary
    follows from `parameters` alone. `decoded` turns the beginning of a file into text. Raises `BadInput` for
    amounts that are none, for missing folders, and for a file that exists already.
    """
    if path.is_dir():
        path = path / "recipe.yaml"
    if path.exists() and not overwrite:
        raise BadInput(f"{path} exists already; give another name, or --overwrite to replace it")
    wanted = read_amount(parameters, "--parameters")
    amount = read_amount(tokens, "--tokens") if tokens is not None else None
    sources = _guess_sources(data, path.absolute().parent, decoded)
    texts = whole_text(data, decoded) if data and supports is not None else None
    can = partial(supports, texts) if texts is not None and supports is not None else None
    derivation = derive(wanted, amount, can)
    if name is None:
        name = re.sub(r"[^\w.-]+", "-", path.absolute().stem)[:100].strip("-.") or "model"
    elif not re.fullmatch(r"[\w.-]{1,128}", name) or not name.strip("."):
        raise BadInput(f"--name: only letters, digits, `_`, `-` and `.`, not dots alone, at most 128; got {name!r}")
    write_text(path, template(name, derivation, sources))
    return path


def template(name: str, derivation: Derivation, sources: Sequence[_SourceGuess]) -> str:
    """The text of a recipe."""
    lines = [
        f"# A model of {derivation.parameters:,} parameters. Paths are relative to this file.",
        "# `# key: value` shows a default; take the `# ` in front away to change it.",
        "# `stoker recipe check` says what follows from it, `stoker plan` what it costs, `stoker run` does it.",
        "",
        f"name: {dump_inline(name)}",
        *_defaults(Recipe, {"name", "run"}, 0, sections=False),
        "",
        "data:",
        "  sources:",
    ]
    for number, source in enumerate(sources):
        lines += _source_lines(source, explained=number == 0)
    lines += _defaults(Data, {"sources"}, 1)
    lines += ["", "tokenizer:", _line("vocabulary_size", derivation.vocabulary_size, 1)]
    lines += _defaults(Recipe.model_fields["tokenizer"].annotation, {"vocabulary_size"}, 1)
    lines += ["", "model:", *(_line(key, value, 1) for key, value in derivation.model.items())]
    lines += _defaults(Model, set(derivation.model), 1)
    lines += ["", "training:", *_training_lines(derivation)]
    lines += ["", "checkpoint:", _line("every", derivation.checkpoint_every, 1)]
    lines += _defaults(Recipe.model_fields["checkpoint"].annotation, {"every"}, 1)
    lines += ["", "recovery:", *_defaults(Recipe.model_fields["recovery"].annotation, set(), 1)]
    lines += ["", "evaluation:", _line("every", derivation.evaluation_every, 1)]
    lines += _defaults(Recipe.model_fields["evaluation"].annotation, {"every"}, 1)
    lines += ["", "telemetry:", *_defaults(Recipe.model_fields["telemetry"].annotation, set(), 1)]
    for section in ("alerts", "exporters"):
        lines += ["", f"{section}:", *_defaults(Recipe.model_fields[section].annotation, set(), 1)]
    lines += ["", "layout:  # or `layout: auto`: the planner chooses for the processes and accelerators there are"]
    lines += _defaults(Recipe.model_fields["layout"].annotation, set(), 1)
    return "\n".join(lines) + "\n"


def _training_lines(derivation: Derivation) -> list[str]:
    direct = {
        name: getattr(derivation, name) for name in ("steps", "sequence_length", "global_batch_size", "precision")
    }
    lines = [_line(key, value, 1) for key, value in direct.items()]
    optimizer = Training.model_fields["optimizer"]
    schedule = Training.model_fields["schedule"].annotation
    lines += ["  optimizer:", _line("name", Derived("adamw", "also: muon, adafactor, lion"), 2)]
    lines += [_line("learning_rate", derivation.learning_rate, 2)]
    adamw = section_for(field_type(optimizer.annotation), {})
    lines += _defaults(adamw, {"name", "learning_rate"}, 2)
    lines += ["  schedule:", _line("name", Derived("cosine", "also: linear, wsd, inverse_sqrt, constant"), 2)]
    lines += [_line("warmup_steps", derivation.warmup_steps, 2)]
    lines += _defaults(schedule, {"name", "warmup_steps"}, 2)
    return [*lines, *_defaults(Training, {*direct, "optimizer", "schedule"}, 1)]


def _source_lines(source: _SourceGuess, explained: bool) -> list[str]:
    """A source with what was found out of it; `explained` with the fields that are left at their defaults, too."""
    lines = [f"    - name: {dump_inline(source.name)}", f"      paths: {dump_inline([source.path])}"]
    lines.append(_line("kind", source.kind, 3))
    if source.language is not None:
        lines.append(_line("language", source.language, 3))
    if not explained:
        return lines
    lines.append(
        _explained(
            "      # weight: 1.0", "share in the mixture, for all sources or none; else in proportion to tokens"
        )
    )
    given = {"name", "paths", "packages", "kind", "weight"} | ({"language"} if source.language else set())
    return [*lines, *_defaults(Source, given, 3)]


def _line(key: str, derived: Derived, depth: int) -> str:
    return _explained(f"{'  ' * depth}{key}: {dump_inline(derived.value)}", derived.reason)


def _explained(text: str, meaning: str) -> str:
    """A line with its comment behind it, or above it where that would be too long."""
    beside = f"{text:<{_COLUMN}} # {meaning}"
    if len(beside) <= _LONGEST_LINE:
        return beside
    indent = " " * (len(text) - len(text.lstrip(" ")))
    return "\n".join(
        [*wrap(meaning, _LONGEST_LINE, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "), text]
    )


def _defaults(section: Any, given: set[str], depth: int, sections: bool = True) -> list[str]:
    """The fields of a section that are left at their defaults, as comments with what they mean."""
    indent = "  " * depth
    lines: list[str] = []
    for key, field in section.model_fields.items():
        if key in given or field.is_required():
            continue
        default = field.default
        if isinstance(default, BaseModel):
            if sections:
                lines.append(f"{indent}{key}:")
                lines += _defaults(type(default), set(), depth + 1)
            continue
        text = f"{indent}# {key}: {dump_inline(list(default) if isinstance(default, tuple) else default)}"
        meaning = re.split(r"(?<!et al)\. ", " ".join((field.description or "").split()))[0].rstrip(".")
        lines.append(_explained(text, meaning) if meaning else text)
    return lines


def _guess_sources(data: Sequence[Path], folder: Path, decoded: Callable[[bytes], str]) -> list[_SourceGuess]:
    if not data:
        return [
            _SourceGuess(
                "text", "text", Derived("prose", "or code, mathematics, dialogue; put your files in `text/`"), None
            )
        ]
    names: Counter[str] = Counter()
    guesses = []
    for path in data:
        if not path.exists():
            near = sorted(entry.name for entry in islice(path.absolute().parent.glob("*"), 200) if entry.is_dir())
            hint = f"; folders there: {', '.join(near[:8])}" if near else ""
            raise BadInput(f"--data: there is nothing at {path}{hint}")
        plain = re.sub(r"[^\w.-]+", "-", path.absolute().name.split(".")[0] or path.name)[:50].strip("-") or "text"
        names[plain] += 1
        name = plain if names[plain] == 1 else f"{plain}-{names[plain]}"
        files = [path] if path.is_file() else list(_some_files(path))
        relative = os.path.relpath(path.absolute(), folder)
        guesses.append(_SourceGuess(name, relative, _kind(files), _language(files, decoded)))
    return guesses


def _some_files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for parent, folders, files in os.walk(folder):
        folders.sort()
        found += [Path(parent) / name for name in sorted(files)]
        if len(found) >= _FILES_LOOKED_AT:
            break
    return found[:_FILES_LOOKED_AT]


def _kind(files: Sequence[Path]) -> Derived:
    endings: Mapping[str, int] = Counter(file.suffix.lower() for file in files)
    code = sum(count for ending, count in endings.items() if ending in _CODE)
    mathematics = sum(count for ending, count in endings.items() if ending in _MATHEMATICS)
    if not files:
        return Derived("prose", "the folder is empty; prose, code, mathematics or dialogue")
    if code > len(files) / 2:
        return Derived("code", f"by their names source code: {code} of {counted(len(files), 'files')}")
    if mathematics > len(files) / 2:
        return Derived(
            "mathematics", f"by their names mathematics: {mathematics} of {counted(len(files), 'files')}"
        )
    return Derived("prose", "by the files' names; also: code, mathematics, dialogue")


def _language(files: Sequence[Path], decoded: Callable[[bytes], str]) -> Derived | None:
    """`zh` where most letters of a few readable files are Chinese; else nothing is claimed."""
    plain = [file for file in files if file.suffix.lower() in (".txt", ".md", ".jsonl", ".html")][:_FILES_READ]
    chinese = letters = 0
    for file in plain:
        with open(file, "rb") as stream:
            text = decoded(stream.read(_BYTES_READ))
        letters += sum(character.isalpha() for character in text)
        chinese += sum("\u4e00" <= character <= "\u9fff" for character in text)
    if letters and chinese > letters / 3:
        return Derived("zh", f"{chinese / letters:.0%} of the letters looked at are Chinese")
    return None
