"""From raw text to batches.

    files ─ reading ─► documents ─ cleaning, filters ─► kept text ─ deduplication ─► tokens ─► shards
                                                                    batches ◄─ feeding ◄─ mixture ◄─┘

`prepare.py` walks that line up to the shards; `feeding/` goes on from there. `ledger/` holds the history
of every document that was ever read.
"""
