"""From a recipe to a prepared corpus: read and clean, select, tokenise, write the ledger, publish.

Every stage leaves its result whole in a work folder and finds it there when the preparation is run again, so
a kill at any instant costs at most the piece of work under way and changes no byte of the outcome:

    <prepared>/.work-<fingerprint>/read/         one table and one file of texts for each unit of input
                                   selection     what became of each document
                                   tokens/       which splits are written
                                   corpus/       what becomes <prepared>/<fingerprint> by one rename
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import stoker
from stoker.data.against import earlier_corpora
from stoker.data.corpus import FORMAT, MANIFEST, Corpus
from stoker.data.enough_tokens import require_enough_tokens
from stoker.data.error_budget import ErrorBudget, require_few_faults
from stoker.data.executors import executor_of, worker_count, worker_memory
from stoker.data.fingerprint import Inputs, changed_files, take_inputs
from stoker.data.given_corpus import given_corpus
from stoker.data.ledger import Ledger
from stoker.data.ledger.description import OperatorNote, SourceNote
from stoker.data.ledger.falls import far_falls
from stoker.data.licences import licence_of
from stoker.data.more_memory import LACKED_MEMORY, attempt_of
from stoker.data.operators import operators_of
from stoker.data.published import bring, url_in
from stoker.data.publishing import TIMINGS, publish
from stoker.data.quality.shares import cuts_of
from stoker.data.reading.first_documents import require_text_fields
from stoker.data.reading.units import Unit, plan_units
from stoker.data.shards import Shard, token_dtype
from stoker.data.stages.candidates import Candidates
from stoker.data.stages.earlier import SIGNATURES, EarlierCorpora, write_signatures
from stoker.data.stages.read_and_clean import ReadUnit, after_death, read_unit, unit_file
from stoker.data.stages.reused_units import UNITS, ReusedUnits
from stoker.data.stages.select import Selection, select
from stoker.data.stages.tokenise import SPLITS, make_tokenizer, text_encoder, tokenise
from stoker.data.stages.warm_up import warm_up_before_forking
from stoker.data.stages.write_ledger import write_ledger
from stoker.data.tokenizer import TextEncoder
from stoker.durable_files import (
    explained_disk_errors,
    publish_folder,
    remove_partials,
    sha256_of_file,
    write_json,
)
from stoker.errors import BadInput, StokerError
from stoker.plural import counted, first_of
from stoker.progress import Progress
from stoker.recipe import Recipe
from stoker.recipe.loading import LoadedRecipe
from stoker.run_directory import locked_folder
from stoker.wording import size


def prepare(loaded: LoadedRecipe, progress: Progress) -> Corpus:
    """The prepared corpus of a recipe, made now if it is not there yet.

    The same input and recipe give the same bytes, whatever `data.workers` is. Raises `BadInput` when the
    input cannot make a corpus (nothing to read, too little text for a source or for the vocabulary, a fault
    under `on_error: stop`, another process preparing the same corpus) and `StokerError` when the disk refuses;
    run again, it goes on where it was.
    """
    given = given_corpus(loaded, progress)
    if given is not None:
        require_enough_tokens(given, loaded.recipe)
        return given
    with explained_disk_errors(loaded.prepared_folder):
        loaded.prepared_folder.mkdir(parents=True, exist_ok=True)
    inputs = _inputs(loaded, progress)
    final = loaded.prepared_folder / inputs.fingerprint
    lock = loaded.prepared_folder / f".lock-{inputs.fingerprint}"
    preparation = _Preparation(loaded, inputs, progress)
    url = url_in(loaded.recipe.data.prepared, inputs.fingerprint)
    if url is not None and not bring(url, final, progress):
        progress.say(f"preparing in {loaded.prepared_folder}, to be published at {url}")
    if not (final / MANIFEST).is_file():
        with locked_folder(loaded.prepared_folder, lock, "preparing a corpus"):
            if not (final / MANIFEST).is_file():  # another process may just have finished it
                shutil.rmtree(final, ignore_errors=True)  # a corpus without its manifest is no corpus
                if (changed := _changed_libraries(loaded.prepared_folder, inputs)) is not None:
                    progress.say(f"the corpus is prepared anew, since text may come out otherwise: {changed}")
                preparation.run(final)
    elif preparation.work.exists():  # killed between publishing and sweeping, or doing so just now
        with suppress(BadInput), locked_folder(loaded.prepared_folder, lock, "sweeping"):
            shutil.rmtree(preparation.work, ignore_errors=True)
    corpus = Corpus.open(final)
    require_few_faults(loaded.recipe.data, corpus)
    require_enough_tokens(corpus, loaded.recipe)
    if url is not None and publish(final, url, progress):
        progress.say(f"published: {url}")
    if without := _without_held_out(corpus):
        progress.say(
            f"nothing is held out of {first_of(without)}, so evaluations have no text of "
            f"{'it' if len(without) == 1 else 'these'} to score; raise data.held_out for that"
        )
    return corpus


def _inputs(loaded: LoadedRecipe, progress: Progress) -> Inputs:
    """The input, under the fingerprint of the corpus that is to be had of it with the memory that there is."""
    inputs = take_inputs(loaded, _workers(loaded.recipe), progress)
    folder, first = loaded.prepared_folder, inputs.fingerprint
    if (url := url_in(loaded.recipe.data.prepared, first)) is not None:
        bring(url, folder / first, progress)
    memory = worker_memory(loaded.recipe.data)
    fingerprint = attempt_of(folder, first, memory)
    if fingerprint != attempt_of(folder, first):
        progress.say(
            f"documents that lacked memory are tried again, in another corpus: a worker may take {size(memory)} now"
        )
    return replace(inputs, fingerprint=fingerprint)


def _changed_libraries(prepared: Path, inputs: Inputs) -> str | None:
    """What changed since the same recipe and input were prepared with other libraries; None if they were not.

    Of several such corpora the one that was prepared last counts.
    """
    found: list[tuple[int, dict[str, str]]] = []
    for path in prepared.glob(f"[0-9a-f]*/{MANIFEST}"):
        with suppress(OSError, ValueError, RecursionError):  # another program's file, or swept just now
            manifest = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(manifest, dict) or not isinstance(manifest.get("libraries"), dict):
                continue
            if manifest.get("without_libraries") == inputs.without_libraries:
                found.append((path.stat().st_mtime_ns, manifest["libraries"]))
    if not found:
        return None
    _, earlier = max(found, key=lambda one: one[0])
    versions = [
        (name, earlier.get(name, "none"), inputs.libraries.get(name, "none"))
        for name in sorted({*earlier, *inputs.libraries})
    ]
    return ", ".join(f"{name} {was} is now {now}" for name, was, now in versions if was != now) or None


def _without_held_out(corpus: Corpus) -> list[str]:
    return [one["name"] for one in corpus.manifest["sources"] if not one["splits"]["held_out"]["documents"]]


def _workers(recipe: Recipe) -> int:
    return worker_count(recipe.data.workers)


class _Preparation:
    """One preparation under its lock."""

    def __init__(self, loaded: LoadedRecipe, inputs: Inputs, progress: Progress) -> None:
        self._loaded, self._recipe, self._inputs, self._progress = loaded, loaded.recipe, inputs, progress
        self.work = loaded.prepared_folder / f".work-{inputs.fingerprint}"
        self._read, self._corpus = self.work / "read", self.work / "corpus"
        self._selection = self.work / "selection"
        self._lacked: list[int] = []
        """Bytes of memory that were too few for documents of one unit and another."""
        self._seconds: dict[str, float] = {}
        self._cpu_seconds: dict[str, float] = {}

    def run(self, final: Path) -> None:
        """All stages, each skipped as far as it is done; ends with the rename to `final`."""
        warm_up_before_forking(self._recipe.data.deduplication)
        self._executor = executor_of(self._recipe.data)
        try:
            with explained_disk_errors(self.work):
                for folder in (self._read, self.work / "tokens", self._corpus / "tokenizer"):
                    folder.mkdir(parents=True, exist_ok=True)
                self._remove_partials()
                self._stages(final)
        except StokerError:
            self._remove_partials()  # of workers that were ended in the middle of a file
            raise
        shutil.rmtree(self.work, ignore_errors=True)

    def _remove_partials(self) -> None:
        for folder in [self.work, *(path for path in self.work.rglob("*") if path.is_dir())]:
            remove_partials(folder)

    def _stages(self, final: Path) -> None:
        if self._recipe.data.on_error == "stop":
            given = [(source, [file for file, _ in files]) for source, files in self._inputs.files]
            require_text_fields(given, self._recipe.data.cleaning.maximum_document_bytes)
        units = plan_units(self._inputs.files)
        with self._timed("read and clean"):
            self._read_and_clean(units)
        candidates = Candidates(self._read, units)
        with self._timed("select"):
            selection = self._selected(candidates)
            candidates = candidates.with_edits(selection.edits)
        with self._timed("train the tokenizer"):
            encoder = self._tokenizer(candidates, selection)
        with self._timed("tokenise"):
            shards = tokenise(
                candidates,
                selection,
                self._recipe.tokenizer,
                self._corpus,
                self.work / "tokens",
                self._recipe.data.shard_tokens,
                self._executor,
                self._progress,
            )
        with self._timed("write the ledger"):
            write_ledger(
                self._read, units, self._notes(), candidates, selection, shards, self._corpus, self._progress
            )
        manifest = self._manifest(candidates, selection, shards, encoder)
        if self._lacked:
            manifest[LACKED_MEMORY] = min(self._lacked)
        if (settings := self._recipe.data.deduplication).keep_signatures:
            trained = selection.of(SPLITS["train"])
            manifest[SIGNATURES] = write_signatures(candidates, trained, settings, self._corpus)
        write_json(self._corpus / MANIFEST, manifest)
        write_json(self._corpus / TIMINGS, self._timings(units, candidates))
        publish_folder(self._corpus, final)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start, cpu = time.perf_counter(), time.process_time() + self._executor.cpu_seconds
        yield
        self._seconds[stage] = round(time.perf_counter() - start, 3)
        self._cpu_seconds[stage] = round(time.process_time() + self._executor.cpu_seconds - cpu, 3)

    def _timings(self, units: Sequence[Unit], candidates: Candidates) -> dict[str, Any]:
        """Seconds by the clock and of all processors of each stage in this run of it; the bytes that it took in."""
        texts = int(candidates.bytes.sum())
        sizes = {"read and clean": sum(unit.size for unit in units), "select": texts, "tokenise": texts}
        return {"seconds": self._seconds, "cpu_seconds": self._cpu_seconds, "bytes": sizes}

    def _notes(self) -> list[SourceNote]:
        """What the documents of each source went through, for the ledger."""
        data = self._recipe.data
        cleaning = data.cleaning.located(self._loaded.folder)
        return [
            SourceNote(
                source.name,
                source.kind,
                source.language,
                tuple(OperatorNote.of(one) for one in operators_of(source, cleaning)),
            )
            for source in data.sources
        ]

    def _read_and_clean(self, units: Sequence[Unit]) -> None:
        data = self._recipe.data
        stop, cleaning = data.on_error == "stop", data.cleaning.located(self._loaded.folder)
        limits = data.deduplication, stop, self._read, data.document_seconds
        memory = worker_memory(data)
        more = None if self._selection.is_file() else memory  # which goes by the units as they are
        jobs = [ReadUnit(unit, cleaning, *limits, more_memory=more) for unit in units]
        units_folder = self._loaded.prepared_folder / UNITS
        reused = ReusedUnits(units_folder, self._inputs, memory) if data.reuse else None
        if reused is not None and (taken := reused.take(units, self._read)):
            self._progress.say(
                f"{taken} of {counted(len(units), 'parts')} of the input are as an earlier corpus left them"
            )
        sizes = Counter[str]()
        for unit in units:
            sizes[unit.source.name] += unit.size
        budget = ErrorBudget(data, sizes)
        before = {unit.number for unit in units if unit_file(self._read, unit.number, "parquet").is_file()}
        with self._progress.task("read and clean", sizes.total(), "bytes") as task:
            for unit, found in zip(units, self._executor.in_order(read_unit, jobs, after_death), strict=True):
                (task.skip if unit.number in before else task.advance)(found.size)
                budget.add(unit.source.name, found)
                self._lacked += [] if found.lacked_memory is None else [found.lacked_memory]
        if changed := changed_files(self._inputs):
            # Nobody knows of what state of these files the tables are.
            shutil.rmtree(self.work, ignore_errors=True)
            raise StokerError(
                f"{len(changed)} input files changed while they were read, such as {changed[0]}; "
                "run the same command again when nothing writes to them"
            )
        if reused is not None:
            reused.keep(units, self._read)

    def _selected(self, candidates: Candidates) -> Selection:
        path = self._selection
        with self._progress.task("remove duplicates", len(candidates), "documents") as task:
            if not path.is_file():
                select(candidates, self._recipe.data, self.work, self._earlier()).write(path)
            task.advance(len(candidates))
        return Selection.read(path)

    def _earlier(self) -> EarlierCorpora | None:
        """The corpora that this one is held against, if any."""
        corpora = earlier_corpora(self._loaded, self._progress)
        return EarlierCorpora(corpora, self._recipe.data.deduplication, self.work) if corpora else None

    def _tokenizer(self, candidates: Candidates, selection: Selection) -> TextEncoder:
        settings, path = self._recipe.tokenizer, self._corpus / "tokenizer" / "tokenizer.json"
        if not len(selection.of(SPLITS["train"])):
            raise BadInput(_nothing_left(self._loaded, candidates))
        with self._progress.task("train the tokenizer", None, "") as task:
            if not path.is_file():
                given = None if settings.path is None else self._loaded.resolve(settings.path)
                make_tokenizer(candidates, selection, settings, given, path)
            task.advance()
        return text_encoder(path, settings)

    def _manifest(
        self,
        candidates: Candidates,
        selection: Selection,
        shards: dict[str, dict[str, list[Shard]]],
        encoder: TextEncoder,
    ) -> dict[str, Any]:
        settings, ledger = self._recipe.tokenizer, Ledger(self._corpus)
        sources = []
        for source in self._recipe.data.sources:
            splits = {}
            for split, verdict in SPLITS.items():
                own = selection.of(verdict)
                own = own[candidates.sources[own] == candidates.names.index(source.name)]
                written = shards[source.name][split]
                splits[split] = {
                    "documents": len(own),
                    "tokens": sum(shard["tokens"] for shard in written),
                    "bytes": int(candidates.bytes[own].sum()),
                    "characters": int(candidates.characters[own].sum()),
                    "shards": written,
                }
            sources.append(
                {
                    "name": source.name,
                    "kind": source.kind,
                    "language": source.language,
                    "licence": licence_of(source),
                    "splits": splits,
                }
            )
        return {
            "format": FORMAT,
            "fingerprint": self._inputs.fingerprint,
            "stoker_version": stoker.__version__,
            "libraries": self._inputs.libraries,
            "without_libraries": self._inputs.without_libraries,
            "tokenizer": {
                "sha256": sha256_of_file(self._corpus / "tokenizer" / "tokenizer.json"),
                "vocabulary_size": encoder.vocabulary_size,
                "bos_id": encoder.bos_id,
                "eos_id": encoder.eos_id,
                "adds_bos": settings.add_bos,
                "adds_eos": settings.add_eos,
                "encoded_by": encoder.encoded_by,
            },
            "dtype": token_dtype(encoder.vocabulary_size),
            "sources": sources,
            "funnel": ledger.funnel(),
            "shares_dropped": [cut.as_json() for cut in cuts_of(candidates, self._recipe.data.cleaning)],
            "falls": far_falls(ledger.summary(), ledger.description, ledger.cuts()),
        }


def _nothing_left(loaded: LoadedRecipe, candidates: Candidates) -> str:
    return (
        f"no document is left to train on: {len(candidates)} passed reading, cleaning and filters, and none "
        f"is in the training split. Check data.sources in {loaded.path} (paths, `format`, `text_field`) and "
        "data.cleaning"
    )
