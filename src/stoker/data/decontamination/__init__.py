"""Evaluation items in training text: found by runs of words or characters, changed and short items by likeness.

A long item is found by any `ngram` words in a row that it shares with a document (Brown et al. 2020, appendix C,
take 13), or `ngram_characters` characters where its script has no spaces. Runs that stand in more than 10 items are
templates and prove nothing. An item is found as well where four fifths of its tokens stand in order in about as
many tokens of the document, a long one piece by piece. Case, width, spacing, punctuation and symbols do not count.
"""

from __future__ import annotations

from stoker.data.decontamination.evaluation import evaluation_files, evaluation_index
from stoker.data.decontamination.index import Contamination, EvaluationIndex
from stoker.data.filters.rule import EVERY_KIND, Rule

__all__ = ["CONTAMINATED", "Contamination", "EvaluationIndex", "evaluation_files", "evaluation_index"]

CONTAMINATED = Rule(
    "contaminated",
    "decontamination.overlap",
    "above",
    0.0,
    EVERY_KIND,
    None,
    "Brown et al. 2020",
    "an item of an evaluation set stands in the document",
)
"""Its measure: the share of the item's runs, or of its tokens in order, that a document holds; one run will do."""
