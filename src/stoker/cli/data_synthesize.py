"""`stoker data synthesize`, `vote`, `diversity` and `collapse`: text that models write."""

from __future__ import annotations

import json as json_module
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stoker.cli.arguments import AsJson, Step, existing_run, load
from stoker.console import print_json, print_result, progress_for, table
from stoker.errors import BadInput
from stoker.progress import Progress

if TYPE_CHECKING:
    from stoker.data.synthetic.collapse import Collapse
    from stoker.data.synthetic.diversity import Diversity
    from stoker.data.synthetic.jobs import Author, Generator, Job, Sampling

_FIELD = typer.Option(help="Field (JSON) or column (Parquet) that holds the text.")

_Prompts = Annotated[
    Path, typer.Option(metavar="FILE", help="One prompt a line, or JSON lines with `prompt` and `id`.")
]
_Output = Annotated[Path, typer.Option(metavar="FILE", help="Where to put the rows, JSON lines.")]
_Writer = Annotated[
    Path | None,
    typer.Argument(
        metavar="[RECIPE|RUN]", help="A run whose model writes, or the recipe of one.", show_default=False
    ),
]
_Temperatures = Annotated[str, typer.Option(metavar="T,T…", help="Each prompt is asked at each.")]
_Samples = Annotated[int, typer.Option(min=1, help="Rows for each prompt and temperature.")]
_TopP = Annotated[float, typer.Option(min=0.01, max=1, help="Share of the likeliest tokens drawn from.")]
_Tokens = Annotated[int, typer.Option(min=1, help="Most tokens of a row.")]
_Seed = Annotated[int, typer.Option(min=0, help="Decides every draw.")]
_Generation = Annotated[int, typer.Option(min=1, help="1 for a model trained on real text alone.")]
_WithPrompt = Annotated[bool, typer.Option("--with-prompt", help="Begin each text with its prompt.")]
_Batch = Annotated[int, typer.Option(min=1, help="Rows that the run's model draws at a time.")]
_ServerUrl = Annotated[
    str | None,
    typer.Option("--from", metavar="URL", help="Ask a server instead, such as http://localhost:8000/v1."),
]
_ServerModel = Annotated[str | None, typer.Option(help="Name of the server's model.")]
_Completions = Annotated[
    bool, typer.Option("--completions", help="Ask the server to continue prompts, not to answer them.")
]
_AtOnce = Annotated[int, typer.Option(min=1, help="Requests under way at a time.")]
_PerMinute = Annotated[float | None, typer.Option(min=0.001, max=1e9, help="Most requests begun in a minute.")]
_TokenBudget = Annotated[int | None, typer.Option(min=1, help="Tokens after which nothing more is asked.")]
_KeyVariable = Annotated[
    str, typer.Option(metavar="NAME", help="Environment variable that holds the server's key.")
]


def synthesize(
    prompts: _Prompts,
    output: _Output,
    source: _Writer = None,
    temperatures: _Temperatures = "0.7,1.0",
    samples: _Samples = 1,
    top_p: _TopP = 1.0,
    tokens: _Tokens = 256,
    seed: _Seed = 0,
    generation: _Generation = 1,
    with_prompt: _WithPrompt = False,
    step: Step = None,
    batch: _Batch = 16,
    server: _ServerUrl = None,
    model: _ServerModel = None,
    completions: _Completions = False,
    at_once: _AtOnce = 4,
    per_minute: _PerMinute = None,
    token_budget: _TokenBudget = None,
    key_variable: _KeyVariable = "OPENAI_API_KEY",
    json: AsJson = False,
) -> None:
    """Let a run's model, or a server, write text for prompts; each row says how it came to be.

    Example: `stoker data synthesize runs/base --prompts prompts.txt --output written.jsonl --temperatures 0.7,1.0`
    """
    from stoker.data.synthetic.jobs import Sampling, read_prompts
    from stoker.data.synthetic.server import Server
    from stoker.data.synthetic.writing import synthesize as written

    if (source is None) == (server is None):
        raise BadInput("give either a run (or its recipe), or --from URL")
    of_a_server = {"--model": model, "--completions": completions, "--per-minute": per_minute}
    for option, given in (of_a_server | {"--token-budget": token_budget}).items():
        if server is None and given:
            raise BadInput(f"{option} is for a server (--from URL) and does nothing to a run's model")
    if server is not None and step is not None:
        raise BadInput("--step is for a run's model and does nothing to a server")
    if server is not None and model is None:
        raise BadInput("--from needs --model: the name by which the server knows the model")
    sampling = Sampling(_temperatures(temperatures), samples, top_p, tokens, seed)
    asked, progress = read_prompts(prompts), progress_for(json)
    if server is not None:
        key = os.environ.get(key_variable) or None
        at = Server(server, str(model), key, not completions, at_once, per_minute, token_budget)
        author, generator = _server(at, sampling, generation, progress)
    else:
        author, generator = _run(Path(str(source)), step, generation, asked, sampling, batch)
    found = written(asked, sampling, author, generator, output, progress, with_prompt)
    if json:
        print_json({name: getattr(found, name) for name in found.__slots__} | {"output": str(output)})
        return
    print_result(f"{output}: {found.rows:,} of {found.wanted:,} rows, {found.new:,} new ({found.tokens:,} tokens)")
    if found.stopped is not None:
        print_result(f"stopped: {found.stopped}; the same command with a larger --token-budget goes on")


def _temperatures(written: str) -> tuple[float, ...]:
    try:
        found = tuple(float(one) for one in written.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 <= one <= 10 for one in found) or len(set(found)) < len(found):
        raise BadInput(f"--temperatures {written}: expected different numbers from 0 to 10, such as 0.7,1.0")
    return found


def _server(server: Any, sampling: Sampling, generation: int, progress: Progress) -> tuple[Author, Generator]:
    from stoker.data.synthetic.jobs import Author
    from stoker.data.synthetic.server import ServerGenerator

    return Author(server.model, None, generation), ServerGenerator(server, sampling, say=progress.say)


def _run(
    path: Path, step: int | None, generation: int, prompts: Any, sampling: Sampling, batch: int
) -> tuple[Author, Generator]:
    from stoker.data.synthetic.jobs import jobs_of
    from stoker.data.synthetic.local import LocalGenerator
    from stoker.training.synthesis import trained_author

    run = load(path, None).run if path.is_file() else existing_run(path)
    local, author = trained_author(run, step, generation)
    jobs: list[Job] = jobs_of(prompts, sampling, author)
    return author, LocalGenerator(local, sampling, jobs, batch)


def vote(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Rows of `stoker data synthesize`.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="Where to put the rows that are kept.")],
    by: Annotated[
        Literal["answer", "text"], typer.Option(help="Compare the answers in the texts, or the texts themselves.")
    ] = "answer",
    least_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of a prompt's rows that must agree.")
    ] = 0.5,
    least_votes: Annotated[int, typer.Option(min=1, help="Rows that must agree.")] = 2,
    similarity: Annotated[
        float, typer.Option(min=0, max=1, help="With --by text: Jaccard similarity from which two say the same.")
    ] = 0.6,
    pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="With --by answer: its first group is the answer.")
    ] = None,
    rejected: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to put the other rows, with their reasons.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Keep, for each prompt, one text of those on which most rows agree.

    Example: `stoker data vote first.jsonl second.jsonl third.jsonl --output agreed.jsonl --rejected others.jsonl`
    """
    from collections import Counter

    from stoker.data.synthetic.json_lines import json_line
    from stoker.data.synthetic.voting import REASONS, Rules, Vote
    from stoker.data.synthetic.voting import vote as voted
    from stoker.durable_files import write_bytes

    outputs = {"--output": output} | ({} if rejected is None else {"--rejected": rejected})
    _require_apart(files, outputs)
    fates = voted(_rows(files), Rules(by, least_share, least_votes, similarity, pattern))

    def written(chosen: list[Vote]) -> bytes:
        facts = ({"answer": one.answer, "votes": one.votes, "of": one.of, "models": one.models} for one in chosen)
        rows = (
            {**one.row, "vote": fact | ({"reason": one.reason} if one.reason else {})}
            for one, fact in zip(chosen, facts, strict=True)
        )
        return b"".join(map(json_line, rows))

    kept = [one for one in fates if one.reason is None]
    write_bytes(output, written(kept))
    if rejected is not None:
        write_bytes(rejected, written([one for one in fates if one.reason is not None]))
    counts = Counter(one.reason for one in fates)
    if json:
        print_json({"rows": len(fates), "kept": len(kept), "reasons": {name: counts[name] for name in REASONS}})
        return
    rows = [["kept", f"{len(kept):,}", "one row of those on which most agree"]]
    rows += [[name, f"{counts[name]:,}", meaning] for name, meaning in REASONS.items() if counts[name]]
    print_result(table(["", "rows", ""], rows))


def _require_apart(files: list[Path], outputs: dict[str, Path]) -> None:
    """Raise `BadInput` where a file would be written over that is read, or that is written as well."""
    taken = {path.resolve(): "one of the files to read" for path in files}
    for option, path in outputs.items():
        if (what := taken.get(path.resolve())) is not None:
            raise BadInput(f"{option} {path} is {what}; name another")
        taken[path.resolve()] = f"{option}, too"


def _rows(files: list[Path]) -> Iterator[dict[str, Any]]:
    from stoker.data.synthetic.json_lines import read_lines

    for path in files:
        for number, line in enumerate(read_lines(path, "give files of JSON lines in UTF-8"), 1):
            try:
                row = json_module.loads(line)
                if not isinstance(row["prompt"], str) or not isinstance(row["text"], str):
                    raise ValueError("`prompt` and `text` must be text")
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise BadInput(f"{path}, line {number}: expected `prompt` and `text` ({error})") from error
            yield row


def diversity(
    texts: Annotated[
        list[Path],
        typer.Argument(metavar="RECIPE|FILE|FOLDER...", help="A recipe's sources, or files and folders."),
    ],
    real: Annotated[
        list[Path] | None, typer.Option(metavar="FILE|FOLDER", help="Real text to count repeated runs against.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1000, help="Most words (or characters) that are looked at.")] = 200_000,
    megabytes: Annotated[
        float, typer.Option(min=0.01, max=1e6, help="Of a recipe: text of each source, in 10^6 bytes.")
    ] = 4.0,
    text_field: Annotated[str, _FIELD] = "text",
    json: AsJson = False,
) -> None:
    """Print how diverse texts are beside one another: distinct runs, compression, likeness, overlap with real text.

    Of a recipe, sources that are not `synthetic` are the real text. All are cut to the same length.

    Example: `stoker data diversity written.jsonl books --real books`
    """
    from dataclasses import asdict

    from stoker.data.quality.texts import read_texts
    from stoker.data.synthetic.diversity import diversity_of

    progress = progress_for(json)
    known = None if not real else list(read_texts(real, text_field, progress, "read the real text"))
    if len(texts) == 1 and texts[0].suffix in (".yaml", ".yml"):
        bodies, own = _of_recipe(texts[0], megabytes, progress)
        known = own if known is None else known
    else:
        bodies = {str(path): list(read_texts([path], text_field, progress, f"read {path.name}")) for path in texts}
    found = diversity_of(bodies, known or None, tokens)
    print_json([asdict(one) for one in found]) if json else print_result(_diversity_text(found))


def _of_recipe(path: Path, megabytes: float, progress: Progress) -> tuple[dict[str, list[str]], list[str]]:
    """Text of each source, and that of the real ones where there are others."""
    from stoker.data.tokenizer_comparison import sampled_texts

    loaded = load(path, None)
    texts = sampled_texts(loaded, megabytes, progress)
    written = {source.name for source in loaded.recipe.data.sources if source.synthetic}
    if not written:
        return texts, []
    return texts, [text for name, own in texts.items() if name not in written for text in own]


def _diversity_text(found: list[Diversity]) -> str:
    rows = [
        [
            one.name,
            f"{one.documents:,}",
            *(f"{share:.3f}" for share in one.distinct),
            f"{one.compression:.2f}",
            f"{one.nearest:.3f}",
            f"{one.alike:.1%}",
            "-" if one.in_real is None else f"{one.in_real:.1%}",
        ]
        for one in found
    ]
    heads = ["", "documents", "distinct-1", "-2", "-3", "-4", "compression", "nearest", "alike", "in real text"]
    return table(heads, rows) + f"\n{found[0].tokens:,} words or characters of each"


def collapse(
    generations: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|FOLDER...", help="Text of each generation, from the first (or real text) on."),
    ],
    text_field: Annotated[str, _FIELD] = "text",
    json: AsJson = False,
) -> None:
    """Say whether diversity falls from generation to generation; ends with code 1 where it does.

    Example: `stoker data collapse books generation-1.jsonl generation-2.jsonl`
    """
    from dataclasses import asdict

    from stoker.data.quality.texts import read_texts
    from stoker.data.synthetic.collapse import collapse_over
    from stoker.errors import EXIT_FAILED

    progress = progress_for(json)
    if len(set(generations)) < len(generations):
        raise BadInput("a generation is given twice")
    found = collapse_over(
        {str(path): list(read_texts([path], text_field, progress, f"read {path.name}")) for path in generations}
    )
    print_json(asdict(found) | {"warns": found.warns}) if json else print_result(_collapse_text(found))
    if found.warns:
        raise typer.Exit(EXIT_FAILED)


def _collapse_text(found: Collapse) -> str:
    rows = [
        [
            trend.measure,
            *(f"{mean:.3f}" for mean in trend.means),
            f"{trend.change:+.1%}",
            f"{trend.chance:.1g}",
            "falls" if trend.warns else "",
        ]
        for trend in found.trends
    ]
    heads = ["", *(Path(name).name for name in found.generations), "change", "chance", ""]
    said = (
        "diversity falls: this text loses the tails of what it was made from" if found.warns else "no fall is seen"
    )
    return table(heads, rows) + f"\n{said} (blocks of {found.block_tokens:,} words or characters)"
