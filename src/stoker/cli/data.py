"""`stoker data …`: look into prepared text, its history, and what a step was trained on."""

from __future__ import annotations

from typing import Annotated

import typer

from stoker.cli.arguments import AsJson, RunPath
from stoker.console import print_json, print_result
from stoker.run_directory import RunDirectory

verbs = typer.Typer(no_args_is_help=True, help="Look into the text and its history.", rich_markup_mode="markdown")


@verbs.command()
def show(
    run: RunPath,
    step: Annotated[int, typer.Option("--step", help="Step of training; the first is 1.")],
    characters: Annotated[int, typer.Option(min=1, help="Characters shown of each stretch of text.")] = 160,
    json: AsJson = False,
) -> None:
    """Print the documents that a step was trained on.

    Example: `stoker data show runs/quickstart --step 120`
    """
    from stoker.data.showing import show_step
    from stoker.recipe.loading import load_recipe
    from stoker.training.origin import corpus_of

    directory = RunDirectory(run)
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
        f"step {shown.step}: {len(shown.samples)} sequences, {shown.tokens:,} tokens, digest {shown.digest}"
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
