"""Which files of a tree are source code, and the docstrings and strings inside Python files."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Iterator

_EXTENSIONS_WORDS = (
    ".py .pyi .pyx .c .h .cc .cpp .cxx .hpp .hh .cu .cuh .js .mjs .ts .jsx .tsx .java .kt .scala .go .rs "
    ".rb .php .swift .m .mm .cs .fs .hs .ml .mli .lua .pl .pm .r .jl .sh .bash .zsh .sql .lean .v .agda "
    ".clj .ex .exs .erl .dart .zig .nim .f90 .f .asm .s .cmake .proto .thrift .tf .vim .el .lisp .scm "
    ".tcl .bzl .gradle .groovy"
)
EXTENSIONS = frozenset(_EXTENSIONS_WORDS.split())
_VENDORED_FOLDERS_WORDS = (
    "node_modules bower_components vendor third_party site-packages dist-packages __pycache__ venv env "
    "build dist target"
)
VENDORED_FOLDERS = frozenset(_VENDORED_FOLDERS_WORDS.split())
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_STATEMENT_LISTS = ("body", "orelse", "handlers", "finalbody", "cases")
_SHORTEST_STRING = 200
"""Characters; shorter string literals are names and messages, not text."""


def is_source_file(name: str) -> bool:
    """Whether a file's name says that it is source code written by people (and not minified)."""
    lower = name.lower()
    if lower.endswith((".min.js", ".bundle.js")):
        return False
    if lower in ("makefile", "dockerfile", "cmakelists.txt"):
        return True
    dot = lower.rfind(".")
    return dot >= 0 and lower[dot:] in EXTENSIONS


def parse_python(text: str) -> ast.Module:
    """The syntax tree. Raises `SyntaxError`, `ValueError` or `RecursionError` for what is no Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except MemoryError as error:  # what the parser raises for nesting that is too deep
            raise RecursionError("nested too deeply") from error


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line number, text without indentation) of each docstring, in the file's order."""
    for line, value in sorted(_docstring_nodes(tree), key=lambda found: found[0]):
        if text := inspect.cleandoc(value):
            yield line, text


def _docstring_nodes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    # Only statements are looked into: they are a tenth of the nodes, and nothing else holds a docstring.
    statements: list[ast.AST] = [tree]
    while statements:
        node = statements.pop()
        body = getattr(node, "body", None)
        if isinstance(node, _DOCUMENTED) and body:
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.lineno, first.value.value
        for name in _STATEMENT_LISTS:
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                statements += inner


def long_strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line number, text) of each string literal of at least 200 characters, in the file's order."""
    found: list[tuple[int, int, str]] = []
    nodes: list[ast.AST] = [tree]
    while nodes:  # ast.walk does the same in four times the time
        node = nodes.pop()
        if isinstance(node, ast.Constant):
            value = node.value
            if isinstance(value, str) and len(value) >= _SHORTEST_STRING:
                found.append((node.lineno, node.col_offset, value))
            continue
        for name in node._fields:
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                nodes += [item for item in inner if isinstance(item, ast.AST)]
            elif isinstance(inner, ast.AST):
                nodes.append(inner)
    for line, _, value in sorted(found):
        yield line, inspect.cleandoc(value)
