"""A document that ends its worker every time is found, named and left out; everything else is as without it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from stoker.data.executors import WorkerDied
from stoker.data.ledger import Ledger
from stoker.data.prepare import prepare
from stoker.data.prepared import find_prepared
from stoker.data.reading.units import plan_units
from stoker.data.stages.read_and_clean import ReadUnit, after_death, lacked_memory, read_unit, unit_file
from stoker.data.stages.watch import Limits, Place, Watch, noted_place
from stoker.errors import BadInput, StokerError
from stoker.progress import Silent
from stoker.recipe import Cleaning, Deduplication, Source
from stoker.recipe.loading import LoadedRecipe
from tests.data.executors.poison import WORDS, poisoned_workers
from tests.data.reading.web_archives import archive, page, record
from tests.data.small_corpus import folder_bytes, sentence, small_recipe

LIMITS = ("data.document_seconds=2", "data.worker_memory_gb=3", "data.worker_idle_seconds=4", "data.on_error=stop")


def write_documents(path: Path, poison: tuple[str, ...], count: int = 60) -> dict[str, int]:
    """A file of JSON lines with one document for each word of `poison`; the lines these are in."""
    draw = random.Random(3)
    texts = [sentence(draw) for _ in range(count)]
    lines = dict(zip(poison, sorted(draw.sample(range(count), len(poison))), strict=True))
    for word, line in lines.items():
        texts[line] += f" {word}"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return {word: line + 1 for word, line in lines.items()}


@pytest.fixture
def poison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in poisoned_workers(tmp_path / "site").items():
        monkeypatch.setenv(name, value)
    # A worker that is forked has no fresh Python, in which alone words are poison.
    monkeypatch.setattr("stoker.data.executors.local.nursery", lambda _: None)


@pytest.mark.worker_processes
@pytest.mark.parametrize(("workers", "words"), [(1, ("segmentation", "waiting")), (2, WORDS)])
@pytest.mark.usefixtures("poison")
def test_documents_that_end_their_worker_are_named_and_the_rest_is_trained_on(
    tmp_path: Path, workers: int, words: tuple[str, ...]
) -> None:
    lines = write_documents(tmp_path / "a.jsonl", words)
    loaded = small_recipe(
        tmp_path, *LIMITS, f"data.workers={workers}", sources=[{"name": "only", "paths": ["a.jsonl"]}]
    )
    ledger = Ledger(prepare(loaded, Silent()).folder)
    rows = ledger.rows().filter(pl.col("verdict") == "fault").collect()
    assert dict(zip(rows["position"], rows["reason"], strict=True)) == dict.fromkeys(
        (f"line {line}" for line in lines.values()), "poisoned"
    )
    told = dict(zip(rows["position"], rows["detail"], strict=True))
    for word, why in [
        ("segmentation", "cleaned and filtered, a worker process was ended by SIGSEGV"),
        ("memory", "more memory than the 2.8 GiB that a worker may take"),
        ("endless", "a worker process ran out of time"),
        ("waiting", "cleaned and filtered, a worker process did nothing for 4 seconds"),
        ("exception", "KeyError in poisoned (sitecustomize.py): 'no such key'"),
        ("signature", "signed for the search for duplicates, a worker process was ended by SIGSEGV"),
    ]:
        assert word not in words or why in told[f"line {lines[word]}"]
    assert ledger.rows().filter(pl.col("verdict") != "fault").collect().height == 60 - len(words)


@pytest.mark.usefixtures("poison")
def test_what_is_left_of_a_poisoned_file_has_the_bytes_it_has_without_the_poison(tmp_path: Path) -> None:
    for name, word in (("with", "segmentation"), ("without", "harmless")):
        (tmp_path / name).mkdir()
        line = write_documents(tmp_path / name / "a.jsonl", (word,))[word]
        if name == "without":
            lines = (tmp_path / name / "a.jsonl").read_text().splitlines(keepends=True)
            lines[line - 1] = '{"other": "no text"}\n'
            (tmp_path / name / "a.jsonl").write_text("".join(lines))
    source = [{"name": "only", "paths": ["a.jsonl"]}]
    corpora = [
        prepare(small_recipe(tmp_path / name, "data.workers=2", sources=source), Silent())
        for name in ("with", "without")
    ]
    tokens = [
        {name: content for name, content in folder_bytes(corpus.folder).items() if name.startswith("tok")}
        for corpus in corpora
    ]
    assert tokens[0] == tokens[1]


@pytest.mark.worker_processes
@pytest.mark.usefixtures("poison")
def test_a_page_that_ends_its_worker_costs_no_page_behind_it(tmp_path: Path) -> None:
    draw = random.Random(4)
    pages = [sentence(draw) + " extraction" * (number in (3, 8)) for number in range(12)]
    records = [record(page(text.encode()), number) for number, text in enumerate(pages)]
    (tmp_path / "a.warc.gz").write_bytes(archive(*records))
    source = [{"name": "only", "paths": ["a.warc.gz"]}]
    ledger = Ledger(prepare(small_recipe(tmp_path, *LIMITS, sources=source), Silent()).folder)
    rows = ledger.rows().collect()
    poisoned = rows.filter(pl.col("reason") == "poisoned")
    assert [place.split(",")[0] for place in poisoned["position"]] == ["record 4", "record 9"]
    assert all("taken out of its page, a worker process was ended by SIGSEGV" in why for why in poisoned["detail"])
    assert rows["verdict"].is_in(["kept", "held_out"]).sum() == 10


@pytest.mark.usefixtures("poison")
def test_poisoned_documents_beyond_the_budget_end_the_preparation(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"{sentence(random.Random(n))} exception"}) for n in range(11)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    loaded = small_recipe(tmp_path, "data.workers=2", sources=[{"name": "only", "paths": ["a.jsonl"]}])
    with pytest.raises(BadInput, match=r"error_budget \(0.10%, and always 10\): 11 poisoned \(the first: a.jsonl"):
        prepare(loaded, Silent())


@pytest.mark.worker_processes
@pytest.mark.usefixtures("poison")
def test_what_lacked_memory_is_tried_again_when_there_is_more(tmp_path: Path) -> None:
    """The word takes two gibibytes. A unit in which nothing lacked memory is not read again."""
    write_documents(tmp_path / "a.jsonl", ("half",), 20)
    draw = random.Random(4)
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps({"text": sentence(draw)}) for _ in range(20)))
    sources = [{"name": name, "paths": [f"{name}.jsonl"]} for name in "ab"]
    said: list[str] = []

    class Told(Silent):
        def say(self, line: str) -> None:
            said.append(line)

    def recipe(gigabytes: float) -> LoadedRecipe:
        settings = ("data.workers=1", "data.reuse=true", f"data.worker_memory_gb={gigabytes}")
        return small_recipe(tmp_path, *settings, sources=sources)

    short = prepare(recipe(2), Told())
    assert Ledger(short.folder).rows().filter(pl.col("reason") == "poisoned").collect().height == 1
    before = folder_bytes(short.folder)
    more = prepare(recipe(4), Told())
    assert Ledger(more.folder).rows().filter(pl.col("verdict") == "fault").collect().height == 0
    assert any("lacked memory are tried again" in line for line in said)
    assert "1 of 2 parts of the input are as an earlier corpus left them" in said
    assert folder_bytes(short.folder) == before, "a run may be trained on it"
    for gigabytes in (2, 4, 8):
        found = find_prepared(recipe(gigabytes))
        assert found is not None
        assert found.folder == more.folder, "every command finds what was made with more"


def unit_of(folder: Path) -> ReadUnit:
    write_documents(folder / "a.jsonl", ())
    source = Source(name="only", paths=("a.jsonl",))
    from stoker.data.reading.files import list_files

    (unit,) = plan_units([(source, [(file, 100) for file in list_files(source, folder)])])
    return ReadUnit(unit, Cleaning(), Deduplication(), True, folder)


def note(job: ReadUnit, place: Place) -> None:
    watch = Watch(unit_file(job.folder, job.unit.number, "note"), Limits(None, lambda _: None), dict(job.set_aside))
    watch.at(place, 0)
    watch.close()


def test_a_worker_that_dies_once_costs_no_document(tmp_path: Path) -> None:
    job, place = unit_of(tmp_path), Place(0, "judging", "line 7")
    note(job, place)
    again = after_death(job, WorkerDied("was ended by SIGKILL"), 1)
    assert again.suspect == place
    assert again.set_aside == ()


def test_a_place_where_workers_die_twice_is_set_aside(tmp_path: Path) -> None:
    job, place = unit_of(tmp_path), Place(0, "reading", "line 7")
    for deaths in (1, 2):
        note(job, place)
        job = after_death(job, WorkerDied("was ended by SIGKILL"), deaths)
    assert [set_aside for set_aside, _ in job.set_aside] == [place]
    assert job.suspect is None


@pytest.mark.parametrize(
    ("limits", "lacked"),
    [((None, None), None), ((5, 5), 5), ((None, 5), 5), ((5, None), None)],
)
def test_a_unit_knows_how_much_memory_was_too_little(
    tmp_path: Path, limits: tuple[int | None, int | None], lacked: int | None
) -> None:
    """The death counts over which the place is set aside."""
    job, place = unit_of(tmp_path), Place(0, "judging", "line 7")
    for deaths, limit in enumerate(limits, start=1):
        note(job, place)
        job = after_death(job, WorkerDied("died", limit), deaths)
    read_unit(job)
    assert lacked_memory(unit_file(tmp_path, 0, "parquet")) == lacked
    table = unit_file(tmp_path, 0, "parquet").read_bytes()
    assert read_unit(replace(job, set_aside=(), more_memory=5)).faults.get("poisoned") == 1, "no more than it had"
    again = read_unit(replace(job, set_aside=(), lacked_memory=None, more_memory=6))
    assert again.faults.get("poisoned", 0) == (lacked is None)
    assert (unit_file(tmp_path, 0, "parquet").read_bytes() == table) == (lacked is None)


def test_workers_that_die_at_one_place_after_another_end_the_preparation(tmp_path: Path) -> None:
    job = unit_of(tmp_path)
    death = WorkerDied("was ended by SIGKILL")
    for deaths in (1, 2, 3):
        note(job, Place(0, "judging", f"line {deaths}"))
        job = after_death(job, death, deaths)
        assert job.set_aside == ()
    note(job, Place(0, "judging", "line 4"))
    with pytest.raises(StokerError, match=r"was ended by SIGKILL, 4 times while it read a.jsonl"):
        after_death(job, death, 4)


def test_a_worker_that_dies_before_its_first_document_accuses_none(tmp_path: Path) -> None:
    job = unit_of(tmp_path)
    with pytest.raises(StokerError, match="no one document is the cause"):
        after_death(job, WorkerDied("ended with exit code 1"), 1)


@pytest.mark.parametrize("address", ["https://example.org/", "https://例え.jp/" + "長い" * 240])
def test_a_page_is_set_aside_however_long_its_address(tmp_path: Path, address: str) -> None:
    """Addresses of two pages may differ in their last letters alone."""
    job = unit_of(tmp_path)
    place, other = (Place(0, "judging", f"record 3, byte 9, {address}{end}") for end in "ab")
    for deaths in (1, 2):
        note(job, place)
        job = after_death(job, WorkerDied("was ended by SIGSEGV"), deaths)
    watch = Watch(tmp_path / "note", Limits(None, lambda _: None), dict(job.set_aside))
    assert watch.at(other, 0) is None
    assert "was ended by SIGSEGV" in (watch.at(place, 0) or "")


@pytest.mark.parametrize("position", ["", "line 7", "第 7 行", "file with\nline end", "x" * 600, "\udcff"])
def test_a_place_is_read_as_it_was_noted(tmp_path: Path, position: str) -> None:
    place = Place(3, "signing", position)
    watch = Watch(tmp_path / "note", Limits(None, lambda _: None), {})
    watch.at(Place(1, "reading", "a longer position than the one that follows"), 0)
    watch.at(place, 0)
    found = noted_place(tmp_path / "note")
    assert found is not None
    assert found == place or len(position) > 500
