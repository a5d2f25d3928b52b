"""Bad text stands in a run's own corpus, where the steps read it; and faults that cannot be are refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed
from stoker.data.showing import show_step
from stoker.errors import BadInput
from stoker.recovery.dynamics.bad_text import bad_text
from stoker.recovery.dynamics.kinds import BAD_TEXT, DYNAMICS
from stoker.recovery.dynamics.possible import require_possible_course
from stoker.recovery.dynamics.spoiled_corpus import spoil_corpus
from stoker.recovery.faults import KINDS, parse_fault
from tests.recovery.dynamic_runs import recipe_for, small_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return small_corpus(tmp_path_factory.mktemp("corpus"))


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("what", BAD_TEXT)
def test_bad_text_is_where_the_step_reads_it_and_nowhere_else(corpus: Corpus, tmp_path: Path, what: str) -> None:
    recipe, before = recipe_for(corpus), _files(corpus.folder)
    fault = parse_fault(f"bad_data@5:what={what},strength=0.5,steps=2")
    spoiled = spoil_corpus(corpus.folder, recipe, [fault], tmp_path / "own")
    assert _files(corpus.folder) == before
    own = Corpus.open(tmp_path / "own", verify=True)
    feed, usual = Feed(own, recipe), Feed(corpus, recipe)
    bad = spoiled[str(fault)]
    assert len(bad) == 8
    assert [step for step in range(1, 13) if feed.digest(step) != usual.digest(step)] == [5, 6]
    shown = {sample.sample: sample for step in (5, 6) for sample in show_step(own, recipe, step, 400).samples}
    was = {sample.sample: sample for step in (5, 6) for sample in show_step(corpus, recipe, step, 400).samples}
    changed = [sample for sample in shown if shown[sample].spans != was[sample].spans]
    assert changed == bad
    # Documents are where they were.
    places = [[(s.document, s.start, s.stop) for s in one[bad[0]].spans] for one in (shown, was)]
    assert places[0] == places[1]


@pytest.mark.parametrize(
    ("what", "sign"),
    [
        ("html", "</"),
        ("garbled", "\N{REPLACEMENT CHARACTER}"),
        ("hard", "; "),
        ("repetition", "words to come words to come"),
    ],
)
def test_each_kind_of_bad_text_has_its_sign(what: str, sign: str) -> None:
    text = "words to come " * 30
    found = bad_text(what, text, random.Random(0))
    assert sign in found
    assert len(found) >= 0.5 * len(text)
    assert sign not in text or what == "repetition"


@pytest.mark.parametrize("text", ["", " ", "a", "山水花鸟风月星河春夏秋冬东西南北" * 9])
@pytest.mark.parametrize("what", [one for one in BAD_TEXT if one != "tokenizer"])
def test_of_any_text_some_bad_text_is_made(what: str, text: str) -> None:
    assert bad_text(what, text, random.Random(1)).strip(" ") or not text.strip()


@pytest.mark.parametrize("kind", DYNAMICS)
def test_every_kind_is_written_as_it_is_read(kind: str) -> None:
    described = KINDS[kind]
    words = ",".join(f"{name}={(allowed or ('english',))[-1]}" for name, allowed in described.words.items())
    text = f"{kind}@12:strength=0.5" + (f",{words}" if words else "")
    assert parse_fault(str(parse_fault(text))) == parse_fault(text)
    assert parse_fault(text).cause


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bad_data@5:what=lunch", "what must be garbled or html or language or repetition or tokenizer or hard"),
        ("oversample@5:source=", "source must be a name"),
        ("lr_jump@0", "steps are counted from 1"),
        ("lr_jump@5:phase=data", "lr_jump has no option 'phase'; it takes attempt, strength, steps"),
        ("lr_jump@5:steps=0", "steps must be a whole number from 1 on"),
        ("lr_jump@5:strength=0", "strength must be more than 0"),
        ("lr_jump@5:strength=much", "strength must be a number"),
        ("lr_jump@5:what=html", "lr_jump has no option 'what'"),
    ],
)
def test_nonsense_is_refused_with_what_there_is(text: str, said: str) -> None:
    with pytest.raises(BadInput, match="--fault") as refused:
        parse_fault(text)
    assert said in str(refused.value)


MOE = {"experts": 4, "experts_per_token": 1, "expert_ffn_hidden_size": 16}


@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        ("bad_data@5:strength=1.5", {}, "strength is a share here"),
        ("lr_jump@5:1", {"layout": {"dp_replicate": 2}}, "it happens on all ranks alike: leave the rank (1) out"),
        ("repeat_batch@1", {}, "there is no step before the first"),
        ("lost_rng@1", {}, "the order of samples is at its beginning"),
        ("oversample@5:source=three", {}, "the recipe samples no source 'three'; it has one, two"),
        ("jitter@5", {}, "one rank sums nothing with others"),
        ("slow_network@5", {}, "one rank sums nothing with others"),
        ("accumulation_bug@5", {"training__micro_batch_size": 8}, "has one micro-batch on each rank"),
        ("overflow@5", {}, "there is a loss scale only with training.precision fp16"),
        ("router_collapse@5", {}, "the model has no routers"),
        ("length_change@5:what=longer", {"model__position": "learned"}, "the model has learned positions"),
        ("length_change@5:strength=4", {}, "fewer than 8 tokens a sequence"),
    ],
)
def test_what_a_recipe_cannot_have_is_refused_with_a_reason(
    corpus: Corpus, text: str, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInput, match="--fault") as refused:
        require_possible_course(parse_fault(text), recipe_for(corpus, **changes))
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["kill@5", "lr_jump@5", "router_collapse@5", "jitter@5:1"])
def test_what_a_recipe_can_have_is_not(corpus: Corpus, text: str) -> None:
    recipe = recipe_for(corpus, model__moe=MOE, layout={"dp_replicate": 2}, training__micro_batch_size=2)
    require_possible_course(parse_fault(text), recipe)
