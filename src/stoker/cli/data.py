"""`stoker data …`: look into prepared text, its history, and what a step was trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stoker.cli.arguments import AsJson, Overrides, RecipePath, RunPath, existing_run, load
from stoker.console import print_json, print_result, progress_for, table
from stoker.errors import BadInput

if TYPE_CHECKING:
    from stoker.data.corpus import Corpus
    from stoker.data.ledger.borderline import Borderline
    from stoker.data.ledger.excerpts import Excerpt

CorpusPath = Annotated[
    Path, typer.Argument(metavar="RECIPE|RUN", help="A recipe whose text is prepared, a run, or a prepared corpus.")
]

verbs = typer.Typer(no_args_is_help=True, help="Look into the text and its history.", rich_markup_mode="markdown")


Count = Annotated[int, typer.Option(min=1, help="Most documents to print.")]
Characters = Annotated[int, typer.Option(min=1, help="Characters shown of each text.")]


@verbs.command()
def show(
    run: RunPath,
    step: Annotated[int | None, typer.Option("--step", help="Step of training; the first is 1.")] = None,
    steps: Annotated[
        str | None, typer.Option("--steps", metavar="FIRST-LAST", help="A range of steps, both included.")
    ] = None,
    mentions: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS|/REGEX/",
            help="Only texts that mention these words, or in which a regular expression between slashes is found.",
        ),
    ] = None,
    characters: Annotated[int, typer.Option(min=1, help="Characters shown of each stretch of text.")] = 160,
    json: AsJson = False,
) -> None:
    """Print the documents that a step, or some steps, were trained on.

    What the recipe says is held against the run's record: the digest, and other samples that a step was given.

    Example: `stoker data show examples/quickstart/runs/quickstart --step 120`
    """
    directory = existing_run(run)
    wanted = _steps(step, steps)
    from stoker.cli.data_shown import step_text
    from stoker.corpus_lookup import recorded_steps
    from stoker.data.feeding.as_recorded import FeedAsRecorded
    from stoker.data.showing import FEW_STEPS, mention_pattern, show_steps
    from stoker.recipe.loading import load_recipe
    from stoker.training.origin import corpus_of

    pattern = None if mentions is None else mention_pattern(mentions)
    corpus, recipe = corpus_of(directory), load_recipe(directory.recipe).recipe
    given, digests = recorded_steps(directory)
    feed = FeedAsRecorded(corpus, recipe, given, few_steps=len(wanted) <= FEW_STEPS)
    shown = []
    found = 0
    shares: dict[str, float] | None = None
    for one in show_steps(corpus, recipe, wanted, characters, pattern, feed):
        found += sum(len(sample.spans) for sample in one.samples)
        if json:
            documents = [
                {"sample": sample.sample, "rank": sample.rank, **vars(span)}
                for sample in one.samples
                for span in sample.spans
            ]
            step_facts = {"step": one.step, "digest": one.digest, "tokens": one.tokens, "sequences": one.sequences}
            recorded = {"recorded_digest": digests.get(one.step), "given_samples": given.get(one.step)}
            shown.append(step_facts | recorded | {"shares": one.shares, "documents": documents})
        elif one.samples or len(wanted) == 1:
            print_result(step_text(one, mentions, digests.get(one.step), given.get(one.step), shares))
            shares = one.shares
    if json:
        print_json(shown if steps is not None else shown[0])
    elif not found:
        print_result(f"nothing in these steps mentions {mentions}")


def _steps(step: int | None, steps: str | None) -> range:
    if (step is None) == (steps is None):
        raise BadInput("give either --step N or --steps FIRST-LAST")
    if step is not None:
        return range(step, step + 1)
    first, _, last = str(steps).partition("-")
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise BadInput(f"--steps {steps}: expected FIRST-LAST, such as 100-200")
    return range(int(first), int(last) + 1)


@verbs.command()
def licences(recipe: RecipePath, overrides: Overrides = None, json: AsJson = False) -> None:
    """Print the licence of every source, package by package.

    Example: `stoker data licences examples/quickstart/recipe.yaml`
    """
    from dataclasses import asdict

    from stoker.data.licences import licences as licences_of

    found = [asdict(licence) for licence in licences_of(load(recipe, overrides))]
    if json:
        print_json(found)
    else:
        print_result(table(["source", "origin", "licence", "stated by"], [list(row.values()) for row in found]))


@verbs.command()
def funnel(
    corpus: CorpusPath,
    by: Annotated[
        Literal["kind", "language", "content"] | None,
        typer.Option(help="Print instead what share of each kind, language or class of text every reason takes."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Print how many documents were read, dropped (by reason), held out and kept, and what is hit hardest.

    Example: `stoker data funnel recipe.yaml --by content`
    """
    from stoker.cli.data_shown import falls_text, funnel_text, import_text
    from stoker.corpus_lookup import corpus_at
    from stoker.data.ledger import Ledger
    from stoker.data.ledger.falls import all_falls, all_warnings, warnings

    found = corpus_at(corpus, progress_for(json))
    ledger = Ledger(found.folder)
    if by is None:
        entries = ledger.funnel()
        if json:
            print_json(entries)
        else:
            warned = all_warnings(ledger.summary(), ledger.description, ledger.cuts())
            print_result(funnel_text(entries, warned) + import_text(found.manifest))
        return
    cells = all_falls(ledger.summary(), ledger.description, ledger.cuts(), by)
    if json:
        print_json({"by": by, "falls": [cell.as_json() for cell in cells], "warnings": warnings(cells)})
    else:
        print_result(falls_text(cells, by, warnings(cells)) + import_text(found.manifest))


@verbs.command()
def why(
    corpus: CorpusPath,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Identifier of a document, or a file, as `stoker data sample` prints it, or its path; or a place "
            "in one, `FILE:7`.",
        ),
    ],
    count: Annotated[int, typer.Option(min=1, help="Most documents of a file to print.")] = 1000,
    characters: Characters = 300,
    steps: Annotated[
        bool, typer.Option("--steps", help="Print, too, in which steps of the run each document is trained on.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Print what became of a document, or of every document of a file, and why.

    Of one document, what decided is told in full: the measure and its threshold, what in the text counts for it,
    the document that it repeats and where the two differ; and every measure beside its thresholds.

    Example: `stoker data why runs/first books/emma.txt --steps`
    """
    from stoker.cli.data_shown import import_text
    from stoker.cli.documents_shown import history_text, ledger_table, trainings_text
    from stoker.corpus_lookup import corpus_at, history_of, recipe_at
    from stoker.data.ledger import Ledger
    from stoker.data.ledger.history import history

    found = corpus_at(corpus, progress_for(json))
    ledger = Ledger(found.folder)
    rows = history_of(found, name, count)
    trained = _trainings(corpus, found, rows) if steps else {}
    told = [history(found, ledger, recipe_at(corpus), row, characters) for row in rows] if len(rows) == 1 else []
    if json:
        full = [one.as_json() for one in told] or rows
        print_json([row | {"trainings": trained[_key(row)]} if steps else row for row in full])
        return
    print_result(history_text(told[0], ledger.description) if told else ledger_table(rows))
    if steps:
        print_result(trainings_text([(row["identifier"], trained[_key(row)]) for row in rows]))
    if (total := ledger.rows_of(rows[0]["file"])) > len(rows) == count:
        print_result(f"and {total - len(rows):,} more of this file; --count prints more")
    if note := import_text(found.manifest):
        print_result(note)


def _key(row: dict[str, Any]) -> tuple[str, int]:
    return row["source"], -1 if row["split"] != "train" else row["document"]


def _trainings(
    run: Path, corpus: Corpus, rows: list[dict[str, Any]]
) -> dict[tuple[str, int], list[dict[str, int]]]:
    """By source and index, where in the run each document is trained on; -1 stands for those that never are."""
    directory = existing_run(run)
    from stoker.corpus_lookup import recorded_steps
    from stoker.data.feeding.as_recorded import FeedAsRecorded
    from stoker.data.showing import trainings
    from stoker.recipe.loading import load_recipe

    keys = {_key(row) for row in rows}
    wanted = [key for key in keys if key[1] >= 0]
    recipe = load_recipe(directory.recipe).recipe
    feed = FeedAsRecorded(corpus, recipe, recorded_steps(directory)[0])
    found = trainings(corpus, recipe, wanted, feed) if wanted else {}
    return {key: [vars(one) for one in found.get(key, [])] for key in keys}


@verbs.command()
def sample(
    corpus: CorpusPath,
    reason: Annotated[
        str, typer.Argument(metavar="REASON", help="A reason or verdict, such as `near_duplicate` or `kept`.")
    ],
    count: Count = 20,
    kept: Annotated[
        bool, typer.Option("--kept", help="Documents that the reason's threshold only just did not drop.")
    ] = False,
    characters: Characters = 300,
    json: AsJson = False,
) -> None:
    """Print some of the documents that were dropped for a reason, or kept, with how they begin.

    Of a reason with a threshold, those that are nearest to it come first.

    Example: `stoker data sample recipe.yaml near_duplicate --count 5`
    """
    from dataclasses import asdict

    from stoker.cli.documents_shown import sample_text
    from stoker.corpus_lookup import corpus_at
    from stoker.data.ledger import Ledger
    from stoker.data.ledger.borderline import borderline, rules_for

    found = corpus_at(corpus, progress_for(json))
    ledger = Ledger(found.folder)
    if kept and not rules_for(ledger, reason):
        raise BadInput(_with_note(f"--kept needs a reason with a threshold, which {reason!r} is not", found))
    borders = borderline(ledger, reason, count, kept)
    rows = ledger.at([border.row for border in borders]) if borders or kept else ledger.sample(reason, count)
    if not rows:
        unknown = f"no document has the reason or verdict {reason!r}; `stoker data funnel` lists those there are"
        raise BadInput(_with_note(unknown, found))
    excerpts = _excerpts(corpus, found, rows, characters)
    beside: Sequence[Borderline | None] = borders or [None] * len(rows)
    if not json:
        print_result(sample_text(rows, beside, excerpts))
        return
    print_json(
        [
            row | {"excerpt": excerpt.text, "borderline": None if border is None else asdict(border)}
            for row, border, excerpt in zip(rows, beside, excerpts, strict=True)
        ]
    )


def _with_note(message: str, corpus: Corpus) -> str:
    """A message, and what the corpus cannot tell where its tokens were imported."""
    from stoker.data.imported import import_note

    note = import_note(corpus.manifest)
    return message if note is None else f"{message}. The corpus holds {note}"


def _excerpts(path: Path, corpus: Corpus, rows: list[dict[str, Any]], characters: int) -> list[Excerpt]:
    from stoker.corpus_lookup import recipe_at
    from stoker.data.ledger.excerpts import Excerpts

    return Excerpts(corpus, recipe_at(path), characters).of(rows)


@verbs.command()
def diff(
    first: CorpusPath,
    second: CorpusPath,
    count: Annotated[int, typer.Option(min=0, help="Documents named for each change.")] = 5,
    json: AsJson = False,
) -> None:
    """Print what is different between two prepared corpora: funnels, tokens, thresholds, and every document's fate.

    Example: `stoker data diff runs/first recipe.yaml`
    """
    from stoker.cli.data_shown import difference_text, import_text
    from stoker.corpus_lookup import corpus_at
    from stoker.data.ledger import Ledger
    from stoker.data.ledger.difference import difference

    corpora = corpus_at(first, progress_for(json)), corpus_at(second, progress_for(json))
    before, after = (Ledger(corpus.folder) for corpus in corpora)
    found = difference(before, after, count)
    samples = [before.at(one.first_rows) or after.at(one.second_rows) for one in found.transitions]
    if not json:
        print_result(difference_text(found, samples) + "".join(import_text(one.manifest) for one in corpora))
        return
    written = found.as_json()
    for transition, rows in zip(written["transitions"], samples, strict=True):
        transition["documents_named"] = rows
    print_json(written)


@verbs.command("what-if")
def what_if(
    corpus: CorpusPath,
    thresholds: Annotated[
        list[str], typer.Argument(metavar="REASON=VALUE...", help="Other thresholds, such as `markup=0.5`.")
    ],
    count: Annotated[int, typer.Option(min=0, help="Documents named for each change.")] = 5,
    json: AsJson = False,
) -> None:
    """Print what other thresholds would change, from what was measured: no text is read again.

    Example: `stoker data what-if recipe.yaml markup=0.5 repetition=0.6`
    """
    from stoker.cli.data_shown import what_if_text
    from stoker.corpus_lookup import corpus_at
    from stoker.data.imported import is_imported
    from stoker.data.ledger import Ledger
    from stoker.data.ledger.what_if import what_if as ask

    prepared = corpus_at(corpus, progress_for(json))
    ledger, moved = Ledger(prepared.folder), _thresholds(thresholds)
    if is_imported(prepared.manifest):
        raise BadInput(
            _with_note("no rules were asked of this corpus, so there are no thresholds to move", prepared)
        )
    found = ask(ledger, moved, count)
    samples = {change: ledger.at(rows) for change, rows in found.rows.items()}
    if json:
        print_json(found.as_json() | {"documents": samples})
    else:
        print_result(what_if_text(found, samples))


def _thresholds(written: list[str]) -> dict[str, float]:
    found = {}
    for one in written:
        reason, equals, value = one.partition("=")
        try:
            found[reason.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals or not math.isfinite(found.get(reason.strip(), math.nan)):
            raise BadInput(f"{one!r}: expected REASON=VALUE with a number, such as markup=0.5")
    return found
