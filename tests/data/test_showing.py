from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed
from stoker.data.ledger.description import SourceNote
from stoker.data.ledger.writing import LedgerWriter
from stoker.data.showing import mention_pattern, show_step, show_steps, trainings
from stoker.errors import BadInput
from tests.data.corpora import build_corpus, byte_document, recipe_for

TEXTS = ["in the beginning", "天地玄黄", "def f(): return 1", "x"]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    documents = [byte_document(text) for text in TEXTS]
    return build_corpus(tmp_path / "c", {"a": {"train": documents}, "b": {"train": documents[::-1]}})


def write_ledger(corpus: Corpus) -> None:
    writer = LedgerWriter(corpus.folder / "ledger", [SourceNote(name, "prose", None, ()) for name in "ab"])
    for source in "ab":
        rows = [
            {
                "source": source,
                "file": f"{source}/{index}.txt",
                "position": "file",
                "identifier": f"{source}-{split}-{index}",
                "verdict": "kept",
                "split": split,
                "document": index,
            }
            for split in ("train", "held_out")
            for index in range(4)
        ]
        dropped = {
            "source": source,
            "file": "a/bad.txt",
            "position": "file",
            "identifier": "bad",
            "verdict": "dropped",
        }
        writer.add(pa.Table.from_pylist([*rows, dropped], writer.schema))
    writer.close()


def test_a_step_is_shown_with_the_very_documents_it_saw(corpus: Corpus) -> None:
    write_ledger(corpus)
    recipe = recipe_for(corpus, 8, 4, weights=[0.5, 0.5], layout={"dp_shard": 2})
    feed = Feed(corpus, recipe)
    for step in (1, 2, 57):
        shown, batch = show_step(corpus, recipe, step), feed.global_batch(step)
        assert (shown.step, shown.digest, shown.tokens) == (step, feed.digest(step), feed.valid_tokens(step))
        assert [sample.sample for sample in shown.samples] == batch.samples.tolist()
        assert [sample.rank for sample in shown.samples] == [0, 0, 1, 1]
        for sample, source in zip(shown.samples, batch.sources.tolist(), strict=True):
            assert sample.source == corpus.source_names[source]
            assert sum(span.stop - span.start for span in sample.spans) == 8
            for span in sample.spans:
                assert (span.identifier, span.file) == (
                    f"{span.source}-train-{span.document}",
                    f"{span.source}/{span.document}.txt",
                )
                text = TEXTS[span.document if span.source == "a" else 3 - span.document]
                ids = byte_document(text)[span.start : span.stop]
                assert span.document_tokens == len(text.encode()) + 2
                assert span.excerpt == bytes(i for i in ids if i < 256).decode(errors="ignore")


def test_without_a_ledger_the_text_is_still_shown(corpus: Corpus) -> None:
    shown = show_step(corpus, recipe_for(corpus, 8), 1)
    spans = [span for sample in shown.samples for span in sample.spans]
    assert {(span.identifier, span.file, span.position) for span in spans} == {(None, None, None)}
    assert any(span.excerpt for span in spans)


def test_excerpts_are_cut_to_the_length_asked_for(corpus: Corpus) -> None:
    shown = show_step(corpus, recipe_for(corpus, 16), 1, excerpt_characters=3)
    lengths = [len(span.excerpt) for sample in shown.samples for span in sample.spans]
    assert max(lengths) == 3


def test_what_is_shown_can_be_written_as_json(corpus: Corpus) -> None:
    shown = show_step(corpus, recipe_for(corpus, 8), 2)
    again = json.loads(json.dumps(shown.as_json()))
    assert again["samples"][0]["spans"][0]["source"] == shown.samples[0].source


@pytest.mark.parametrize("step", [0, 101])
def test_a_step_that_the_run_does_not_have_is_refused(corpus: Corpus, step: int) -> None:
    with pytest.raises(BadInput, match=f"step {step} does not exist: the run has steps 1 to 100"):
        show_step(corpus, recipe_for(corpus, 8), step)


def test_a_document_is_followed_to_every_step_that_trains_on_it(corpus: Corpus) -> None:
    recipe = recipe_for(corpus, 8, 4, weights=[0.5, 0.5], steps=30)
    feed = Feed(corpus, recipe)
    found = trainings(corpus, recipe, [("a", 1), ("b", 3)])
    for (source, document), trained in found.items():
        spans = [
            (step, span.sample, span.epoch, span.start, span.stop)
            for step in range(1, 31)
            for span in feed.spans(step)
            if (span.source, span.document) == (source, document)
        ]
        assert spans
        assert [(one.step, one.sample, one.epoch, one.start, one.stop) for one in trained] == spans


@pytest.mark.parametrize(
    ("wanted", "text", "is_there"),
    [
        ("beginning", "in the Beginning was", True),
        ("begin", "in the beginning", False),
        ("the beginning", "in the\n  beginning", True),
        ("玄黄", "天地玄黄", True),
        ("C++", "written in C++.", True),
        ("/be.in/", "begin", True),
        ("/be.in/", "BEGIN", False),
        ("a.b", "axb", False),
    ],
)
def test_words_are_found_as_words_and_patterns_between_slashes(wanted: str, text: str, is_there: bool) -> None:
    assert (mention_pattern(wanted).search(text) is not None) is is_there


@pytest.mark.parametrize("wanted", ["", "  ", "/(/"])
def test_what_cannot_be_looked_for_is_refused(wanted: str) -> None:
    with pytest.raises(BadInput, match="--mentions"):
        mention_pattern(wanted)


def test_mentions_are_the_stretches_whose_own_text_has_them(corpus: Corpus) -> None:
    write_ledger(corpus)
    recipe = recipe_for(corpus, 16, 4, weights=[0.5, 0.5])
    whole = list(show_steps(corpus, recipe, range(1, 9), 100))
    for wanted in ("地玄", "beginning", "return"):
        pattern = mention_pattern(wanted)
        found = list(show_steps(corpus, recipe, range(1, 9), 100, pattern))
        assert [one.step for one in found] == list(range(1, 9))
        for every, some in zip(whole, found, strict=True):
            expected = [span for sample in every.samples for span in sample.spans if pattern.search(span.excerpt)]
            assert [span for sample in some.samples for span in sample.spans] == expected
            assert some.sequences == every.sequences
        assert any(one.samples for one in found)


def test_the_sequences_of_each_source_are_counted(corpus: Corpus) -> None:
    recipe = recipe_for(corpus, 8, 4, weights=[0.75, 0.25])
    assert show_step(corpus, recipe, 3).sequences == {"a": 3, "b": 1}
