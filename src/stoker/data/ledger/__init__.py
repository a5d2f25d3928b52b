"""The history of every document ever read: why it was kept or dropped, and where it went."""

from __future__ import annotations

from stoker.data.ledger.reading import Ledger
from stoker.data.ledger.schema import LEDGER_SCHEMA

__all__ = ["LEDGER_SCHEMA", "Ledger"]
