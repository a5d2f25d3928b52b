"""A module of the package that is changed in other processes, as it is imported there."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

_PROGRAM = """
import importlib.util, sys

def change(module):
{change}

class AfterItIsLoaded:
    def find_spec(self, name, path, target=None):
        if name != "{name}":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            change(module)

        spec.loader.exec_module = execute_and_change
        return spec

sys.meta_path.insert(0, AfterItIsLoaded())
"""


def python_path_that_changes(name: str, change: str, folder: Path) -> str:
    """PYTHONPATH of processes in which `change`, statements about `module`, is done to the module `name`.

    `folder` is made, and holds what does it.
    """
    folder.mkdir()
    text = _PROGRAM.format(name=name, change=textwrap.indent(textwrap.dedent(change), " " * 4))
    (folder / "sitecustomize.py").write_text(text)
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
