"""Empty paths on the command line, as of a shell variable that is not set: they would be the current folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from stoker.errors import BadInput


def refuse_empty_paths(command: Any, words: Sequence[str]) -> None:
    """Raise `BadInput` where a parameter of the command that `words` call takes a path and is given nothing."""
    left = list(words)
    while left and left[0] in (below := getattr(command, "commands", {})):
        command = below[left.pop(0)]
    if command.callback is None or hasattr(command, "commands"):
        return
    hints = get_type_hints(command.callback)
    options = {opt: one for one in command.params for opt in one.opts if one.param_type_name == "option"}
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in options:
            one = options[name]
            if hints.get(one.name) is not bool and not equals:
                value = left.pop(0) if left else "-"  # without any, what parses it says so
            if not value.strip() and _takes_a_path(hints.get(one.name)):
                raise BadInput(f"{name}: expected a path, got nothing; name a file or a folder")
        elif arguments:
            one = arguments.pop(0) if arguments[0].nargs == 1 else arguments[0]
            if not word.strip() and _takes_a_path(hints.get(one.name)):
                raise BadInput(f"{one.name.upper()}: expected a path, got nothing; name a file or a folder")


def _takes_a_path(hint: Any) -> bool:
    return hint is Path or any(map(_takes_a_path, get_args(hint)))
