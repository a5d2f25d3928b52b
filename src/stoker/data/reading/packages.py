"""Text that comes inside installed Python packages, and under which licence."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sysconfig
from functools import cache
from pathlib import Path

from stoker.errors import BadInput

STANDARD_LIBRARY = "stdlib"
QUICKSTART_PACKAGES = frozenset({"snownlp", "bible", "sympy", "mpmath"})
"""Import names of what the `quickstart` extra installs."""


def package_folder(package: str, source: str) -> Path:
    """The folder a package is installed in, without importing it. Raises `BadInput` when it is missing."""
    if package == STANDARD_LIBRARY:
        return Path(sysconfig.get_path("stdlib"))
    top, *inner = package.split(".")
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        found = None
    locations = list(found.submodule_search_locations or ()) if found is not None else []
    folder = Path(locations[0], *inner) if locations else None
    if folder is None or not folder.is_dir():
        install = "'stoker[quickstart]'" if top in QUICKSTART_PACKAGES else top
        raise BadInput(
            f"data.sources[{source}]: the package `{package}` is not installed here; "
            f"install it with `pip install {install}`, or leave the source out"
        )
    return folder


@cache
def _distributions() -> dict[str, list[str]]:
    return {name: list(owners) for name, owners in importlib.metadata.packages_distributions().items()}


def package_licence(package: str) -> str | None:
    """The licence a package declares about itself, in a few words; None when it declares none."""
    if package == STANDARD_LIBRARY:
        return "PSF-2.0"
    names = _distributions().get(package.split(".")[0], [package])
    for name in names:
        try:
            metadata = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        declared = next((metadata[key] for key in ("License-Expression", "License") if key in metadata), "")
        if declared.strip() and declared.strip().upper() != "UNKNOWN":
            return str(declared).strip().splitlines()[0][:80]
        classifiers = [line for line in metadata.get_all("Classifier") or () if line.startswith("License ::")]
        if classifiers:
            return str(classifiers[0]).rsplit("::", 1)[-1].strip()
    return None
