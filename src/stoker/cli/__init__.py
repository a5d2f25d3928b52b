"""The command line: one function a verb, which parses, calls and prints. No logic.

What a verb needs is imported inside it, so that `stoker --help` and the recipe verbs start at once.
"""

from __future__ import annotations

from stoker.cli import data, job, recipe, runs
from stoker.cli.application import application, main

application.add_typer(recipe.verbs, name="recipe")
application.add_typer(data.verbs, name="data")

__all__ = ["application", "data", "job", "main", "recipe", "runs"]
