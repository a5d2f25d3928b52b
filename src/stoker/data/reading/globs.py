"""Finding files under a folder: sorted, the same everywhere, and never lost in a loop of links."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from stoker.errors import BadInput
from stoker.recipe.regular import is_regular, kernel_devices

_MAGIC = re.compile(r"[*?\[]")


def has_magic(pattern: str) -> bool:
    """Whether the pattern holds `*`, `?` or `[`."""
    return _MAGIC.search(pattern) is not None


def matches(pattern: str) -> re.Pattern[str]:
    """A glob over relative POSIX paths as a regular expression; `**` stands for any number of folders.

    Raises `BadInput` for a range of characters that runs backwards.
    """
    parts = pattern.split("/")
    expression = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            expression += ".*" if last else "(?:[^/]+/)*"
        else:
            expression += _segment(part) + ("" if last else "/")
    try:
        return re.compile(expression + r"\Z", re.DOTALL)
    except re.error as error:
        raise BadInput(f"`{pattern}` is not a pattern for names of files: {error.msg}; correct it") from None


def _segment(part: str) -> str:
    out, i = "", 0
    while i < len(part):
        character = part[i]
        i += 1
        if character == "*":
            out += "[^/]*"
        elif character == "?":
            out += "[^/]"
        elif character == "[" and (end := part.find("]", i + 1)) >= 0:
            inner = part[i:end].replace("\\", "\\\\")
            out += "[" + ("^" + inner[1:] if inner.startswith("!") else inner) + "]"
            i = end + 1
        else:
            out += re.escape(character)
    return out


def walk(root: Path, skip_folders: frozenset[str] = frozenset()) -> Iterator[str]:
    """Relative POSIX paths of the regular files below `root`, sorted; hidden ones are left out.

    So are those that the kernel answers with (`/proc`, `/sys`), some of which never end. Links to folders are
    followed, each folder once. A folder that may not be listed raises `OSError`.
    """
    seen: set[tuple[int, int]] = set()

    def below(folder: str, prefix: str) -> Iterator[str]:
        status = Path(folder).stat()
        if (status.st_dev, status.st_ino) in seen or status.st_dev in kernel_devices():
            return
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(folder) as entries:
            by_name = sorted(entries, key=lambda entry: entry.name)
        for entry in by_name:
            if entry.name.startswith("."):
                continue
            try:
                is_folder, is_file = entry.is_dir(), entry.is_file()
            except OSError:
                continue  # a link to itself
            if is_folder:
                if entry.name not in skip_folders:
                    yield from below(entry.path, f"{prefix}{entry.name}/")
            elif is_file and (not entry.is_symlink() or is_regular(Path(entry.path))):
                yield prefix + entry.name

    # By whole path, so that the order does not depend on which names are folders.
    yield from sorted(below(str(root), ""))


def find(base: Path, pattern: str, skip_folders: frozenset[str] = frozenset()) -> list[Path]:
    """Files that `pattern` names, relative to `base`: a file, a folder (all of it) or a glob; sorted."""
    literal = base / pattern
    if is_regular(literal):
        return [literal]
    if literal.is_dir():
        return [literal / name for name in walk(literal, skip_folders)]
    if not has_magic(pattern):
        return []
    fixed: list[str] = []
    parts = pattern.split("/")
    while not has_magic(parts[0]):
        fixed.append(parts.pop(0))
    root = base / ("/".join(fixed) or ("/" if pattern.startswith("/") else "."))
    if not root.is_dir():
        return []
    wanted = matches("/".join(parts))
    found = [root / name for name in walk(root, skip_folders) if wanted.match(name)]
    if not found:  # the glob may name folders: then all files in them
        found = [root / name for name in walk(root, skip_folders) if _parent_matches(wanted, name)]
    return found


def _parent_matches(wanted: re.Pattern[str], name: str) -> bool:
    parts = name.split("/")[:-1]
    return any(wanted.match("/".join(parts[: depth + 1])) for depth in range(len(parts)))
