"""`stoker recipe …`: show, check and write recipes. None of it loads torch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.arguments import AsJson, Overrides, RecipePath, load
from stoker.console import print_json, print_result, table
from stoker.errors import BadInput

verbs = typer.Typer(no_args_is_help=True, help="Show, check and write recipes.", rich_markup_mode="markdown")


@verbs.command()
def show(
    recipe: RecipePath,
    overrides: Overrides = None,
    origins: Annotated[
        bool,
        typer.Option("--origins", help="Say for each value where it came from: line, override, preset, default."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Print the recipe in full, defaults included, as a run would use it.

    Example: `stoker recipe show recipe.yaml training.steps=200 --origins`
    """
    from stoker.recipe.loading import dump_recipe
    from stoker.recipe.showing import with_origins

    loaded = load(recipe, overrides, choose_layout=True)
    if json:
        content = loaded.recipe.model_dump(mode="json")
        print_json({"recipe": content, "origins": dict(loaded.origins)} if origins else content)
    else:
        print_result(with_origins(loaded) if origins else dump_recipe(loaded.recipe))


@verbs.command()
def check(recipe: RecipePath, overrides: Overrides = None, json: AsJson = False) -> None:
    """Check a recipe and the files it names, and print what follows: accumulation, tokens, parameters.

    Example: `stoker recipe check recipe.yaml layout.dp_shard=4`
    """
    from stoker.recipe.consequences import consequences_of
    from stoker.recipe.files import names_fields

    loaded = load(recipe, overrides, with_files=True, choose_layout=True)
    if any(map(names_fields, loaded.recipe.data.sources)):
        from stoker.data.reading.first_documents import require_named_fields  # loads pyarrow

        require_named_fields(loaded.recipe.data, loaded.folder)
    consequences = consequences_of(loaded)
    print_json(consequences.as_json()) if json else print_result(consequences.as_text())


@verbs.command()
def new(
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="File to write.")] = Path("recipe.yaml"),
    parameters: Annotated[
        str, typer.Option("--parameters", help="Size of the model, such as `10m` or `1.5b`.")
    ] = "10m",
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", help="Folder or file of text; give it once for each source.", show_default=False),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option("--tokens", help="Tokens to train on, such as `2b`; 20 per parameter if not given."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the run; the file's, without its ending, if not given.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    json: AsJson = False,
) -> None:
    """Write a full recipe with comments, every derived value with its reason.

    Example: `stoker recipe new recipe.yaml --parameters 25m --data books --data 网页`
    """
    from stoker.recipe.template import write_template

    written = write_template(path, parameters, data or [], tokens, name, overwrite, _supports, _decoded)
    if json:
        print_json({"recipe": str(written)})
    else:
        print_result(f"wrote {written}; next: stoker recipe check {written}")


def _decoded(content: bytes) -> str:
    """The text at the beginning of a file, in the encoding in which `prepare` would read it; empty without one."""
    from stoker.data.reading.decoding import Undecodable, detect_encoding

    try:
        return content.decode(detect_encoding(content, whole=False), errors="ignore")
    except Undecodable:
        return ""


def _supports(texts: Sequence[str], vocabulary_size: int) -> bool:
    """Whether a vocabulary of that size can be trained on the texts: by training it."""
    from stoker.data.tokenizer import train_tokenizer
    from stoker.recipe import Tokenizer

    with tempfile.TemporaryDirectory() as folder:
        try:
            train_tokenizer({"text": texts}, Tokenizer(vocabulary_size=vocabulary_size), Path(folder) / "t.json")
        except BadInput:
            return False
    return True


@verbs.command()
def schema() -> None:
    """Print the JSON schema of recipes, for editors.

    Example: `stoker recipe schema > recipe.schema.json`
    """
    from stoker.recipe.showing import schema as recipe_schema

    print_json(recipe_schema())


@verbs.command()
def presets(json: AsJson = False) -> None:
    """List the named model shapes.

    Example: `stoker recipe presets`
    """
    from stoker.recipe.presets import PRESETS

    if json:
        print_json(
            {
                name: {"shape": p.shape, "published_vocabulary": p.published_vocabulary, "source": p.source}
                for name, p in PRESETS.items()
            }
        )
        return
    from stoker.recipe.consequences import preset_rows

    print_result(
        table(
            ["preset", "parameters", "active", "layers", "hidden", "heads", "kv", "vocabulary", "source"],
            preset_rows(),
        )
    )
