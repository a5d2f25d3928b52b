"""`stoker data fertility`, `compare-tokenizers`, `import-megatron`, `export`, `publish`: how tokens fit, and where
they go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stoker.cli.arguments import AsJson, load
from stoker.cli.data import CorpusPath
from stoker.console import print_json, print_result, progress_for, table
from stoker.errors import BadInput

if TYPE_CHECKING:
    from stoker.data.fertility import Fertility
    from stoker.data.tokenizer_comparison import Compared

_COLUMNS = ("tokens", "tokens/character", "bytes/token", "single bytes")


def fertility(
    corpus: CorpusPath,
    longest: Annotated[
        int, typer.Option(min=0, help="How many of the longest and most frequent tokens to print.")
    ] = 10,
    json: AsJson = False,
) -> None:
    """Print how many tokens the text takes by source and language, and what of the vocabulary is long or unused.

    Example: `stoker data fertility recipe.yaml`
    """
    from dataclasses import asdict

    from stoker.corpus_lookup import corpus_at
    from stoker.data.fertility import vocabulary_use

    found = vocabulary_use(corpus_at(corpus, progress_for(json)), longest, progress_for(json))
    if json:
        rows = {name: [_with_ratios(row) for row in getattr(found, name)] for name in ("sources", "languages")}
        print_json(asdict(found) | rows)
        return
    print_result(table(["source", *_COLUMNS], [_row(one) for one in found.sources]))
    if len(found.languages) > 1:
        print_result("\n" + table(["language", *_COLUMNS], [_row(one) for one in found.languages]))
    share = found.unused / found.entries if found.entries else 0.0
    print_result(f"\n{found.unused:,} of {found.entries:,} entries ({share:.1%}) are in no training text")
    for title, tokens in (("longest", found.longest), ("most frequent", found.most_frequent)):
        if tokens:
            print_result(f"{title}: " + "  ".join(f"{text!r} {count:,}×" for text, count in tokens))


def _with_ratios(row: Fertility) -> dict[str, object]:
    return vars(row) | {
        "tokens_per_character": row.tokens_per_character,
        "bytes_per_token": row.bytes_per_token,
        "single_byte_share": row.single_byte_share,
    }


def _row(one: Fertility) -> list[object]:
    ratios = (f"{one.tokens_per_character:.3f}", f"{one.bytes_per_token:.2f}", f"{one.single_byte_share:.2%}")
    return [one.name, f"{one.tokens:,}", *ratios]


def compare_tokenizers(
    tokenizers: Annotated[
        list[Path],
        typer.Argument(
            metavar="TOKENIZER...",
            help="Files `tokenizer.json`, folders that hold one, or recipes whose text is prepared.",
        ),
    ],
    text: Annotated[Path, typer.Option("--text", metavar="RECIPE", help="The recipe whose sources give the text.")],
    megabytes: Annotated[float, typer.Option(min=0.001, max=1e6, help="Text of each source, in 10^6 bytes.")] = 2.0,
    json: AsJson = False,
) -> None:
    """Print how tokenizers fit the same text: fertility by source, round trip, special tokens, speed.

    Example: `stoker data compare-tokenizers ours.json theirs.json --text recipe.yaml`
    """
    from dataclasses import asdict

    from stoker.data.tokenizer_comparison import compare_tokenizers as compare
    from stoker.data.tokenizer_comparison import sampled_texts

    progress = progress_for(json)
    paths = [_tokenizer_at(path) for path in tokenizers]
    found = compare(paths, sampled_texts(load(text, None), megabytes, progress), progress)
    print_json([asdict(one) for one in found]) if json else print_result(_comparison_text(found))


def _tokenizer_at(path: Path) -> Path:
    """The file that a path means."""
    if path.is_dir() and (path / "tokenizer.json").is_file():
        return path / "tokenizer.json"
    if path.suffix == ".json":
        return path
    from stoker.corpus_lookup import corpus_at

    return corpus_at(path).tokenizer_path


def _comparison_text(found: list[Compared]) -> str:
    names = [f"{chr(ord('A') + number % 26)}{number // 26 or ''}" for number in range(len(found))]
    lines = [f"{name}  {one.tokenizer}" for name, one in zip(names, found, strict=True)]
    facts = [
        [
            name,
            f"{one.vocabulary_size:,}",
            f"{one.tokens:,}",
            sum(fit.changed for fit in one.fits),
            f"{one.megabytes_per_second:.1f}",
            one.encoded_by,
            " ".join(one.special_tokens[:4]) + (" …" if len(one.special_tokens) > 4 else ""),
        ]
        for name, one in zip(names, found, strict=True)
    ]
    headers = ["", "vocabulary", "tokens", "changed texts", "MB/s", "encoded by", "special tokens"]
    fits = [
        [
            first.source,
            *(f"{one.fits[number].tokens_per_character:.3f}" for one in found),
            *(f"{one.fits[number].bytes_per_token:.2f}" for one in found),
            *(f"{one.fits[number].single_byte_share:.2%}" for one in found),
        ]
        for number, first in enumerate(found[0].fits)
    ]
    columns = [f"{what} {name}" for what in ("tokens/character", "bytes/token", "single bytes") for name in names]
    return "\n".join([*lines, "", table(headers, facts), table(["source", *columns], fits)])


def import_megatron(
    prefixes: Annotated[
        list[Path],
        typer.Argument(metavar="PREFIX...", help="Datasets, without `.bin` or `.idx`; each is a source."),
    ],
    tokenizer: Annotated[Path, typer.Option(help="The `tokenizer.json` that the datasets were made with.")],
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put the corpus; must not exist.")],
    bos: Annotated[str, typer.Option(help="Name of the beginning-of-text token.")] = "<|begin_of_text|>",
    eos: Annotated[str, typer.Option(help="Name of the end-of-text token.")] = "<|end_of_text|>",
    held_out: Annotated[float, typer.Option(min=0, max=0.5, help="Share of documents to hold out.")] = 0.01,
    json: AsJson = False,
) -> None:
    """Make a prepared corpus of Megatron's `.bin` and `.idx`; a recipe trains on it by `data.corpus`.

    Example: `stoker data import-megatron data/web_text_document --tokenizer tokenizer.json --output corpora/web`
    """
    from dataclasses import asdict

    from stoker.data.exchange.importing import import_megatron as imported
    from stoker.recipe import Tokenizer

    settings = Tokenizer(path=str(tokenizer), bos_token=bos, eos_token=eos)
    found = imported(prefixes, settings, output, held_out, progress_for(json))
    if json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        [
            one.source,
            f"{one.documents:,}",
            f"{one.tokens:,}",
            f"{one.held_out:,}",
            f"{one.with_bos:,}",
            f"{one.with_eos:,}",
        ]
        for one in found
    ]
    print_result(table(["source", "documents", "tokens", "held out", f"begin with {bos}", f"end with {eos}"], rows))
    print_result(f"\ncorpus: {output}\nIn a recipe: data.corpus, and data.sources with these names.")


def export_tokens(
    corpus: CorpusPath,
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put the files.")],
    wanted: Annotated[
        Literal["megatron", "parquet"], typer.Option("--format", help="Megatron's .bin and .idx, or Parquet.")
    ] = "megatron",
    json: AsJson = False,
) -> None:
    """Write the tokens of a prepared corpus for others to read, one file (or pair) for each source and split.

    Example: `stoker data export recipe.yaml --format megatron --output exported`
    """
    from dataclasses import asdict

    from stoker.corpus_lookup import corpus_at
    from stoker.data.exchange.exporting import export_corpus

    found = export_corpus(corpus_at(corpus, progress_for(json)), output, wanted, progress_for(json))
    if json:
        print_json([asdict(one) for one in found])
        return
    rows = [[one.source, one.split, f"{one.documents:,}", f"{one.tokens:,}", " ".join(one.files)] for one in found]
    print_result(table(["source", "split", "documents", "tokens", "files"], rows))


def publish_corpus(
    corpus: CorpusPath,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the corpus is to stand, such as s3://bucket/c.")],
    json: AsJson = False,
) -> None:
    """Copy a prepared corpus, also an imported one, to a URL, from where recipes and commands fetch it.

    Broken off, the same command goes on. What stands there already is never written over.

    Example: `stoker data publish corpora/web s3://bucket/corpora/web`
    """
    from stoker.corpus_lookup import corpus_at
    from stoker.data.place_of_url import is_url
    from stoker.data.publishing import publish

    if not is_url(url):
        raise BadInput(f"{url} is no URL, such as s3://bucket/corpora/web; a folder is copied by `cp -r`")
    progress = progress_for(json)
    found = corpus_at(corpus, progress)
    sent = publish(found.folder, url, progress)
    if json:
        print_json({"corpus": str(found.folder), "url": url, "was_there": not sent})
    else:
        print_result(f"{'published' if sent else 'it stands there already'}: {url}\nIn a recipe: data.corpus")
