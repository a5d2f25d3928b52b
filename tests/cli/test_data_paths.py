"""Paths of the data commands that are empty, or a folder where a file is due, or the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from stoker import cli
from stoker.errors import BadInput, StokerError

_ROOT: Any = typer.main.get_command(cli.application)
_DATA: dict[str, Any] = _ROOT.commands["data"].commands


def takes_a_path(command: Any, one: Any) -> bool:
    """Whether a parameter of a command is a path, or several, by the function's own words."""
    return "Path" in str(get_type_hints(command.callback).get(one.name))


def commands(command: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands below one, with the words that call them."""
    below = getattr(command, "commands", None)
    if below is None:
        yield names, command
    for name, one in (below or {}).items():
        yield from commands(one, *names, name)


def words_for(command: Any, wrong: Any, value: str, other: str) -> list[str]:
    """A call with `value` for one parameter, and `other` for the paths that are required beside it."""
    words = []
    for one in command.params:
        if one is not wrong and not one.required:
            continue
        given = value if one is wrong else other if takes_a_path(command, one) else "1"
        words += [one.opts[0], given] if one.param_type_name == "option" else [given]
    return words


_EVERY = [
    pytest.param(names, command, one, id=f"{' '.join(names)} {one.name}")
    for names, command in commands(_ROOT)
    for one in command.params
    if takes_a_path(command, one)
]


@pytest.mark.parametrize(("names", "command", "wrong"), _EVERY)
def test_an_empty_path_is_told_with_its_name(
    tmp_path: Path, names: tuple[str, ...], command: Any, wrong: Any
) -> None:
    words = words_for(command, wrong, "", str(tmp_path / "a"))
    with pytest.raises(BadInput, match=r": expected a .*got nothing") as told:
        CliRunner().invoke(cli.application, [*names, *words], catch_exceptions=False)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("kind", ["folder", "file", "absent", "under a file"])
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        pytest.param(name, one, id=f"{name} {one.name}")
        for name, command in _DATA.items()
        for one in command.params
        if takes_a_path(command, one)
    ],
)
def test_a_path_to_something_else_ends_in_words(tmp_path: Path, name: str, wrong: Any, kind: str) -> None:
    (tmp_path / "file").write_bytes(b"\x00\xff\xfe no text\n")
    (tmp_path / "folder").mkdir()
    value = {"under a file": tmp_path / "file" / "below"}.get(kind, tmp_path / kind)
    words = words_for(_DATA[name], wrong, str(value), str(tmp_path / "elsewhere"))
    result = CliRunner().invoke(cli.application, ["data", name, *words])
    assert result.exit_code != 0
    assert isinstance(result.exception, StokerError | SystemExit), repr(result.exception)
    assert not list((tmp_path / "folder").iterdir())
