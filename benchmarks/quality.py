"""How well the models of quality tell text apart, what verse and formulae lose to them, and what they cost.

    python benchmarks/quality.py --text FOLDER

FOLDER holds `*.jsonl.gz` with fields `kind`, `language` and `text`; code is the standard library's, and of the
headers of the system. Documents are halved by their content: models are trained on the building half, all figures
are of the other. Each kind of planted junk is judged by a classifier that learnt from all kinds but that one, and
three of the bodies of text that are told apart are in no training text.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np

import filters_junk as junk
from filters import SEEDS, Sample, clean_text, in_half
from stoker.data.cleaning import clean
from stoker.data.document import Document
from stoker.data.operators import Operator, judge, operators_of
from stoker.data.operators.perplexity import MeasurePerplexity
from stoker.data.operators.quality import ScoreQuality
from stoker.data.quality.character_training import Settings as CharacterSettings
from stoker.data.quality.character_training import train_characters
from stoker.data.quality.characters import CharacterModel
from stoker.data.quality.classifier import Classifier
from stoker.data.quality.training import Settings, train_classifier
from stoker.recipe import Cleaning, Source
from stoker.recipe.quality import Perplexity, Quality

MOST = 800
"""Documents of a group and half."""
PER_KIND = 60
PLANTED = {"prose en": junk.PROSE, "prose zh": junk.CHINESE, "code": junk.CODE, "mathematics": junk.MATHEMATICS}
TAIL = 0.05


def groups_of(folder: Path, half: str) -> dict[str, Sample]:
    """At most `MOST` clean documents of each group, drawn."""
    found = clean_text(folder, half)
    for sample in found.values():
        Random(0).shuffle(sample.texts)
        del sample.texts[MOST:]
    return found


def planted(groups: dict[str, Sample], half: str) -> dict[tuple[str, str], list[str]]:
    """Junk by group and kind, made of clean text of the same half."""
    found = {}
    for group, draws in PLANTED.items():
        for kind, draw in draws.items():
            seeds = (Random(SEEDS[half] + number) for number in range(PER_KIND))
            texts = [draw(seed, groups[group].texts) for seed in seeds]
            found[group, kind] = [text for text in texts if text.strip()]
    return found


def body(folder: Path, name: str, half: str) -> list[str]:
    """The clean documents of one file that are in a half."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
        texts = (clean(json.loads(line)["text"], "prose") for line in stream)
        return [text for text in texts if text and in_half(text, half)][:MOST]


def domain_table(folder: Path) -> None:
    """Teaching against reference, in both languages: bodies that were learnt from, and bodies that were not."""
    sides = {True: ("d2l-zh", "oi-wiki-md", "stacks-project-tex"), False: ("pingcap-docs-cn", "python3-11-doc")}
    others = {"gsm8k-train-test": True, "manpages-zh": False, "linux-doc-6-1-rst": False}
    learnt = {
        side: [text for name in names for text in body(folder, name, "building")] for side, names in sides.items()
    }
    model = train_classifier(learnt[True], learnt[False], Settings()).classifier
    print("teaching against reference: on its side of 0.5, mean score")
    for name, side in ({one: side for side, names in sides.items() for one in names} | others).items():
        scores = np.asarray([model.score(text) for text in body(folder, name, "final")])
        right = (scores > 0.5) == side
        note = "" if name not in others else "  (never learnt from)"
        print(f"  {name:<22}{'teaching' if side else 'reference':<12}{right.mean():8.1%}{scores.mean():8.2f}{note}")
    print()


def classifier_tables(
    building: dict[str, Sample], final: dict[str, Sample], bad: dict[str, dict[tuple[str, str], list[str]]]
) -> Classifier:
    """Clean text against junk: each kind is judged by a classifier that learnt from all kinds but that one."""
    good = [text for group, sample in building.items() if "verse" not in group for text in sample.texts]
    kinds = sorted({kind for _, kind in bad["building"]})
    found: dict[bool, dict[tuple[str, str], float]] = {True: {}, False: {}}
    kept: dict[bool, dict[str, list[float]]] = {True: defaultdict(list), False: defaultdict(list)}
    for form in found:
        start = time.process_time()
        for kind in kinds:
            shown = [text for (_, own), texts in bad["building"].items() if own != kind for text in texts]
            model = train_classifier(good, shown, Settings(form=form)).classifier
            for (group, own), texts in bad["final"].items():
                if own == kind:
                    found[form][group, own] = float(np.mean([model.score(text) < 0.5 for text in texts]))
            for group, sample in final.items():
                kept[form][group].append(float(np.mean([model.score(text) >= 0.5 for text in sample.texts])))
        size = sum(len(text.encode()) for text in good) / 1e6
        seconds = (time.process_time() - start) / len(kinds)
        print(
            f"{'words and form' if form else 'words alone'}: {size:.0f} MB learnt and judged in {seconds:.1f} CPU s"
        )
    print(f"\n{'junk of a kind never learnt from, < 0.5':<42}{'words alone':>12}{'and form':>10}")
    for pair in sorted(found[True]):
        print(f"  {pair[0] + ': ' + pair[1]:<40}{found[False][pair]:12.0%}{found[True][pair]:10.0%}")
    for group in PLANTED:
        shares = [np.mean([own for pair, own in found[form].items() if pair[0] == group]) for form in (False, True)]
        print(f"  {'mean of ' + group:<40}{shares[0]:12.0%}{shares[1]:10.0%}")
    print(f"\n{'clean text, >= 0.5 (mean)':<42}{'words alone':>12}{'and form':>10}")
    for group in final:
        print(f"  {group:<40}{np.mean(kept[False][group]):12.1%}{np.mean(kept[True][group]):10.1%}")
    every = [text for texts in bad["building"].values() for text in texts]
    return train_classifier(good, every, Settings()).classifier


def perplexity_tables(
    building: dict[str, Sample], final: dict[str, Sample], bad: dict[tuple[str, str], list[str]]
) -> CharacterModel:
    """Bits per character of clean text, what the tails take of verse and formulae, and what junk costs."""
    good = [text for group, sample in building.items() if "verse" not in group for text in sample.texts]
    verse = [text for name in ("verse en", "verse zh") for text in building[name].texts]
    with_verse = train_characters([*good, *verse], CharacterSettings()).model
    start = time.process_time()
    trained = train_characters(good, CharacterSettings())
    print(
        f"\nmodel of characters: {trained.characters / 1e6:.1f} million characters learnt in "
        f"{time.process_time() - start:.1f} CPU s, {len(trained.model.keys):,} runs"
    )
    model = trained.model
    bits = {
        group: np.asarray([model.bits_per_character(text) for text in sample.texts])
        for group, sample in final.items()
    }
    print(f"\n{'bits per character':<20}{'5%':>8}{'median':>8}{'95%':>8}")
    for group, own in bits.items():
        print(f"{group:<20}" + "".join(f"{np.percentile(own, share):8.2f}" for share in (5, 50, 95)))
    tails_table("a model that never saw verse", final, model)
    tails_table("a model that learnt from verse, too", final, with_verse)
    print("\nplanted junk beyond the 2nd and 98th percentile of clean text of its group")
    for (group, kind), texts in bad.items():
        own = np.asarray([model.bits_per_character(text) for text in texts])
        low, high = np.percentile(bits[group], [2, 98])
        print(f"  {group + ': ' + kind:<40}{(own < low).mean():8.0%} below{(own > high).mean():8.0%} above")
    return model


def tails_table(title: str, final: dict[str, Sample], model: CharacterModel) -> None:
    """What both tails of a kind and language take of the groups in it."""
    bits = {
        group: np.asarray([model.bits_per_character(text) for text in sample.texts])
        for group, sample in final.items()
    }
    print(
        f"\n{title}: {TAIL:.0%} of each tail, verse being prose; lowest and highest, shares dropped of each group"
    )
    for groups in (("prose en", "verse en"), ("prose zh", "verse zh"), ("mathematics",), ("code",), tuple(bits)):
        everything = np.sort(np.concatenate([bits[group] for group in groups]))
        low, high = everything[int(TAIL * len(everything))], everything[-1 - int(TAIL * len(everything))]
        told = "; ".join(f"{one} {(bits[one] < low).mean():.1%} {(bits[one] > high).mean():.1%}" for one in groups)
        print(f"  {'all as one: ' if len(groups) > 2 else ''}{told}")


def speed_table(final: dict[str, Sample], classifier: Classifier, model: CharacterModel) -> None:
    """CPU seconds of both operators beside those of all others, on the same text in one run."""
    heads = f"{'quality':>11}{'perplexity':>12}{'both':>8}{'all others':>12}{'both/others':>13}"
    print(f"\n{'MB per CPU second':<19}{heads}")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("classifier", "characters")]
        classifier.write(paths[0])
        model.write(paths[1])
        kinds = ("prose", "code", "mathematics", "dialogue")
        cleaning = Cleaning(
            quality=Quality(model=str(paths[0]), kinds=kinds),
            perplexity=Perplexity(model=str(paths[1]), kinds=kinds),
        )
        for group, sample in final.items():
            source = Source(name="s", kind=sample.kind, language=sample.language, paths=("x",))
            operators = operators_of(source, cleaning)
            own = [one for one in operators if isinstance(one, ScoreQuality | MeasurePerplexity)]
            others = [one for one in operators if one not in own]
            documents = [
                Document("s", sample.kind, sample.language, str(number), "f", "file", text)
                for number, text in enumerate(sample.texts)
            ]
            quality, perplexity, rest = (
                min(_seconds(documents, chain) for _ in range(3)) for chain in ([own[0]], [own[1]], others)
            )
            size = sample.megabytes
            print(
                f"{group:<14}{size / quality:16.0f}{size / perplexity:12.1f}{size / (quality + perplexity):8.1f}"
                f"{size / rest:12.1f}{(quality + perplexity) / rest:13.2f}"
            )


def _seconds(documents: Sequence[Document], chain: Sequence[Operator]) -> float:
    judge(documents[0], chain)
    start = time.process_time()
    for document in documents:
        judge(document, chain)
    return time.process_time() - start


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--text", type=Path, required=True)
    text = arguments.parse_args().text
    domain_table(text)
    halves = {half: groups_of(text, half) for half in SEEDS}
    bad = {half: planted(groups, half) for half, groups in halves.items()}
    classifier = classifier_tables(halves["building"], halves["final"], bad)
    model = perplexity_tables(halves["building"], halves["final"], bad["final"])
    speed_table(halves["final"], classifier, model)


if __name__ == "__main__":
    main()
