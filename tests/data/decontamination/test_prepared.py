"""A prepared corpus holds no evaluation items and no masked data, whatever the number of workers."""

from __future__ import annotations

import json
import random
from pathlib import Path

from stoker.data.ledger import Ledger
from stoker.data.ledger.schema import MEASURE
from stoker.data.prepare import prepare
from stoker.progress import Silent
from tests.data.decontamination.test_search import QUESTION
from tests.data.small_corpus import folder_bytes, sentence, small_recipe


def test_items_are_kept_out_and_named_in_the_ledger_and_mail_is_masked(tmp_path: Path) -> None:
    draw = random.Random(5)
    texts = [sentence(draw, 40) for _ in range(150)]
    texts[7] = f"{texts[7]} {QUESTION}"
    texts[9] = f"{texts[9]} Write to jane.doe@company.com."
    folders = []
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        (folder / "exam.jsonl").write_text(json.dumps({"question": QUESTION}) + "\n")
        loaded = small_recipe(
            folder,
            f"data.workers={workers}",
            sources=[{"name": "only", "paths": ["a.jsonl"], "language": "en"}],
            cleaning={"decontaminate": {"paths": ["exam.jsonl"], "fields": ["question"]}},
        )
        folders.append(prepare(loaded, Silent()).folder)
    assert folder_bytes(folders[0]) == folder_bytes(folders[1])
    rows = Ledger(folders[0]).rows().collect()
    (dropped,) = rows.filter(reason="contaminated").to_dicts()
    assert (dropped["position"], dropped["detail"]) == ("line 8", "exam.jsonl line 1, question")
    assert rows[f"{MEASURE}personal_data.email"].sum() == 1
