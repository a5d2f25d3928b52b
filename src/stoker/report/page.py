"""Putting the page together: facts from the run folders, one template, everything inside one file."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stoker import __version__, wording
from stoker.diagnosis.telling import in_words_of
from stoker.durable_files import write_text
from stoker.errors import BadInput
from stoker.plural import counted
from stoker.report.charts import Payload
from stoker.report.comparison import add_comparison_charts, comparison_rows, recipe_differences
from stoker.report.corpus_facts import GROUPS, falls, funnels, source_texts
from stoker.report.curves import add_training_charts
from stoker.report.held_out import add_held_out_charts, final_scores, source_colours, without_scores
from stoker.report.plan_facts import compare
from stoker.report.run_facts import RunFacts
from stoker.report.story import environment_rows, happenings, headline, samples_by_prompt
from stoker.run_directory import RunDirectory

_HERE = Path(__file__).parent
_STYLES = ("vendor/uPlot.min.css", "template/page.css")
_SCRIPTS = ("vendor/uPlot.iife.min.js", "template/decode.js", "template/charts.js", "template/page.js")


def write_report(runs: Sequence[RunDirectory], output: Path | None = None) -> Path:
    """Write one HTML page about `runs` that needs nothing else, and return its path.

    Everything on it is computed from the runs' folders. One run's page is written to its
    `report.html` unless `output` says otherwise; several runs are compared, by default in the
    first one's folder as `comparison.html`. Raises `BadInput` for a folder that is not a run.
    """
    if not runs:
        raise BadInput("a report needs at least one run folder")
    if output is None:
        output = runs[0].report if len(runs) == 1 else runs[0].path / "comparison.html"
    if output.is_dir():
        raise BadInput(f"{output} is a folder; name the file to write, such as {output / 'report.html'}")
    write_text(output, render(runs))
    return output


def render(runs: Sequence[RunDirectory]) -> str:
    """The page as text."""
    facts = [RunFacts.load(run) for run in runs]
    payload = Payload()
    colours = source_colours(facts)
    described = [_described(payload, one, f"run-{index}", colours) for index, one in enumerate(facts)]
    labels = _distinct_names(facts)
    compared = None
    if len(facts) > 1:
        compared = {
            "charts": add_comparison_charts(payload, facts, labels),
            "rows": comparison_rows([run["headline"] for run in described]),
            "differences": recipe_differences(facts),
        }
    scripts = [_source(name) for name in _SCRIPTS]
    environment = Environment(
        loader=FileSystemLoader(_HERE / "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["w"] = wording
    environment.globals["counted"] = counted
    return environment.get_template("page.html").render(
        title=" · ".join(labels),
        runs=list(zip(labels, described, strict=True)),
        compared=compared,
        groups=GROUPS,
        made=wording.moment(time.time()),
        version=__version__,
        styles=[Markup(_source(name)) for name in _STYLES],
        scripts=[Markup(script) for script in scripts],
        script_hashes=" ".join(f"'sha256-{_sha256(script)}'" for script in scripts),
        payload=Markup(embedded_json(payload.as_json())),
    )


def embedded_json(content: Any) -> str:
    """JSON that can stand inside a `<script>` element: no text in it can end the element or open another."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _described(payload: Payload, facts: RunFacts, prefix: str, colours: dict[str, int]) -> dict[str, Any]:
    """What the template says about one run."""
    scores = final_scores(facts)
    events, left_out = happenings(facts)
    return {
        "id": prefix,
        "facts": facts,
        "headline": headline(facts, scores),
        "charts": add_training_charts(payload, facts, prefix, colours)
        + add_held_out_charts(payload, facts, prefix, colours),
        "scores": scores,
        "without_scores": without_scores(facts, scores),
        "funnels": funnels(facts),
        "falls": falls(facts),
        "sources": source_texts(facts),
        "comparisons": compare(facts),
        "samples": samples_by_prompt(facts),
        "findings": [in_words_of(finding, facts.diagnosis) for finding in facts.diagnosis.findings],
        "events": events,
        "events_left_out": left_out,
        "environment": environment_rows(facts),
        "gaps": facts.record.gaps(),
    }


def _distinct_names(facts: Sequence[RunFacts]) -> list[str]:
    """The runs' names; of runs that share one, the folder too."""
    names = [one.name for one in facts]
    return [
        name if names.count(name) == 1 else f"{name} ({one.run.path})"
        for name, one in zip(names, facts, strict=True)
    ]


def _source(name: str) -> str:
    """A script or style that goes into the page as it is."""
    text = (_HERE / name).read_text(encoding="utf-8").strip()
    if "</script" in text.lower() or "</style" in text.lower():
        raise AssertionError(f"{name} would end its own element")
    return text


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
