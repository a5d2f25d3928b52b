"""YAML as plain values in which every key and value still knows its line.

Scalars are read as YAML 1.2 reads them: `1e-4` is a number, and `no`, `on` and `2026-01-02` are text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from stoker.errors import BadInput
from stoker.recipe.fields import Place, dotted

_TAG = "tag:yaml.org,2002:"
_MOST_NODES = 100_000
_MOST_DIGITS = 100
_INTEGER = re.compile(r"[-+]?(?:[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+)")
_FLOAT = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_RESOLVERS: list[tuple[str, str, list[str]]] = [
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", f"^{_INTEGER.pattern}$", list("-+0123456789")),
    ("float", f"^{_FLOAT.pattern}$", list("-+.0123456789")),
    ("merge", r"^<<$", ["<"]),
]


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's own way to keep resolvers


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


for _name, _pattern, _first in _RESOLVERS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _first)


@dataclass(frozen=True)
class Mark:
    """A place in a text, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong with a recipe."""

    location: str
    """`recipe.yaml:12:3`, or the override it came in."""
    place: str
    """Dotted name of the field, or nothing."""
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.location, self.place, self.text) if part)


@dataclass
class Tree:
    """Plain values, and for each of them where it was written."""

    name: str
    """How the text is shown to the user: a file name, or an override."""
    value: Any = None
    marks: dict[Place, Mark] = field(default_factory=dict)
    """Of keys, where there is one; else of values."""
    mistakes: list[Mistake] = field(default_factory=list)

    def location(self, place: Place) -> str:
        """`file:line:column` of the innermost written thing that contains `place`."""
        while place and place not in self.marks:
            place = place[:-1]
        mark = self.marks.get(place)
        return f"{self.name}:{mark.line}:{mark.column}" if mark else self.name


def parse(text: str, name: str) -> Tree:
    """Parse one YAML document. Syntax errors raise `BadInput`; duplicate keys and the like become mistakes."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        because = f" {error.context}" if error.context else ""
        raise BadInput(f"{where}: not valid YAML: {error.problem or 'cannot be parsed'}{because}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise BadInput(f"{name}:{line}: not valid YAML: character {error.character!r} is not allowed") from None
    except RecursionError:
        raise BadInput(f"{name}: not a recipe: nested too deeply") from None
    tree = Tree(name)
    if node is not None:
        _Builder(tree).build_root(node)
    return tree


class _Builder:
    """Turns YAML nodes into plain values."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._open: list[int] = []
        self._nodes = 0

    def build_root(self, node: yaml.Node) -> None:
        self._tree.marks[()] = _mark(node)
        self._tree.value = self._build(node, ())

    def _wrong(self, node: yaml.Node, place: Place, text: str) -> None:
        mark = _mark(node)
        self._tree.mistakes.append(Mistake(f"{self._tree.name}:{mark.line}:{mark.column}", dotted(place), text))

    def _build(self, node: yaml.Node, place: Place) -> Any:
        self._nodes += 1
        if self._nodes > _MOST_NODES or len(place) > 50:
            raise BadInput(f"{self._tree.name}: not a recipe: too many or too deeply nested values")
        if id(node) in self._open:
            self._wrong(node, place, "an alias inside what it stands for")
            return None
        self._open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, place)
            if isinstance(node, yaml.SequenceNode):
                return self._sequence(node, place)
            return self._scalar(node, place)
        finally:
            self._open.pop()

    def _sequence(self, node: yaml.SequenceNode, place: Place) -> list[Any]:
        values = []
        for position, item in enumerate(node.value):
            self._tree.marks[(*place, position)] = _mark(item)
            values.append(self._build(item, (*place, position)))
        return values

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, item in node.value:
            if key.tag == _TAG + "merge":
                for source in item.value if isinstance(item, yaml.SequenceNode) else [item]:
                    inner = self._build(source, place)
                    if isinstance(inner, dict):
                        merged = {**inner, **merged}
                    else:
                        self._wrong(item, place, "`<<` must name a mapping")
                continue
            if not isinstance(key, yaml.ScalarNode):
                self._wrong(key, place, "a key must be a single word")
                continue
            name = str(key.value)
            if name in lines:
                self._wrong(key, (*place, name), f"given twice, first on line {lines[name]}; keep one of the two")
                continue
            lines[name] = key.start_mark.line + 1
            self._tree.marks[(*place, name)] = _mark(key)
            own[name] = self._build(item, (*place, name))
        return {**merged, **own}

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        text = str(node.value)
        kind = node.tag.removeprefix(_TAG)
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind == "int" and len(text) <= _MOST_DIGITS and _INTEGER.fullmatch(text):
            return _integer(text.replace("_", ""))
        if kind == "float" and _FLOAT.fullmatch(text):
            return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
        if kind in ("str", "merge", "bool", "int", "float"):
            return text
        self._wrong(node, place, f"the tag {node.tag.replace(_TAG, '!!')} is not allowed; write the plain value")
        return text


def _integer(text: str) -> int:
    for prefix, base in (("0x", 16), ("0o", 8)):
        if prefix in text:
            return int(text.replace(prefix, "", 1), base)
    return int(text)


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def dump(value: Any) -> str:
    """Plain values as block YAML that `parse` reads back unchanged."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


def dump_inline(value: Any) -> str:
    """A value on one line."""
    text = yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
        default_flow_style=True,
    )
    return str(text).removesuffix("...\n").strip()
