"""From raw text to batches.

    files ─ reading ─► documents ─ cleaning, filters ─► kept text ─ deduplication ─► tokens ─► shards ─ feeding ─► batches

`prepare.py` walks that line up to the shards; `feeding/` goes on from there. `ledger.py` holds the history
of every document that was ever read.
"""
