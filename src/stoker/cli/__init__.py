"""The command line: one function a verb, which parses, calls and prints. No logic.

What a verb needs is imported inside it, so that `stoker --help` and the recipe verbs start at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from stoker.cli.application import application, main
from stoker.cli.bench import verbs as bench_verbs
from stoker.cli.data import verbs as data_verbs
from stoker.cli.data_mixture import mixture
from stoker.cli.data_quality import train_classifier, train_perplexity
from stoker.cli.data_synthesize import collapse, diversity, synthesize, vote
from stoker.cli.data_tokens import compare_tokenizers, export_tokens, fertility, import_megatron, publish_corpus
from stoker.cli.diagnose import diagnose
from stoker.cli.drill import drill
from stoker.cli.job import prepare, run, train
from stoker.cli.launch import verbs as launch_verbs
from stoker.cli.monitor import monitor
from stoker.cli.plan import verbs as plan_verbs
from stoker.cli.profile import profile
from stoker.cli.recipe import verbs as recipe_verbs
from stoker.cli.runs import evaluate, export, report
from stoker.cli.simulate import simulate
from stoker.cli.verify import verify
from stoker.cli.watch import watch

# Threads that wait for each other by spinning take the processor from the thread they wait for as soon as another
# process is about: a step then took seven times as long. Read when torch is first imported, so said here.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "0")

_VERBS: dict[str, Callable[..., None]] = {
    "run": run,
    "prepare": prepare,
    "verify": verify,
    "drill": drill,
    "train": train,
    "eval": evaluate,
    "watch": watch,
    "report": report,
    "diagnose": diagnose,
    "profile": profile,
    "monitor": monitor,
    "export": export,
    "simulate": simulate,
}

for name, verb in _VERBS.items():
    application.command(name)(verb)
_DATA_VERBS: dict[str, Callable[..., None]] = {
    "mixture": mixture,
    "fertility": fertility,
    "compare-tokenizers": compare_tokenizers,
    "import-megatron": import_megatron,
    "export": export_tokens,
    "publish": publish_corpus,
    "train-classifier": train_classifier,
    "train-perplexity": train_perplexity,
    "synthesize": synthesize,
    "vote": vote,
    "diversity": diversity,
    "collapse": collapse,
}

for name, verb in _DATA_VERBS.items():
    data_verbs.command(name)(verb)
application.add_typer(plan_verbs, name="plan")
application.add_typer(recipe_verbs, name="recipe")
application.add_typer(data_verbs, name="data")
application.add_typer(bench_verbs, name="bench")
application.add_typer(launch_verbs, name="launch")

__all__ = ["application", "main"]
