"""From text to a prepared corpus: nothing lost, nothing twice, the same bytes every time."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from stoker.data.corpus import Corpus
from stoker.data.executors import processor_count
from stoker.data.executors.nursery import Nursery
from stoker.data.executors.worker import Worker, WorkerLimits
from stoker.data.fingerprint import take_inputs
from stoker.data.ledger import Ledger
from stoker.data.prepare import prepare
from stoker.data.prepared import find_prepared
from stoker.durable_files import sha256_of_file
from stoker.errors import BadInput, StokerError
from stoker.progress import Silent
from stoker.run_directory import locked_folder
from tests.data.small_corpus import folder_bytes, paragraph, sentence, small_recipe, write_text_files


def write_lines(path: Path, texts: list[str | None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def words(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [sentence(draw, 40) for _ in range(count)]


def one_source(path: str = "a.jsonl", **settings: Any) -> list[dict[str, Any]]:
    return [{"name": "only", "paths": [path], **settings}]


def decoded(corpus: Corpus, source: str, split: str) -> list[str]:
    tokenizer = Tokenizer.from_file(str(corpus.tokenizer_path))
    store = corpus.store(source, split)
    return [
        tokenizer.decode(store.document_tokens(index).tolist()[1:-1], skip_special_tokens=False)
        for index in range(store.document_count)
    ]


def test_every_document_is_in_the_ledger_and_the_funnel_adds_up(tmp_path: Path) -> None:
    write_text_files(tmp_path / "text")
    corpus = prepare(small_recipe(tmp_path), Silent())
    rows = Ledger(corpus.folder).rows().collect()
    english = rows.filter(source="english")
    assert english.height == 126
    (fault,) = english.filter(verdict="fault").to_dicts()
    assert fault["position"].startswith("line 11, byte ")
    assert fault["reason"] == "not_json"
    assert english.filter(reason="empty").height == 1
    assert english.filter(reason="exact_duplicate").height + english.filter(reason="near_duplicate").height >= 2
    for source in corpus.source_names:
        funnel = [entry for entry in corpus.manifest["funnel"] if entry["source"] == source]
        passed = [entry for entry in funnel if entry["stage"] not in ("read", "fault")]
        for measure in ("documents", "bytes"):
            assert funnel[0][measure] == sum(entry[measure] for entry in passed)
        for split, stage in (("train", "kept"), ("held_out", "held_out")):
            store = corpus.store(source, split)
            assert store.document_count == next(e["documents"] for e in funnel if e["stage"] == stage)
            own = rows.filter(source=source, split=split).sort("document")
            assert own["tokens"].to_list() == store.document_lengths.tolist()
            assert own["document"].to_list() == list(range(store.document_count))


def test_the_tokens_are_the_texts_with_one_mark_at_each_end(tmp_path: Path) -> None:
    write_text_files(tmp_path / "text")
    corpus = prepare(small_recipe(tmp_path), Silent())
    kept = Ledger(corpus.folder)
    for source, file, encoding in (("chinese", "chinese.txt", "gbk"),):
        lines = (tmp_path / "text" / file).read_text(encoding=encoding).split("\n")
        for split in ("train", "held_out"):
            texts = decoded(corpus, source, split)
            for index, text in enumerate(texts):
                row = kept.document(source, split, index)
                assert row is not None
                assert text == lines[int(row["position"].split()[1]) - 1]
    for source in corpus.source_names:
        store = corpus.store(source, "train")
        for index in range(store.document_count):
            tokens = store.document_tokens(index)
            assert tokens[0] == corpus.bos_id
            assert tokens[-1] == corpus.eos_id
            assert not np.isin(tokens[1:-1], [corpus.bos_id, corpus.eos_id]).any()
        assert (
            store.document_bytes.sum()
            == corpus.manifest["sources"][corpus.source_names.index(source)]["splits"]["train"]["bytes"]
        )


@pytest.mark.parametrize("workers", [2, 3])
def test_the_bytes_are_the_same_whatever_the_number_of_workers(tmp_path: Path, workers: int) -> None:
    for name in ("alone", "several"):
        write_text_files(tmp_path / name / "text")
    alone = prepare(small_recipe(tmp_path / "alone"), Silent())
    several = prepare(small_recipe(tmp_path / "several", f"data.workers={workers}"), Silent())
    assert alone.folder.name == several.folder.name
    assert folder_bytes(alone.folder) == folder_bytes(several.folder)


def test_a_file_cut_into_units_gives_the_same_bytes_on_several_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.data.reading.units.UNIT_BYTES", 40_000)
    monkeypatch.setattr("stoker.data.reading.units._SCAN", 10_000)
    draw = random.Random(3)
    lines = [f"{number} {paragraph(draw, 250)}" for number in range(300)]
    for name in ("alone", "several"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    source = one_source("a.txt", documents="line")
    alone = prepare(small_recipe(tmp_path / "alone", sources=source), Silent())
    several = prepare(small_recipe(tmp_path / "several", "data.workers=3", sources=source), Silent())
    assert len(list((alone.folder / "ledger").iterdir())) > 3
    assert folder_bytes(alone.folder) == folder_bytes(several.folder)
    positions = Ledger(alone.folder).rows().collect()["position"].to_list()
    assert positions == [f"line {number + 1}" for number in range(300)]


def test_a_second_preparation_reads_no_input_and_a_changed_input_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text_files(tmp_path / "text")
    for path in (tmp_path / "text").rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    loaded = small_recipe(tmp_path)
    assert find_prepared(loaded) is None
    first = prepare(loaded, Silent())
    with monkeypatch.context() as patch:
        patch.setattr("stoker.data.fingerprint.sha256_of_file", lambda path: pytest.fail(f"read {path} again"))
        assert prepare(loaded, Silent()).folder == first.folder
        found = find_prepared(loaded)
        assert found is not None
        assert found.folder == first.folder
    os.utime(tmp_path / "text" / "chinese.txt")
    assert prepare(loaded, Silent()).folder == first.folder
    with open(tmp_path / "text" / "chinese.txt", "ab") as stream:
        stream.write("\n另外一行".encode("gbk"))
    assert prepare(loaded, Silent()).folder != first.folder


def test_workers_weights_and_folders_are_not_in_the_fingerprint_but_settings_are(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", words(60))
    names = [
        prepare(small_recipe(tmp_path, *overrides, sources=one_source(weight=1)), Silent()).folder.name
        for overrides in (
            [],
            ["data.workers=2", "data.prepared=elsewhere", "data.sources.0.weight=3", "seed=5"],
            ["data.cleaning.minimum_characters=3"],
            ["tokenizer.vocabulary_size=301"],
            ["data.on_error=stop", "data.error_budget=0.5", "data.worker_memory_gb=2"],
        )
    ]
    assert names[0] == names[1]
    assert names[4] == names[0]
    assert len(set(names)) == 3


def test_another_version_of_a_library_that_decides_bytes_is_another_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path / "a.jsonl", words(10))
    asked: list[str] = []
    names = set()
    for script in ("keep", "simplified"):
        for release in ("1", "2"):
            monkeypatch.setattr(
                "stoker.data.fingerprint.version", lambda name, release=release: asked.append(name) or release
            )
            loaded = small_recipe(tmp_path, f"data.cleaning.script={script}", sources=one_source())
            names.add(take_inputs(loaded, 1, Silent()).fingerprint)
    assert len(names) == 4
    assert asked.count("opencc") == 2


@pytest.mark.parametrize("content", ["[]", "{}", '{"libraries": 3}', "[" * 100_000, "not json"])
def test_what_others_put_beside_corpora_stops_nothing(tmp_path: Path, content: str) -> None:
    write_lines(tmp_path / "a.jsonl", words(20))
    loaded = small_recipe(tmp_path, sources=one_source())
    other = loaded.prepared_folder / "another"
    other.mkdir(parents=True)
    (other / "manifest.json").write_text(content)
    assert prepare(loaded, Silent()).source_names == ("only",)
    assert (other / "manifest.json").read_text() == content


def test_one_text_is_on_one_side_only_and_an_earlier_source_keeps_it(tmp_path: Path) -> None:
    texts = words(80)
    write_lines(tmp_path / "a.jsonl", [*texts, *texts[:40]])
    write_lines(tmp_path / "b.jsonl", [*words(60, seed=9), *texts])
    sources = [{"name": "first", "paths": ["a.jsonl"]}, {"name": "second", "paths": ["b.jsonl"]}]
    corpus = prepare(small_recipe(tmp_path, sources=sources, held_out=0.2), Silent())
    found = {
        (source, split): decoded(corpus, source, split)
        for source in ("first", "second")
        for split in ("train", "held_out")
    }
    everything = [text for part in found.values() for text in part]
    assert sorted(everything) == sorted({*texts, *words(60, seed=9)})
    assert set(texts) == {*found["first", "train"], *found["first", "held_out"]}
    assert 5 < len(found["first", "held_out"]) < 40
    row = Ledger(corpus.folder).sample("exact_duplicate", 1)[0]
    assert row["duplicate_source"] == "first"
    assert row["duplicate_of"].startswith("a.jsonl:")
    assert row["similarity"] == 1.0


def test_held_out_text_that_nearly_repeats_training_text_is_removed(tmp_path: Path) -> None:
    texts = words(150)
    nearly = [f"{text} Yes" for text in texts]
    write_lines(tmp_path / "a.jsonl", [*texts, *nearly])
    corpus = prepare(small_recipe(tmp_path, sources=one_source(), held_out=0.3), Silent())
    train, held_out = (decoded(corpus, "only", split) for split in ("train", "held_out"))
    assert held_out
    bare = {text.removesuffix(" Yes") for text in train}
    assert not bare.intersection(text.removesuffix(" Yes") for text in held_out)
    removed = [e for e in corpus.manifest["funnel"] if e.get("reason") == "held_out_near_training_text"]
    assert removed[0]["documents"] > 10


def test_a_source_of_a_dozen_documents_has_one_held_out(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", words(12))
    corpus = prepare(small_recipe(tmp_path, sources=one_source(), held_out=1e-9), Silent())
    assert corpus.store("only", "held_out").document_count == 1
    assert corpus.store("only", "train").document_count == 11


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_empty_and_missing_texts_are_counted_and_the_job_ends_well(tmp_path: Path, place: str) -> None:
    empty = ['{"text": ""}', '{"text": " "}', '{"text": "\\n"}', '{"text": null}', '{"other": 1}']
    good = [json.dumps({"text": text}) for text in words(40)]
    index = {"first": 0, "middle": 20, "last": 40}[place]
    (tmp_path / "a.jsonl").write_text("\n".join(good[:index] + empty + good[index:]))
    corpus = prepare(small_recipe(tmp_path, sources=one_source()), Silent())
    counted = {(e["stage"], e.get("reason")): e["documents"] for e in corpus.manifest["funnel"]}
    assert counted["reading", "empty"] == 4
    assert counted["fault", "no_text_field"] == 1
    assert counted["read", None] == 44


def test_faults_are_skipped_and_named_or_stop_with_file_line_and_byte(tmp_path: Path) -> None:
    good = [json.dumps({"text": text}) for text in words(40)]
    (tmp_path / "a.jsonl").write_text("\n".join([*good[:2], '{"text": "half', *good[2:]]))
    byte = len(good[0]) + len(good[1]) + 2 + len('{"text": ')
    corpus = prepare(small_recipe(tmp_path, sources=one_source()), Silent())
    faults = Ledger(corpus.folder).sample("fault", 10)
    assert [(row["file"], row["position"], row["reason"]) for row in faults] == [
        ("a.jsonl", f"line 3, byte {byte}", "not_json")
    ]
    for workers in (1, 2):
        overrides = ("data.on_error=stop", f"data.workers={workers}")
        with pytest.raises(BadInput, match=f"a.jsonl, line 3, byte {byte}: not_json") as caught:
            prepare(small_recipe(tmp_path, *overrides, sources=one_source()), Silent())
        assert "data.sources[only]" in str(caught.value)


def test_names_of_special_tokens_inside_text_are_ordinary_text(tmp_path: Path) -> None:
    texts = [f"{text} <|begin_of_text|> and <|end_of_text|>" for text in words(40)]
    write_lines(tmp_path / "a.jsonl", [*texts])
    corpus = prepare(small_recipe(tmp_path, sources=one_source(), held_out=0), Silent())
    store = corpus.store("only", "train")
    tokens = store.read(0, store.token_count)
    assert (tokens == corpus.bos_id).sum() == store.document_count == 40
    assert (tokens == corpus.eos_id).sum() == 40
    assert decoded(corpus, "only", "train") == texts


def test_a_vocabulary_larger_than_the_text_supports_is_refused_and_another_size_goes_on(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [*words(60)])
    with pytest.raises(BadInput, match=r"supports only \d+ entries"):
        prepare(small_recipe(tmp_path, "tokenizer.vocabulary_size=50000", sources=one_source()), Silent())
    assert prepare(small_recipe(tmp_path, sources=one_source()), Silent()).vocabulary_size == 300


def test_a_source_with_less_than_a_sequence_is_named_every_time(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [*words(60)])
    write_lines(tmp_path / "b.jsonl", ["Hardly anything."])
    sources = [
        {"name": "large", "paths": ["a.jsonl"], "weight": 1},
        {"name": "tiny", "paths": ["b.jsonl"], "weight": 1},
    ]
    for _ in range(2):
        with pytest.raises(BadInput, match="`tiny` has ") as caught:
            prepare(small_recipe(tmp_path, sources=sources), Silent())
        assert "large" not in str(caught.value)
    prepare(small_recipe(tmp_path, "data.sources.1.weight=0", sources=sources), Silent())
    prepare(small_recipe(tmp_path, "training.sequence_length=4", sources=sources), Silent())


def test_text_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", ["", None, " "])
    with pytest.raises(BadInput, match="no document is left"):
        prepare(small_recipe(tmp_path, sources=one_source()), Silent())


def test_a_pattern_is_removed_before_cleaning(tmp_path: Path) -> None:
    draw = random.Random(4)
    lines = [" ".join(f"{character}/{draw.choice('nvw')} " for character in paragraph(draw)) for _ in range(40)]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    source = one_source("a.txt", documents="line", remove_pattern=r"/[a-z]+\s*", language="zh")
    corpus = prepare(small_recipe(tmp_path, sources=source, held_out=0), Silent())
    found = decoded(corpus, "only", "train")
    assert len(found) == 40
    assert not any("/" in text or " " in text for text in found)


def test_a_given_tokenizer_is_taken_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [*words(60)])
    trained = prepare(small_recipe(tmp_path, sources=one_source()), Silent())
    given = tmp_path / "given.json"
    given.write_bytes(trained.tokenizer_path.read_bytes())
    taken = prepare(small_recipe(tmp_path, "tokenizer.path=given.json", sources=one_source()), Silent())
    assert taken.folder != trained.folder
    assert decoded(taken, "only", "train") == decoded(trained, "only", "train")
    given.write_text("{}")
    with pytest.raises(BadInput, match=r"given\.json"):
        prepare(small_recipe(tmp_path, "tokenizer.path=given.json", sources=one_source()), Silent())
    with pytest.raises(BadInput, match=r"none\.json"):
        prepare(small_recipe(tmp_path, "tokenizer.path=none.json", sources=one_source()), Silent())


def test_two_preparations_of_one_corpus_exclude_each_other(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [*words(60)])
    loaded = small_recipe(tmp_path, sources=one_source())
    corpus = prepare(loaded, Silent())
    for path in sorted(corpus.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    corpus.folder.rmdir()
    prepared = loaded.prepared_folder
    with (
        locked_folder(prepared, prepared / f".lock-{corpus.folder.name}", "another preparation"),
        pytest.raises(BadInput, match="another preparation"),
    ):
        prepare(loaded, Silent())
    assert prepare(loaded, Silent()).folder == corpus.folder


def test_a_source_around_everything_does_not_read_what_was_prepared_before(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", list(words(40)))
    around = small_recipe(tmp_path, sources=one_source(".", format="text", documents="line"))
    first = prepare(around, Silent())
    assert prepare(around, Silent()).folder == first.folder
    within = f"prepared/{first.folder.name}/tokenizer"
    with pytest.raises(BadInput, match="belongs to a corpus that this recipe made itself"):
        prepare(small_recipe(tmp_path, sources=one_source(within, format="text")), Silent())


def test_a_corpus_is_looked_into_where_nothing_can_be_written(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", list(words(40)))
    loaded = small_recipe(tmp_path, sources=one_source())
    made = prepare(loaded, Silent())
    for name in (".hashes.json", ".lock.hashes.json"):
        (loaded.prepared_folder / name).unlink(missing_ok=True)
        (loaded.prepared_folder / name).mkdir()  # nobody can write such a file, not even root
    found = find_prepared(loaded)
    assert found is not None
    assert found.folder == made.folder
    assert prepare(loaded, Silent()).folder == made.folder


def test_a_file_that_changes_while_it_is_read_ends_the_preparation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stoker.data import prepare as module

    write_lines(tmp_path / "a.jsonl", [*words(60)])
    loaded = small_recipe(tmp_path, sources=one_source())
    read_unit = module.read_unit

    def read_and_change(job: Any) -> int:
        result = read_unit(job)
        write_lines(tmp_path / "a.jsonl", [*words(61)])
        return result

    with monkeypatch.context() as patch:
        patch.setattr(module, "read_unit", read_and_change)
        with pytest.raises(StokerError, match=r"changed while they were read, such as .*a\.jsonl"):
            prepare(loaded, Silent())
    assert prepare(loaded, Silent()).store("only", "train").document_count > 50


def test_the_manifest_tells_the_shards_and_holds_no_path_or_time_of_this_machine(tmp_path: Path) -> None:
    write_text_files(tmp_path / "text")
    corpus = prepare(small_recipe(tmp_path, shard_tokens=1024), Silent())
    assert str(tmp_path) not in (corpus.folder / "manifest.json").read_text()
    assert Corpus.open(corpus.folder, verify=True).folder == corpus.folder
    english = corpus.manifest["sources"][0]["splits"]["train"]
    assert len(english["shards"]) > 1
    for shard in english["shards"]:
        assert sha256_of_file(corpus.folder / shard["file"]) == shard["sha256"]
    assert json.loads((corpus.folder / "timings.json").read_text())["seconds"]["tokenise"] >= 0
    assert not [path for path in corpus.folder.parent.iterdir() if path.name.startswith(".work")]


def test_a_corpus_folder_that_lost_its_manifest_is_made_again(tmp_path: Path) -> None:
    write_text_files(tmp_path / "text")
    loaded = small_recipe(tmp_path)
    corpus = prepare(loaded, Silent())
    before = folder_bytes(corpus.folder)
    (corpus.folder / "manifest.json").unlink()
    assert folder_bytes(prepare(loaded, Silent()).folder) == before


def test_text_from_which_nothing_can_be_predicted_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [chr(ord("a") + i % 26) for i in range(200)])
    write_lines(tmp_path / "b.jsonl", [*words(60)])
    prepare(small_recipe(tmp_path, sources=[{"name": "long", "paths": ["b.jsonl"]}]), Silent())
    (tokenizer,) = (tmp_path / "prepared").glob("*/tokenizer/tokenizer.json")
    settings = {"cleaning": {"filters": False}, "deduplication": {"exact": False, "near": False}}
    source = [{"name": "letters", "paths": ["a.jsonl"]}]
    given = f"tokenizer.path={tokenizer}"
    bare = (given, "tokenizer.add_bos=false", "tokenizer.add_eos=false")
    with pytest.raises(BadInput, match=r"nothing can be learnt from source `letters`: .* single token"):
        prepare(small_recipe(tmp_path, *bare, sources=source, **settings), Silent())
    assert prepare(small_recipe(tmp_path, given, sources=source, **settings), Silent()).store("letters", "train")


def test_a_senseless_number_of_workers_starts_a_sensible_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    class Counted(Worker):
        def __init__(self, limits: WorkerLimits, home: Nursery | None) -> None:
            started.append(limits.memory)
            super().__init__(limits, home)

    monkeypatch.setattr("stoker.data.executors.local.Worker", Counted)
    write_text_files(tmp_path / "text")
    prepare(small_recipe(tmp_path, "data.workers=100000"), Silent())
    assert 0 < len(started) <= 2 * processor_count()
