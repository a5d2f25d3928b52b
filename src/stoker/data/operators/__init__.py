"""What is done to each document between reading and selection, one operator after another."""

from __future__ import annotations

from stoker.data.operators.chain import Judged, judge, operators_of
from stoker.data.operators.operator import Operator, Outcome

__all__ = ["Judged", "Operator", "Outcome", "judge", "operators_of"]
