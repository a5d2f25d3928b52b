"""`stoker data train-classifier` and `train-perplexity`: models that judge text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker.cli.arguments import AsJson
from stoker.console import print_json, print_result, progress_for, table
from stoker.plural import counted

if TYPE_CHECKING:
    from stoker.data.quality.classifier import Classifier
    from stoker.data.quality.evaluation import GroupResult
    from stoker.data.quality.telling import TellingRun

_METAVAR = "FILE|FOLDER"
_FIELD = typer.Option(help="Field (JSON) or column (Parquet) that holds the text.")


def train_classifier(
    positive: Annotated[list[Path], typer.Option(metavar=_METAVAR, help="Good text; may be given several times.")],
    negative: Annotated[list[Path], typer.Option(metavar=_METAVAR, help="Bad text; may be given several times.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="Where to put the classifier.")],
    longest: Annotated[
        int, typer.Option(min=1, max=4, help="Words (or characters) in a row that it looks at.")
    ] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="How often each document is learnt from.")] = 5,
    held_out: Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of documents to judge on.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Decides the order of documents.")] = 0,
    words_alone: Annotated[
        bool, typer.Option("--words-alone", help="Judge words alone, not how text repeats itself and is laid out.")
    ] = False,
    text_field: Annotated[str, _FIELD] = "text",
    json: AsJson = False,
) -> None:
    """Train a classifier that tells good text from bad, and print how well it does on text it has not seen.

    Example: `stoker data train-classifier --positive books --negative crawl.jsonl.gz --output quality.model`
    """
    from dataclasses import asdict

    from stoker.data.quality.texts import read_texts
    from stoker.data.quality.training import Settings
    from stoker.data.quality.training import train_classifier as trained

    progress = progress_for(json)
    settings = Settings(longest=longest, epochs=epochs, held_out=held_out, seed=seed, form=not words_alone)
    found = trained(
        read_texts(positive, text_field, progress, "read the good text"),
        read_texts(negative, text_field, progress, "read the bad text"),
        settings,
    )
    found.classifier.write(output)
    shared = {"on_both_sides": found.on_both_sides, "share_on_both_sides": found.share_on_both_sides}
    if json:
        runs = {side: [asdict(run) for run in getattr(found, side)] for side in ("good", "bad")}
        print_json({"description": found.classifier.description, "telling": runs, "output": str(output)} | shared)
        return
    if found.on_both_sides:
        print_result(
            f"warning: {counted(found.on_both_sides, 'documents')} ({found.share_on_both_sides:.1%} of the smaller "
            "side) are in the good and in the bad text; they teach nothing, so leave them out of one\n"
        )
    print_result("On documents that were held out:\n" + _groups_text(found.report.groups))
    for title, side in (("speaks for a text", found.good), ("speaks against it", found.bad)):
        print_result(f"\n{title}: " + _runs_text(side))
    print_result("\n" + _form_text(found.classifier, words_alone))
    print_result(
        f"\nclassifier: {output}\nIn a recipe: data.cleaning.quality.model, with `minimum` or `keep_best`."
    )


def _groups_text(groups: Sequence[GroupResult]) -> str:
    def shown(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    rows = [
        [
            one.group,
            f"{one.good:,}",
            f"{one.bad:,}",
            *map(shown, (one.accuracy, one.auc, one.mean_good, one.mean_bad)),
        ]
        for one in groups
    ]
    return table(["text", "good", "bad", "accuracy", "AUC", "mean score good", "bad"], rows)


def _form_text(classifier: Classifier, words_alone: bool) -> str:
    from stoker.data.quality.form import NAMES
    from stoker.data.quality.usual_form import BEYOND, LEAST

    form = classifier.form
    if form is None:
        reason = "--words-alone" if words_alone else f"fewer than {LEAST} good documents to learn it from"
        return f"form of text: not judged ({reason})"
    heaviest = sorted(zip(NAMES, form.weights.tolist(), strict=True), key=lambda pair: -abs(pair[1]))[:6]
    told = "  ".join(f"{name} ({weight:+.1f})" for name, weight in heaviest)
    return (
        f"form of text: {told}; what is unlike all {len(form.usual.prototypes)} usual forms of the good text, "
        f"as {BEYOND:.0%} of it may be, scores below 0.5"
    )


def _runs_text(runs: Sequence[TellingRun]) -> str:
    return "  ".join(f"{run.run} ({run.weight:+.1f})" for run in runs)


def train_perplexity(
    text: Annotated[list[Path], typer.Option(metavar=_METAVAR, help="Good text; may be given several times.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="Where to put the model.")],
    order: Annotated[int, typer.Option(min=2, max=8, help="Characters of the longest run.")] = 5,
    runs: Annotated[int, typer.Option(min=1000, help="Most runs to keep; 12 bytes each.")] = 1 << 20,
    characters: Annotated[int, typer.Option(min=1000, help="Most characters to learn from.")] = 20_000_000,
    text_field: Annotated[str, _FIELD] = "text",
    json: AsJson = False,
) -> None:
    """Train a model of characters that measures how surprising text is, and print what held-out text costs it.

    Example: `stoker data train-perplexity --text books --text manuals.jsonl --output characters.model`
    """
    from dataclasses import asdict

    from stoker.data.quality.character_training import Settings, train_characters
    from stoker.data.quality.texts import read_texts

    progress = progress_for(json)
    settings = Settings(order=order, runs=runs, characters=characters)
    with progress.task("train the model of characters", None, "") as task:
        found = train_characters(read_texts(text, text_field, progress, "read the text"), settings)
        task.advance()
    found.model.write(output)
    facts: dict[str, Any] = {"characters": found.characters, "runs": len(found.model.keys), "output": str(output)}
    if json:
        print_json(facts | {"groups": [asdict(one) for one in found.groups]})
        return
    rows = [
        [one.group, f"{one.documents:,}", f"{one.low:.2f}", f"{one.median:.2f}", f"{one.high:.2f}"]
        for one in found.groups
    ]
    print_result("Bits per character of documents that were held out:")
    print_result(table(["text", "documents", "5%", "median", "95%"], rows))
    print_result(
        f"\nmodel: {output}, {facts['runs']:,} runs from {facts['characters']:,} characters\n"
        "In a recipe: data.cleaning.perplexity.model, with `drop_lowest` or `drop_highest`."
    )
