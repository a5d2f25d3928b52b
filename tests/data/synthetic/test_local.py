"""A model of ours that writes: drawn from the right distribution, and the same after a kill."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.synthetic.jobs import Author, Prompt, Sampling, jobs_of, read_prompts
from stoker.data.synthetic.local import LocalGenerator, LocalModel, drawn_token
from stoker.data.synthetic.writing import synthesize
from stoker.errors import BadInput
from stoker.progress import Silent

_AUTHOR = Author("tiny", "d1")
_END = 9


def table_model() -> LocalModel:
    """The next token depends on the last two; token 9 ends a text."""
    table = torch.randn(10, 10, 10, generator=torch.Generator().manual_seed(0)) * 2

    def last_logits(seen: torch.Tensor) -> torch.Tensor:
        return table[seen[:, -2] if seen.shape[1] > 1 else seen[:, -1], seen[:, -1]]

    return LocalModel(
        last_logits,
        lambda text: [0, *(int(letter) for letter in text)],
        lambda ids: "".join(map(str, ids)),
        _END,
        window=6,
    )


_PROMPTS = [Prompt(str(number), text) for number, text in enumerate(["1", "2", "34", "5", "67", "8"])]
_SAMPLING = Sampling(temperatures=(0.0, 1.0), samples=2, tokens=12)


def written(output: Path, sampling: Sampling = _SAMPLING, batch: int = 3, with_prompt: bool = False) -> bytes:
    jobs = jobs_of(_PROMPTS, sampling, _AUTHOR)
    generator = LocalGenerator(table_model(), sampling, jobs, batch)
    synthesize(_PROMPTS, sampling, _AUTHOR, generator, output, Silent(), with_prompt)
    return output.read_bytes()


def test_the_same_settings_write_the_same_and_batches_have_no_say(tmp_path: Path) -> None:
    first = written(tmp_path / "first")
    assert written(tmp_path / "again") == first
    assert written(tmp_path / "one", batch=1) == first
    assert written(tmp_path / "other", Sampling((0.0, 1.0), 2, tokens=12, seed=1)) != first


def test_killed_after_any_row_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole")
    lines = whole.splitlines(keepends=True)
    for kept in (1, 5, 23):
        output = tmp_path / f"killed-{kept}"
        (tmp_path / f".killed-{kept}.journal").write_bytes(b"".join(lines[::-1][:kept]) + lines[0][:30])
        assert written(output) == whole


def test_a_text_ends_at_its_end_or_at_the_most_tokens(tmp_path: Path) -> None:
    import json

    rows = [json.loads(line) for line in written(tmp_path / "out").splitlines()]
    assert {row["finish"] for row in rows} == {"stop", "length"}
    for row in rows:
        assert str(_END) not in row["text"]
        assert len(row["text"]) == row["tokens"] <= 12
        assert (row["tokens"] == 12) or row["finish"] == "stop"
    begun = [json.loads(line) for line in written(tmp_path / "begun", with_prompt=True).splitlines()]
    assert [one["text"] for one in begun] == [one["prompt"] + one["text"] for one in rows]


def test_at_temperature_zero_the_likeliest_token_is_taken(tmp_path: Path) -> None:
    import json

    rows = [json.loads(line) for line in written(tmp_path / "out").splitlines()]
    cold = [row["text"] for row in rows if row["temperature"] == 0]
    assert cold[::2] == cold[1::2]
    model, ids = table_model(), [0, 1]
    for letter in cold[0]:
        assert int(model.last_logits(torch.tensor([ids])).argmax()) == int(letter)
        ids.append(int(letter))


@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=8),
    st.floats(0.1, 3),
    st.floats(0.05, 1),
    st.floats(0, 1, exclude_max=True),
)
def test_only_the_likeliest_tokens_up_to_top_p_are_drawn(
    logits: list[float], temperature: float, top_p: float, uniform: float
) -> None:
    values = np.asarray(logits)
    shares = np.exp(values / temperature - (values / temperature).max())
    shares /= shares.sum()
    order = np.argsort(-values, kind="stable")
    before = {int(token): shares[order[:place]].sum() for place, token in enumerate(order)}
    assert before[drawn_token(values, temperature, top_p, uniform)] < top_p


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits, grid = np.log([0.5, 0.2, 0.2, 0.1]), (np.arange(10_000) + 0.5) / 10_000
    drawn = np.bincount([drawn_token(logits, 1.0, 1.0, value) for value in grid], minlength=4) / 10_000
    assert drawn == pytest.approx([0.5, 0.2, 0.2, 0.1], abs=2e-4)
    cut = np.bincount([drawn_token(logits, 1.0, 0.6, value) for value in grid], minlength=4) / 10_000
    assert cut == pytest.approx([5 / 7, 2 / 7, 0, 0], abs=2e-4)


def test_prompts_are_lines_or_json_lines(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("first\n\nsecond\n")
    assert read_prompts(tmp_path / "p.txt") == [Prompt("1", "first"), Prompt("3", "second")]
    (tmp_path / "p.jsonl").write_text('{"prompt": "one\\ntwo", "id": "a"}\n{"prompt": "b"}\n')
    assert read_prompts(tmp_path / "p.jsonl") == [Prompt("a", "one\ntwo"), Prompt("2", "b")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no prompt"),
        ('{"text": "x"}\n', "line 1: expected an object"),
        ("[1]\n", "line 1"),
        ('{"prompt": ""}\n', "no text"),
        ('{"prompt": "a", "id": 2}\n{"prompt": "b"}\n', "two prompts are named '2'"),
    ],
)
def test_a_wrong_file_of_prompts_is_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "p.jsonl").write_text(content)
    with pytest.raises(BadInput, match=said):
        read_prompts(tmp_path / "p.jsonl")
    with pytest.raises(BadInput, match="give a file of prompts"):
        read_prompts(tmp_path / "none")
