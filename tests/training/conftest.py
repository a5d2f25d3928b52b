"""Text that several tests of the trainer train on."""

from __future__ import annotations

import pytest

from stoker.data.corpus import Corpus
from tests.data.corpora import corpus_of_lines


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Sixty short lines of one source, three held out. A module with other needs has a `corpus` of its own."""
    texts = [f"The {i}th line of a source, {'again ' * (i % 5)}end." for i in range(60)]
    return corpus_of_lines(tmp_path_factory.mktemp("corpus"), {"one": texts})
