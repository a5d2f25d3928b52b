from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stoker.data.feeding import Feed, MicroBatch, Span
from stoker.errors import BadInput
from stoker.recipe import Recipe
from tests.data.corpora import recipe_for
from tests.data.feeding.drawn import UniqueTokens, document_lengths, joined, same, unique_tokens

sequence_lengths = st.integers(2, 17)


def inputs_of(batches: list[MicroBatch]) -> list[int]:
    return [token for batch in batches for token in batch.tokens.flatten().tolist()]


@given(document_lengths, sequence_lengths, st.integers(1, 5), st.integers(0, 9))
def test_every_batch_predicts_next_tokens_within_documents_only(
    lengths: list[int], L: int, batch: int, seed: int
) -> None:
    assume(sum(lengths) >= L)
    with unique_tokens({"a": lengths}) as drawn:
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, L, batch, seed=seed))
        for step in [*range(1, 12), 10**6]:
            drawn.check(feed.global_batch(step))


@given(document_lengths, sequence_lengths, st.integers(1, 4), st.integers(0, 9))
def test_over_several_epochs_no_token_is_lost_or_doubled(
    lengths: list[int], L: int, epochs: int, seed: int
) -> None:
    total = sum(lengths)
    assume(total >= L)
    with unique_tokens({"a": lengths}) as drawn:
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, L, 1, seed=seed))
        sequences = math.ceil(epochs * total / L)
        spans = [span for step in range(1, sequences + 1) for span in feed.spans(step)]
        inputs = Counter((s.epoch, s.document, place) for s in spans for place in range(s.start, s.stop))
        assert max(inputs.values()) == 1
        whole = {(e, d, p) for e in range(epochs) for d, size in enumerate(lengths) for p in range(size)}
        assert whole <= inputs.keys()
        # Beyond them: only the head of the epoch into which the last sequence runs over.
        assert len(inputs) == sequences * L
        assert {epoch for epoch, _, _ in inputs} <= set(range(epochs + 1))
        tokens = Counter(inputs_of([feed.global_batch(step) for step in range(1, sequences + 1)]))
        assert set(tokens) == set(range(total))
        assert set(tokens.values()) <= {epochs, epochs + 1}


@given(document_lengths, sequence_lengths)
def test_whole_epochs_predict_every_next_token_equally_often(lengths: list[int], L: int) -> None:
    total = sum(lengths)
    assume(total >= L)
    with unique_tokens({"a": lengths}) as drawn:
        # After total sequences, L epochs have ended exactly at a sequence's end.
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, L, total, steps=1))
        batch = feed.global_batch(1)
        assert Counter(inputs_of([batch])) == dict.fromkeys(range(total), L)
        predicted = Counter(token for token in batch.targets.flatten().tolist() if token >= 0)
        firsts = {document[0] for document in drawn.documents("a") if document}
        assert predicted == {token: L for token in range(total) if token not in firsts}


def test_epochs_differ_in_the_order_of_documents_and_of_sequences() -> None:
    with unique_tokens({"a": [8] * 40}) as drawn:
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, 8, 40))
        orders = [[span.document for span in feed.spans(epoch)] for epoch in (1, 2, 3)]
        assert all(sorted(order) == list(range(40)) for order in orders)
        assert len({tuple(order) for order in orders}) == 3
        # Neither is the order of sequences that of the stream, nor the stream of one epoch that of another.
        streams = [feed._index.texts[0].streams[0].order(epoch).documents.tolist() for epoch in range(3)]
        assert orders[0] != streams[0]
        assert len({tuple(stream) for stream in streams}) == 3


def test_stopping_within_an_epoch_leaves_later_epochs_whole() -> None:
    with unique_tokens({"a": [8] * 10}) as drawn:
        recipe = recipe_for(drawn.corpus, 8, 2, steps=15)
        before = [Feed(drawn.corpus, recipe).spans(step) for step in range(1, 4)]
        after = [Feed(drawn.corpus, recipe).spans(step) for step in range(4, 16)]
        documents = Counter((span.epoch, span.document) for spans in before + after for span in spans)
        assert documents == {(epoch, document): 1 for epoch in range(3) for document in range(10)}


def test_resuming_on_an_epoch_boundary_yields_the_remaining_steps() -> None:
    with unique_tokens({"a": [8] * 10}) as drawn:
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, 8, 2, steps=15))
        with feed.steps(6, 15, 0, 1) as steps:
            assert [step for step, _ in steps] == list(range(6, 16))
        assert {span.epoch for span in feed.spans(5)} == {0}
        assert {span.epoch for span in feed.spans(6)} == {1}


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.integers(1, 12), min_size=3, max_size=6), min_size=2, max_size=3),
    st.integers(2, 6),
    st.data(),
)
def test_all_ranks_together_see_the_global_batch_at_any_world_size(
    lengths: list[list[int]], L: int, data: st.DataObject
) -> None:
    sources = dict(zip("abc", lengths, strict=False))
    assume(all(sum(sizes) >= L for sizes in lengths))
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(lengths), max_size=len(lengths)))
    with unique_tokens(sources) as drawn:
        ramp = [{"step": 3, "global_batch_size": 48}, {"step": 5, "global_batch_size": 16}]
        recipe = recipe_for(drawn.corpus, L, 24, weights=weights, batch_ramp=ramp)
        feed = Feed(drawn.corpus, recipe)
        for step in range(1, 7):
            whole = feed.global_batch(step)
            drawn.check(whole)
            for ranks in (1, 2, 4, 8):
                parts = [feed.micro_batches(step, rank, ranks) for rank in range(ranks)]
                assert same(whole, joined([batch for part in parts for batch in part]))
                assert len({len(part) for part in parts}) == 1


def test_micro_batches_have_the_recipes_size() -> None:
    with unique_tokens({"a": [12] * 4}) as drawn:
        ramp = [{"step": 2, "global_batch_size": 24}]
        recipe = recipe_for(drawn.corpus, 4, 12, batch_ramp=ramp, micro_batch_size=3, layout={"dp_shard": 2})
        feed = Feed(drawn.corpus, recipe)
        assert [len(batch) for batch in feed.micro_batches(1, 1, 2)] == [3, 3]
        assert [len(batch) for batch in feed.micro_batches(2, 1, 2)] == [3, 3, 3, 3]


@pytest.mark.parametrize("change", [(4, 2), (2, 4), (1, 8)])
def test_another_world_size_continues_the_exact_global_order(change: tuple[int, int]) -> None:
    with unique_tokens({"a": [5, 9, 1, 7], "b": [11, 3, 8]}) as drawn:
        recipe = recipe_for(drawn.corpus, 4, 8, weights=[0.7, 0.3])
        straight = [Feed(drawn.corpus, recipe).global_batch(step) for step in range(1, 11)]
        resized = []
        for steps, ranks in zip((range(1, 5), range(5, 11)), change, strict=True):
            feed = Feed(drawn.corpus, recipe)
            for step in steps:
                parts = [batch for rank in range(ranks) for batch in feed.micro_batches(step, rank, ranks)]
                resized.append(joined(parts))
        assert all(same(left, right) for left, right in zip(straight, resized, strict=True))
        samples = [sample for batch in resized for sample in batch.samples.tolist()]
        assert samples == list(range(80))


def test_shards_that_do_not_divide_by_ranks_give_every_rank_the_same_number_of_steps() -> None:
    with unique_tokens({"a": [4, 5, 6, 7, 8]}, documents_per_shard=2) as drawn:
        assert len(list((drawn.corpus.folder / "tokens" / "a").glob("train-*.tokens"))) == 3
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, 6, 2, steps=5))
        seen = {}
        for rank in range(2):
            with feed.steps(1, 5, rank, 2) as steps:
                seen[rank] = [(step, batches) for step, batches in steps]
        assert [[step for step, _ in seen[rank]] for rank in range(2)] == [[1, 2, 3, 4, 5]] * 2
        tokens = Counter(inputs_of([batch for rank in range(2) for _, batches in seen[rank] for batch in batches]))
        assert tokens == dict.fromkeys(range(30), 2)


def test_a_batch_that_does_not_divide_by_the_ranks_is_refused() -> None:
    with unique_tokens({"a": [30]}) as drawn:
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, 6, 4))
        with pytest.raises(BadInput, match="cannot be split evenly over 3"):
            feed.micro_batches(1, 0, 3)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), max_size=3), st.integers(1, 9))
def test_a_batch_ramp_leaves_no_sample_out(ramps: list[tuple[int, int]], batch: int) -> None:
    ramp, step = [], 1
    for gap, size in ramps:
        step += gap
        ramp.append({"step": step, "global_batch_size": size})
    with unique_tokens({"a": [7, 3, 9]}) as drawn:
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, 5, batch, batch_ramp=ramp))
        samples = [sample for step in range(1, 16) for sample in feed.global_batch(step).samples.tolist()]
        assert samples == list(range(len(samples)))


def test_sources_keep_their_share_of_every_step() -> None:
    with unique_tokens({"a": [20], "b": [30], "c": [40]}) as drawn:
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, 5, 10, weights=[0.5, 0, 0.5]))
        for step in range(1, 40):
            assert Counter(feed.global_batch(step).sources.tolist()) == {0: 5, 2: 5}


def test_without_weights_all_sources_finish_their_epochs_together() -> None:
    with unique_tokens({"a": [10] * 3, "b": [10] * 12, "c": [10] * 5}) as drawn:
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, 5, 4))
        for step, epochs in [(10, 1), (20, 2), (10_000, 1000)]:
            assert feed.epochs(step) == {"a": epochs, "b": epochs, "c": epochs}


@given(document_lengths, sequence_lengths, st.integers(1, 40))
def test_spans_and_counts_are_those_of_the_batch(lengths: list[int], L: int, step: int) -> None:
    assume(sum(lengths) >= L)
    with unique_tokens({"a": lengths, "b": [20]}) as drawn:
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, L, 3))
        batch = feed.global_batch(step)
        assert feed.valid_tokens(step) == int((batch.targets >= 0).sum())
        documents = {name: drawn.documents(name) for name in "ab"}
        from_spans: dict[int, list[int]] = {sample: [] for sample in batch.samples.tolist()}
        for span in feed.spans(step):
            assert span.place == len(from_spans[span.sample])
            from_spans[span.sample] += documents[span.source][span.document][span.start : span.stop]
        assert list(from_spans.values()) == batch.tokens.tolist()


def test_the_digest_is_the_steps_and_does_not_depend_on_who_asks() -> None:
    with unique_tokens({"a": [7, 3, 30], "b": [11, 9]}) as drawn:
        recipe = recipe_for(drawn.corpus, 5, 8)
        digests = [Feed(drawn.corpus, recipe).digest(step) for step in range(1, 30)]
        assert len(set(digests)) == 29
        for ranks in (1, 4):
            feed = Feed(drawn.corpus, recipe)
            with feed.steps(1, 29, 0, ranks) as steps:
                assert [feed.digest(step) for step, _ in steps] == digests
        other_seed = Feed(drawn.corpus, recipe_for(drawn.corpus, 5, 8, seed=1))
        assert other_seed.digest(1) != digests[0]


def test_a_digest_tells_a_single_token_apart() -> None:
    with unique_tokens({"a": [9]}) as drawn:
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, 9, 1))
        before = feed.digest(1)
        path = next((drawn.corpus.folder / "tokens" / "a").glob("*.tokens"))
        content = bytearray(path.read_bytes())
        content[0] ^= 1
        path.write_bytes(content)
        assert Feed(type(drawn.corpus).open(drawn.corpus.folder), feed.recipe).digest(1) != before


def test_a_step_does_not_depend_on_the_steps_asked_for_before() -> None:
    with unique_tokens({"a": [7, 3, 30], "b": [11, 9]}) as drawn:
        recipe = recipe_for(drawn.corpus, 5, 8)
        feed, order = Feed(drawn.corpus, recipe), [40, 2, 41, 1, 99, 2]
        assert all(same(feed.global_batch(step), Feed(drawn.corpus, recipe).global_batch(step)) for step in order)


def refusal(drawn: UniqueTokens, recipe: Recipe) -> str:
    with pytest.raises(BadInput) as caught:
        Feed(drawn.corpus, recipe)
    return str(caught.value)


@pytest.mark.parametrize("given_weights", [{}, {"weights": [0.9, 0.1]}])
def test_a_source_with_fewer_tokens_than_a_sequence_is_refused_by_name(given_weights: dict[str, Any]) -> None:
    with unique_tokens({"enough": [8], "little": [3, 4]}) as drawn:
        message = refusal(drawn, recipe_for(drawn.corpus, 8, **given_weights))
        assert "'little' has 7 training tokens, fewer than one sequence of 8" in message
        Feed(drawn.corpus, recipe_for(drawn.corpus, 8, weights=[1, 0])).global_batch(1)


def test_a_recipe_for_another_corpus_is_refused() -> None:
    with unique_tokens({"a": [8]}) as one, unique_tokens({"b": [8]}) as other:
        assert "has no source b" in refusal(one, recipe_for(other.corpus, 8))


def test_steps_are_counted_from_one() -> None:
    with unique_tokens({"a": [8]}) as drawn, pytest.raises(BadInput, match="counted from 1"):
        Feed(drawn.corpus, recipe_for(drawn.corpus, 8)).global_batch(0)


def test_spans_say_which_document_continues_where() -> None:
    with unique_tokens({"a": [10]}) as drawn:
        feed = Feed(drawn.corpus, recipe_for(drawn.corpus, 6, 5))
        spans = sorted(feed.spans(1), key=lambda span: (span.epoch, span.start))
        cut = [(0, 0, 6), (0, 6, 10), (1, 0, 2), (1, 2, 8), (1, 8, 10), (2, 0, 4), (2, 4, 10)]
        assert [(span.epoch, span.start, span.stop) for span in spans] == cut
        assert isinstance(spans[0], Span)
