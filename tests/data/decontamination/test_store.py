"""Tables of evaluation items are made once, shared by processes, and whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stoker.data.decontamination import EvaluationIndex
from stoker.data.decontamination.store import shared_tables
from stoker.data.decontamination.tables import Tables, tables_of
from tests.data.decontamination.test_search import CHINESE, QUESTION, SHORT

_ITEMS = [("first", QUESTION), ("zweite Frage: é", CHINESE), ("third", SHORT)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.data.decontamination.store.cache_folder", lambda: tmp_path / "cache")


class Making:
    """Makes tables and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Tables:
        self.times += 1
        return tables_of(_ITEMS, 13, 26)


def test_they_are_made_once_and_lie_in_files_that_are_mapped(tmp_path: Path) -> None:
    make = Making()
    first, second = shared_tables("a", make), shared_tables("a", make)
    assert make.times == 1
    assert {name: table.tolist() for name, table in second.items()} == {
        name: table.tolist() for name, table in tables_of(_ITEMS, 13, 26).items()
    }
    assert isinstance(second["words.runs"].base, np.memmap)
    for tables in (first, second):
        own = EvaluationIndex(tables)
        for name, text in _ITEMS:
            found = own.search(f"before it. {text} behind it.")
            assert found is not None
            assert own.name_of(found.item) == name
    shared_tables("b", make)
    assert make.times == 2


@pytest.mark.parametrize("damage", ["cut", "missing", "names"])
def test_damaged_tables_are_made_anew(tmp_path: Path, damage: str) -> None:
    make = Making()
    shared_tables("a", make)
    folder = tmp_path / "cache" / "evaluation" / "a"
    table = folder / "words.runs.npy"
    if damage == "cut":
        table.write_bytes(table.read_bytes()[:-8])
    elif damage == "missing":
        table.unlink()
    else:
        (folder / "names").unlink()
    assert len(shared_tables("a", make)["words.runs"]) == len(tables_of(_ITEMS, 13, 26)["words.runs"])
    assert make.times == 2


def test_only_the_tables_used_last_are_kept(tmp_path: Path) -> None:
    make = Making()
    (tmp_path / "cache" / "evaluation" / "x.1.partial").mkdir(parents=True)
    for state in "abcdefg":
        shared_tables(state, make)
    assert sorted(one.name for one in (tmp_path / "cache" / "evaluation").iterdir()) == ["d", "e", "f", "g", "lock"]


def test_without_a_folder_they_are_made_in_memory(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file stands where the folder should be")
    make = Making()
    for _ in range(2):
        assert EvaluationIndex(shared_tables("a", make)).search(QUESTION) is not None
    assert make.times == 2


def test_what_cannot_be_made_leaves_nothing_and_lets_others_try(tmp_path: Path) -> None:
    def fail() -> Tables:
        raise ValueError("no items")

    with pytest.raises(ValueError, match="no items"):
        shared_tables("a", fail)
    assert len(shared_tables("a", Making())) > 4


def test_processes_that_want_them_at_once_make_them_once(tmp_path: Path) -> None:
    (tmp_path / "exam.jsonl").write_text(json.dumps({"text": QUESTION}) + "\n")
    program = (
        "import sys; from pathlib import Path\n"
        "from stoker.data.decontamination import evaluation, store\n"
        "from stoker.recipe.decontamination import Decontamination\n"
        "folder = Path(sys.argv[1]); store.cache_folder = lambda: folder / 'cache'\n"
        "read = evaluation._items\n"
        "def told(settings):\n"
        "    with open(folder / 'made', 'a') as stream: stream.write('x')\n"
        "    return read(settings)\n"
        "evaluation._items = told\n"
        "index = evaluation.evaluation_index(Decontamination(paths=(str(folder / 'exam.jsonl'),)))\n"
        "print(index.name_of(0), index.not_looked_for)\n"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [one.communicate(timeout=300)[0] for one in both] == ["exam.jsonl line 1, text 0\n"] * 2
    assert (tmp_path / "made").read_text() == "x"
