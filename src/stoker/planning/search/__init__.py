"""The best layout, micro-batch, schedule and memory techniques for a recipe on a described cluster, and why."""

from stoker.planning.search.searching import Candidate, Found, Goal, judge, search
from stoker.planning.search.space import Choices

__all__ = ["Candidate", "Choices", "Found", "Goal", "judge", "search"]
