"""`stoker data …`: look into prepared text, its history, and what a step was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stoker.cli.arguments import AsJson, Overrides, RecipePath, RunPath, existing_run, load
from stoker.console import print_json, print_result, table
from stoker.errors import BadInput
from stoker.plural import counted

CorpusPath = Annotated[
    Path, typer.Argument(metavar="RECIPE|RUN", help="A recipe whose text is prepared, a run, or a prepared corpus.")
]

verbs = typer.Typer(no_args_is_help=True, help="Look into the text and its history.", rich_markup_mode="markdown")


@verbs.command()
def show(
    run: RunPath,
    step: Annotated[int, typer.Option("--step", help="Step of training; the first is 1.")],
    characters: Annotated[int, typer.Option(min=1, help="Characters shown of each stretch of text.")] = 160,
    json: AsJson = False,
) -> None:
    """Print the documents that a step was trained on.

    Example: `stoker data show examples/quickstart/runs/quickstart --step 120`
    """
    directory = existing_run(run)
    from stoker.data.showing import show_step
    from stoker.recipe.loading import load_recipe
    from stoker.training.origin import corpus_of

    corpus = corpus_of(directory)
    shown = show_step(corpus, load_recipe(directory.recipe).recipe, step, characters)
    documents = [
        {"sample": sample.sample, "rank": sample.rank, **vars(span)}
        for sample in shown.samples
        for span in sample.spans
    ]
    if json:
        print_json({"step": shown.step, "digest": shown.digest, "tokens": shown.tokens, "documents": documents})
        return
    print_result(
        f"step {shown.step}: {counted(len(shown.samples), 'sequences')}, {counted(shown.tokens, 'tokens')}, "
        f"digest {shown.digest}"
    )
    for document in documents:
        where = (
            f"{document['file']}, {document['position']}"
            if document["file"]
            else f"document {document['document']}"
        )
        excerpt = " ".join(str(document["excerpt"]).split())
        print_result(
            f"\nsequence {document['sample']}  {document['source']}  {where}  tokens {document['start']:,} to "
            f"{document['stop']:,} of {document['document_tokens']:,}  epoch {document['epoch']}\n  {excerpt}"
        )


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
def funnel(corpus: CorpusPath, json: AsJson = False) -> None:
    """Print how many documents were read, dropped (by reason), held out and kept.

    Example: `stoker data funnel recipe.yaml`
    """
    from stoker.corpus_lookup import corpus_at
    from stoker.data.ledger import Ledger

    entries = Ledger(corpus_at(corpus).folder).funnel()
    if json:
        print_json(entries)
        return
    rows = [[e["source"], e["stage"], e.get("reason") or "", e["documents"], e["bytes"]] for e in entries]
    print_result(table(["source", "stage", "reason", "documents", "bytes"], rows))


@verbs.command()
def why(
    corpus: CorpusPath,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Identifier of a document, or a file: as `stoker data sample` prints it, or its path.",
        ),
    ],
    json: AsJson = False,
) -> None:
    """Print what became of a document, or of every document of a file, and why.

    Example: `stoker data why recipe.yaml books/emma.txt`
    """
    from stoker.corpus_lookup import corpus_at, history_of

    rows = history_of(corpus_at(corpus), name)
    print_json(rows) if json else print_result(_ledger_table(rows))


@verbs.command()
def sample(
    corpus: CorpusPath,
    reason: Annotated[
        str, typer.Argument(metavar="REASON", help="A reason or verdict, such as `near_duplicate` or `kept`.")
    ],
    count: Annotated[int, typer.Option(min=1, help="Most documents to print.")] = 20,
    json: AsJson = False,
) -> None:
    """Print some of the documents that were dropped for a reason, or kept.

    Example: `stoker data sample recipe.yaml near_duplicate --count 5`
    """
    from stoker.corpus_lookup import corpus_at
    from stoker.data.ledger import Ledger

    rows = Ledger(corpus_at(corpus).folder).sample(reason, count)
    if json:
        print_json(rows)
    elif not rows:
        raise BadInput(
            f"no document has the reason or verdict {reason!r}; `stoker data funnel` lists those there are"
        )
    else:
        print_result(_ledger_table(rows))


def _ledger_table(rows: list[dict[str, Any]]) -> str:
    headers = [
        "verdict",
        "reason",
        "source",
        "identifier",
        "file",
        "position",
        "bytes",
        "duplicate_of",
        "similarity",
    ]
    return table(headers, [[row[name] for name in headers] for row in rows])
