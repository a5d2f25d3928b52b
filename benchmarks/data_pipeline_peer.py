"""datatrove from a file of JSON lines to tokens; run by `data_pipeline.py` in the interpreter that has it."""

from __future__ import annotations

import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.filters import FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.formatters import FTFYFormatter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.writers import JsonlWriter


def main(texts: Path, tokenizer: Path, work: Path) -> None:
    """Clean, filter, remove near-duplicates and tokenise `texts`/*.jsonl, in one process."""
    kept, minhash = work / "kept", work / "minhash"
    config = MinhashConfig()
    pipelines = [
        [
            JsonlReader(str(texts)),
            FTFYFormatter(),
            GopherRepetitionFilter(),
            GopherQualityFilter(),
            FineWebQualityFilter(),
            JsonlWriter(str(kept), compression=None),
        ],
        [JsonlReader(str(kept)), MinhashDedupSignature(str(minhash / "signatures"), config)],
        [MinhashDedupBuckets(str(minhash / "signatures"), str(minhash / "buckets"), config=config)],
        [MinhashDedupCluster(str(minhash / "buckets"), str(minhash / "removed"), config=config)],
        [
            JsonlReader(str(kept)),
            MinhashDedupFilter(str(minhash / "removed")),
            DocumentTokenizer(str(work / "tokens"), str(tokenizer), eos_token="<|end_of_text|>"),
        ],
    ]
    for number, pipeline in enumerate(pipelines):
        tasks = config.num_buckets if number == 2 else 1
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=str(work / "logs" / str(number))).run()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
