"""`stoker data mixture`: what a recipe's mixture comes to, and what the rules would give instead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli.arguments import AsJson, Overrides, existing_run, load
from stoker.cli.terminal_text import printable
from stoker.console import print_json, print_result, table
from stoker.errors import BadInput
from stoker.wording import percent

if TYPE_CHECKING:
    from stoker.data.mixture_account import MixtureAccount, SourceAccount, StageAccount


def mixture(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe whose text is prepared.")],
    overrides: Overrides = None,
    losses_of: Annotated[
        Path | None,
        typer.Option(
            "--losses-of",
            metavar="RUN",
            help="Print instead the held-out losses of a run's last evaluation, as `data.mixture.losses`.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Print, stage by stage, how much of each source a run draws, how often it repeats it, and what that costs.

    Example: `stoker data mixture recipe.yaml data.mixture.weights=temperature data.mixture.alpha=0.5`
    """
    loaded = load(recipe, overrides)
    if losses_of is not None:
        from stoker.recipe.yaml_text import dump
        from stoker.training.evaluated import last_losses

        names = [source.name for source in loaded.recipe.data.sources]
        step, losses = last_losses(existing_run(losses_of), names)
        if json:
            print_json({"step": step, "losses": losses})
        else:
            print_result(
                f"# held-out losses in nats a token after step {step:,}\n{dump({'losses': losses})}".rstrip()
            )
        return
    from stoker.data.mixture_account import account
    from stoker.data.prepared import find_prepared

    corpus = find_prepared(loaded)
    if corpus is None:
        raise BadInput(f"the text of {recipe} is not prepared yet; run `stoker prepare {recipe}` first")
    found = account(corpus, loaded.recipe)
    if json:
        print_json(found.as_json())
    else:
        print_result(_text(found))


def _text(found: MixtureAccount) -> str:
    parts = [_stage_text(stage) for stage in found.stages] if len(found.stages) > 1 else []
    parts.append(f"whole run: {found.steps:,} steps, {found.tokens:,} tokens\n" + _sources_text(found.sources))
    rules = list(found.rules)
    if rules:
        rows = [
            [printable(one.source), *(percent(found.rules[rule][one.source]) for rule in rules)]
            for one in found.sources
        ]
        parts.append("shares by rule\n" + table(["source", *rules], rows))
    parts += [f"warning: {printable(warning)}" for warning in found.warnings]
    return "\n".join(parts).rstrip()


def _stage_text(stage: StageAccount) -> str:
    title = f"stage {stage.stage}: steps {stage.first_step:,} to {stage.last_step:,}"
    if stage.linear:
        title += ", shares changing linearly"
    for name, limits in stage.limits.items():
        title += f"\n  {printable(name)}: documents of {limits}"
    return f"{title}\n{_sources_text(stage.sources)}"


def _sources_text(sources: tuple[SourceAccount, ...]) -> str:
    headers = ["source", "tokens", "share", "drawn", "epochs", "effective", "price"]
    return table(headers, [_row(one) for one in sources])


def _row(one: SourceAccount) -> list[str]:
    share = percent(one.share)
    if abs(one.last_share - one.share) > 1e-4:
        share += f" to {percent(one.last_share)}"
    lost = one.drawn - one.effective
    price = f"{lost:,.0f} ({percent(one.price)})" if lost >= 1 else "-"
    return [
        printable(one.source),
        f"{one.tokens:,}",
        share,
        f"{one.drawn:,}",
        f"{one.epochs:.2f}",
        f"{one.effective:,.0f}",
        price,
    ]
