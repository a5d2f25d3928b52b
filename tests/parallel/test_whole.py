"""Whether what is computed of parts is what is computed of the whole."""

from __future__ import annotations

import pytest

from stoker.layout import Layout
from tests.verification.harness import differences


@pytest.mark.parametrize("optimizer", ["adafactor", "muon"])
@pytest.mark.parametrize("tp", [3, 4])
def test_updates_of_key_heads_that_several_ranks_hold_are_those_of_one_process(tp: int, optimizer: str) -> None:
    """With 2 key and value heads some ranks hold the same one, over 3 ranks not each as often."""
    found = differences(Layout(tp=tp), optimizer)
    assert max(found.values()) < 1e-9, max(found, key=lambda name: found[name])
