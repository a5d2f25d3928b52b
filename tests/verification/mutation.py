"""Changes the code of a running process: a few characters of one function, for as long as a block lasts.

A change is data, as small as the mistake it stands for. It says what the source has to be, so that a catalogue
of them tells by itself when the source has gone on without it.
"""

from __future__ import annotations
import __future__

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


class SourceHasChanged(Exception):
    """A change does not fit the source (any more)."""


@dataclass(frozen=True)
class Edit:
    """In the source of a function, other text in the place of some."""

    target: str
    """`module:qualified.name`, without the leading `stoker.`."""
    old: str
    """Stands exactly once in the function's source, whose indentation is taken off."""
    new: str

    @contextmanager
    def made(self) -> Iterator[None]:
        """The function's code is exchanged, not the function: whoever holds it computes by the new code."""
        found = _find(self.target)
        function = _written(found)
        before = function.__code__
        function.__code__ = _compiled(function, self)
        _forget(found)
        try:
            yield
        finally:
            function.__code__ = before
            _forget(found)


@dataclass(frozen=True)
class Value:
    """Another value of a module's constant."""

    target: str
    value: Any

    @contextmanager
    def made(self) -> Iterator[None]:
        module, _, name = self.target.partition(":")
        holder = import_module(f"stoker.{module}")
        before = getattr(holder, name)
        setattr(holder, name, self.value)
        try:
            yield
        finally:
            setattr(holder, name, before)


@dataclass(frozen=True)
class Plant:
    """Makes changes for as long as a block lasts. Can be pickled; a new context manager at each call."""

    changes: tuple[Edit | Value, ...]

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with ExitStack() as stack:
            for change in self.changes:
                stack.enter_context(change.made())
            yield


def _find(target: str) -> Any:
    module, _, path = target.partition(":")
    found: Any = import_module(f"stoker.{module}")
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    return found


def _written(found: Any) -> FunctionType:
    """The function that was written, under whatever decorators."""
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    elif isinstance(found, property):
        found = found.fget
    found = getattr(found, "_init_fn", found)  # of a custom operator
    found = inspect.unwrap(getattr(found, "_torchdynamo_orig_callable", found))
    if not isinstance(found, FunctionType):
        raise SourceHasChanged(f"{found} is no function")
    return found


def _forget(found: Any) -> None:
    if isinstance(found, functools._lru_cache_wrapper):
        found.cache_clear()


def _compiled(function: FunctionType, edit: Edit) -> CodeType:
    source = _source(edit.target)
    if source.count(edit.old) != 1:
        raise SourceHasChanged(f"{edit.target} has {source.count(edit.old)} times {edit.old!r}:\n{source}")
    source = source.replace(edit.old, edit.new)
    # Within a function, for what `super()` needs.
    lines = ["def around(__class__):", *("    " + line for line in source.splitlines())]
    flags = __future__.annotations.compiler_flag
    module = compile("\n".join(lines), edit.target, "exec", flags, dont_inherit=True)
    return _code_named(module, function.__name__)


def _source(target: str) -> str:
    """Of a function, without decorators. Found by name: lines may have moved since the module was imported."""
    module, _, path = target.partition(":")
    file = import_module(f"stoker.{module}").__file__
    assert file is not None
    text = Path(file).read_text()
    node: ast.AST = ast.parse(text)
    for name in path.split("."):
        node = next(
            one
            for one in ast.iter_child_nodes(node)
            if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == name
        )
    assert isinstance(node, ast.FunctionDef)
    return textwrap.dedent("\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno]))


def _code_named(code: CodeType, name: str) -> CodeType:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name == name:
                return constant
            if constant.co_name == "around":
                return _code_named(constant, name)
    raise SourceHasChanged(f"no function {name}")
