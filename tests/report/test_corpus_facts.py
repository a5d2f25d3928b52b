"""What became of the text, as the report tells it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stoker.report import write_report
from stoker.report.corpus_facts import falls, funnels
from stoker.report.run_facts import RunFacts
from stoker.run_directory import RunDirectory
from tests.report.synthetic_run import SyntheticRun


def facts_with(**corpus: Any) -> RunFacts:
    return RunFacts(RunDirectory(Path("run")), "", {}, {}, {}, corpus)


def line(stage: str, documents: int, reason: str | None = None, source: str = "web") -> dict[str, Any]:
    return {"source": source, "stage": stage, "reason": reason, "documents": documents, "bytes": 10 * documents}


def test_whatever_drops_a_document_is_a_filter_and_the_funnel_adds_up() -> None:
    rows = [
        line("read", 100),
        line("reading", 5, "empty"),
        line("language", 10, "other_language"),
        line("filter", 20, "markup"),
        line("held_out", 4),
        line("exact_duplicate", 1),
        line("in_earlier_corpus", 2),
        line("kept", 58),
    ]
    (funnel,) = funnels(facts_with(funnel=rows))
    assert funnel.unexplained == 0
    assert funnel.by_group["filtered"] == 35
    assert funnel.by_group["near-duplicates"] == 2
    assert [stage.reason for stage in funnel.stages][:3] == ["empty", "other language", "markup"]


def test_the_sum_of_all_sources_has_filters_before_what_is_held_out() -> None:
    rows = [line("read", 10), line("held_out", 1), line("kept", 9)]
    rows += [line("read", 10, source="b"), line("language", 5, "other_language", "b"), line("kept", 5, source="b")]
    whole = funnels(facts_with(funnel=rows))[0]
    assert [stage.group for stage in whole.stages] == ["filtered", "held out", "kept"]


def test_a_filter_that_falls_on_one_kind_is_told() -> None:
    fall = {"by": "kind", "stage": "filter", "reason": "long_lines", "group": "code", "share": 0.25}
    (sentence,) = falls(facts_with(falls=[fall | {"others_share": 0.01}, 3, None]))
    assert sentence == "long lines takes 25.0% of the documents in code that reach it and 1.0% of the others"
    assert falls(facts_with(falls=7)) == []
    (sentence,) = falls(facts_with(falls=[fall | {"others_share": 0.01, "stage": "cut inside"}]))
    told = "long lines cuts something out of 25.0% of the documents in code that stay and 1.0% of the others"
    assert sentence == told


def test_the_page_says_so_with_whatever_the_group_is_called(tmp_path: Path) -> None:
    run = SyntheticRun(steps=2, resume_from=None).write(tmp_path)
    manifest = json.loads(run.corpus.read_text())
    fall = {"reason": "markup", "group": "<b>code</b>", "share": 0.25, "others_share": 0.01}
    run.corpus.write_text(json.dumps(manifest | {"falls": [fall]}))
    page = write_report([run]).read_text(encoding="utf-8")
    assert "markup takes 25.0% of the documents in &lt;b&gt;code&lt;/b&gt; that reach it" in page
