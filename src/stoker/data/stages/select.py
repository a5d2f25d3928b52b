"""Second stage: which candidates are held out, too poor, or repeat others, and which are trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stoker.data.deduplication import Duplicates, exact_duplicates, near_duplicates, near_others
from stoker.data.deduplication.components import components, groups
from stoker.data.deduplication.edits import Edits
from stoker.data.deduplication.host_furniture import host_furniture
from stoker.data.deduplication.passages import repeated_passages
from stoker.data.deduplication.preference import ranks
from stoker.data.deduplication.substrings import repeated_substrings
from stoker.data.minhash import token_hashes
from stoker.data.quality.shares import REASONS, cuts_of
from stoker.data.stages.candidates import Candidates, Integers, first_number
from stoker.data.stages.earlier import EarlierCorpora, Matches, joined_matches
from stoker.data.stages.spoilt import spoilt
from stoker.data.synthetic.share import OVER_SHARE, over_share
from stoker.durable_files import durable_file
from stoker.recipe import Data, Deduplication

VERDICTS = (
    "train",
    "held_out",
    "exact_duplicate",
    "near_duplicate",
    "held_out_exact_duplicate",
    "held_out_near_duplicate",
    "held_out_near_training_text",
    "repeated_passages",
    "in_earlier_corpus",
    *REASONS,
    OVER_SHARE,
)
"""What can become of a candidate; all but the first two are reasons for dropping it."""
TRAIN, HELD_OUT = 0, 1
_PREFIX = {TRAIN: "", HELD_OUT: "held_out_"}
_GROUP = 1 << 14
"""Documents that may resemble one another which are compared at a time."""
_SMALLEST_SPLIT_SOURCE = 10
"""A source of at least this many documents always has one held out (if any are)."""


@dataclass(frozen=True)
class Selection:
    """What became of each candidate; arrays of shape [candidates]."""

    verdict: npt.NDArray[np.int8]
    """Index into `VERDICTS`."""
    duplicate_of: Integers
    """Candidate that a removed one repeats, -1 otherwise."""
    similarity: npt.NDArray[np.float64]
    """Jaccard similarity with it, NaN otherwise."""
    edits: tuple[Edits, ...] = ()
    """Passages cut out of what is trained on, one search after another."""
    earlier: Matches = field(default_factory=Matches.none)
    """What repeats documents of earlier corpora."""

    def of(self, verdict: int) -> Integers:
        """Candidates with a verdict, in order."""
        return np.flatnonzero(self.verdict == verdict)

    def write(self, path: Path) -> None:
        """Write to `path`, whole or not at all."""
        with durable_file(path) as stream:
            for array in (self.verdict, self.duplicate_of, self.similarity, np.asarray(len(self.edits))):
                np.save(stream, array)
            for edits in self.edits:
                edits.write(stream)
            self.earlier.write(stream)

    @classmethod
    def read(cls, path: Path) -> Selection:
        """What `write` wrote. Raises `StokerError` for anything else."""
        try:
            with open(path, "rb") as stream:
                verdict, duplicate_of, similarity, edits = (np.load(stream) for _ in range(4))
                passages = tuple(Edits.read(stream) for _ in range(int(edits)))
                return cls(verdict, duplicate_of, similarity, passages, Matches.read(stream))
        except (ValueError, EOFError) as error:
            raise spoilt(path, path.parent, str(error).split("\n")[0] or "it is cut short") from None


def select(candidates: Candidates, data: Data, folder: Path, earlier: EarlierCorpora | None = None) -> Selection:
    """Hold out, drop what is too poor, remove repetitions across sources, then clean what is held out.

    Held-out documents are chosen before anything is removed, so that no choice of what to keep can move
    text between the splits, and one text is on one side only. What resembles a document of an `earlier` corpus goes
    first. `folder` takes temporary files. Raises `BadInput` when the measure that decides what is kept does not
    exist.
    """
    count = len(candidates)
    verdict = np.zeros(count, np.int8)
    verdict[_held_out(candidates, data.held_out)] = HELD_OUT
    for cut in cuts_of(candidates, data.cleaning):
        verdict[cut.dropped[verdict[cut.dropped] <= HELD_OUT]] = VERDICTS.index(cut.reason)
    selection = Selection(verdict, np.full(count, -1, np.int64), np.full(count, np.nan))
    settings = data.deduplication
    quality = None if settings.quality is None else candidates.measure(settings.quality)
    preferred = ranks(settings, candidates.contents, candidates.characters, quality)
    if settings.exact:
        for split in (TRAIN, HELD_OUT):
            documents = selection.of(split)
            found = exact_duplicates(candidates.contents[documents], preferred[documents])
            _mark(selection, found, f"{_PREFIX[split]}exact_duplicate", documents, documents)
    if settings.near or len(selection.of(HELD_OUT)) or earlier is not None:
        matches = _remove_near(candidates, selection, settings, preferred, folder, earlier)
        selection = replace(selection, earlier=matches)
    verdict[over_share(candidates, selection.of(TRAIN), data)] = VERDICTS.index(OVER_SHARE)
    selection = _without_host_furniture(candidates, selection, settings, folder)
    if settings.cuts_passages:
        return _without_repeated_passages(candidates, selection, settings, preferred, folder)
    return selection


def _held_out(candidates: Candidates, share: float) -> Integers:
    """Candidates whose draw falls below the share; of a source the lowest one if none does.

    The draw is of the text as it was read, so that no setting of cleaning moves a document between the splits. Of
    documents that cleaning makes equal the lowest draw counts for all: one text is on one side only.
    """
    if share <= 0 or not len(candidates):
        return np.empty(0, np.int64)
    _, text = np.unique(first_number(candidates.contents), return_inverse=True)
    lowest_of_text = np.full(int(text.max()) + 1, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(lowest_of_text, text, candidates.draws)
    drawn = lowest_of_text[text]
    threshold = np.uint64(int(share * 2**64))
    chosen = drawn < threshold
    for source in range(len(candidates.names)):
        own = candidates.sources == source
        if not (chosen & own).any() and own.sum() >= _SMALLEST_SPLIT_SOURCE:
            lowest = drawn[own].min()
            if (drawn[own] != lowest).any():  # else all its texts are one and the same
                chosen |= own & (drawn == lowest)
    return np.flatnonzero(chosen)


def _remove_near(
    candidates: Candidates,
    selection: Selection,
    settings: Deduplication,
    preferred: Integers,
    folder: Path,
    earlier: EarlierCorpora | None,
) -> Matches:
    """Mark what resembles other documents, a group of those that may do so at a time; returns the earlier ones."""
    documents = np.flatnonzero(selection.verdict <= HELD_OUT)
    count = len(documents)

    def read(places: Integers) -> npt.NDArray[np.uint32]:
        own = candidates.signatures(documents[places[places < count]], settings)
        if earlier is None or len(own) == len(places):
            return own
        both = np.empty((len(places), settings.permutations), np.uint32)
        both[places < count], both[places >= count] = own, earlier.signatures(places[places >= count] - count)
        return both

    total = count + (0 if earlier is None else len(earlier))
    order = np.concatenate([preferred[documents], len(candidates) + np.arange(count, total)])
    matches = [Matches.none()]
    for places in groups(components(read, total, settings, folder), order, _GROUP):
        group = documents[places[places < count]]
        if earlier is not None:
            matches.append(
                _in_earlier(candidates, selection, settings, group, earlier, places[places >= count] - count)
            )
        _remove_near_of_group(candidates, selection, settings, group[selection.verdict[group] <= HELD_OUT])
    return joined_matches(matches)


def _in_earlier(
    candidates: Candidates,
    selection: Selection,
    settings: Deduplication,
    group: Integers,
    earlier: EarlierCorpora,
    places: Integers,
) -> Matches:
    """Mark documents of a group that resemble one of some `places` of earlier corpora."""
    found = near_others(
        candidates.encoded_texts(group),
        earlier.texts(places),
        settings,
        candidates.signatures(group, settings),
        earlier.signatures(places),
    )
    found = Duplicates(found.index, places[found.duplicate_of], found.similarity)
    removed = group[found.index]
    selection.verdict[removed] = VERDICTS.index("in_earlier_corpus")
    selection.similarity[removed] = found.similarity
    return earlier.matches(group, found)


def _remove_near_of_group(
    candidates: Candidates, selection: Selection, settings: Deduplication, group: Integers
) -> None:
    """Mark near-duplicates within each split, and what is held out and resembles what is left to train on."""
    if settings.near:
        for split in (TRAIN, HELD_OUT):
            own = group[selection.verdict[group] == split]
            found = near_duplicates(candidates.encoded_texts(own), settings, candidates.signatures(own, settings))
            _mark(selection, found, f"{_PREFIX[split]}near_duplicate", own, own)
    training, held_out = (group[selection.verdict[group] == split] for split in (TRAIN, HELD_OUT))
    if len(training) and len(held_out):
        found = near_others(
            candidates.encoded_texts(held_out),
            candidates.encoded_texts(training),
            settings,
            candidates.signatures(held_out, settings),
            candidates.signatures(training, settings),
        )
        _mark(selection, found, "held_out_near_training_text", held_out, training)


def _without_host_furniture(
    candidates: Candidates, selection: Selection, settings: Deduplication, folder: Path
) -> Selection:
    """Cut what recurs on the pages of a host out of prose, whether it is trained on or held out."""
    if settings.host_furniture == "off":
        return selection
    hosts = candidates.hosts()
    if settings.host_furniture == "hosts_and_sources":
        hosts = np.where(hosts == 0, candidates.sources.astype(np.uint64) + np.uint64(1), hosts)
    prose = np.asarray([kind == "prose" for kind in candidates.kinds])
    documents = np.flatnonzero((selection.verdict <= HELD_OUT) & (hosts != 0) & prose[candidates.sources])
    edits = host_furniture(documents, hosts[documents], candidates.encoded, folder)
    if not len(edits.documents):
        return selection
    _drop_emptied(candidates.with_edits([edits]), selection, edits.documents)
    return replace(selection, edits=(edits,))


def _drop_emptied(left: Candidates, selection: Selection, documents: Integers) -> None:
    """Mark those documents of which what is `left` has no token."""
    for document in documents.tolist():
        if not len(token_hashes(left.text(document))):
            selection.verdict[document] = VERDICTS.index("repeated_passages")


def _without_repeated_passages(
    candidates: Candidates, selection: Selection, settings: Deduplication, preferred: Integers, folder: Path
) -> Selection:
    """Cut repeated passages out of what is trained on; a document that has no token left then is dropped."""
    training = selection.of(TRAIN)
    of_kind = np.asarray([kind in settings.passages_of for kind in candidates.kinds])
    documents = training[of_kind[candidates.sources[training]]]
    documents = documents[np.argsort(preferred[documents])]
    edits = list(selection.edits)
    left = candidates.with_edits(edits)
    for search in _searches(documents, settings, folder):
        edits.append(search(left))
        left = candidates.with_edits(edits)
    _drop_emptied(left, selection, np.unique(np.concatenate([one.documents for one in edits])))
    return replace(selection, edits=tuple(edits))


def _searches(
    documents: Integers, settings: Deduplication, folder: Path
) -> Iterator[Callable[[Candidates], Edits]]:
    """The searches for passages that the recipe wants, in their order, each over what the one before left."""
    if (paragraphs := settings.paragraph_copies) is not None:
        least = settings.paragraph_characters
        yield lambda left: repeated_passages(documents, left.encoded, "paragraphs", paragraphs, least, folder)
    if (lines := settings.line_copies) is not None:
        shortest = settings.line_characters
        yield lambda left: repeated_passages(documents, left.encoded, "lines", lines, shortest, folder)
    if (length := settings.substring_bytes) is not None:
        yield lambda left: repeated_substrings(documents, left.encoded, length, folder)


def _mark(selection: Selection, found: Duplicates, reason: str, documents: Integers, originals: Integers) -> None:
    removed = documents[found.index]
    selection.verdict[removed] = VERDICTS.index(reason)
    selection.duplicate_of[removed] = originals[found.duplicate_of]
    selection.similarity[removed] = found.similarity
