"""What each reason means, in a sentence: those that no operator gives, and so none explains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoker.data.ledger.description import Description, RuleNote
from stoker.data.ledger.schema import MEASURE

READING_REASONS: Mapping[str, str] = {
    "empty": "it holds no text, or none that reading and cleaning left",
    "not_html": "it was fetched from the web and is no page: an image, a script, a file",
    "http_status": "the server did not answer with a page but with an error or a redirection",
    "revisit": "the archive only notes that the page was the same as when it was fetched before",
}
"""Of documents that were read and hold nothing to judge."""

_EMPTIED_BY: Mapping[str, str] = {
    "reading": "it held no text when it was read",
    "remove": "remove_pattern of its source took all of its text",
    "clean": "nothing visible is left of it after cleaning",
    "lines": "line cleaning cut every line: furniture of a page, running heads, rows of signs",
    "filter": "the edits of a rule set (c4) cut every line: without a full stop, of few words, …",
    "decontamination": "every line held an evaluation item, and these are cut",
}

FAULTS: Mapping[str, str] = {
    "undecodable": "its bytes are no text in the encoding that was found or named",
    "binary": "it is not text but another kind of file",
    "truncated": "the file ends in the middle",
    "damaged": "the file cannot be unpacked from here on",
    "too_large": "it is larger than data.cleaning.maximum_document_bytes, and was not read",
    "not_json": "the line is not one JSON object",
    "no_text_field": "it has no field of the name that data.sources[].text_field gives",
    "wrong_type": "the field that should hold the text holds something else",
    "unreadable": "the machine could not read the file",
    "not_python": "it cannot be parsed as Python, from which docstrings or strings were to be taken",
    "not_warc": "it is no record of a web archive",
    "unknown_encoding": "it is compressed in a way that cannot be undone here",
    "poisoned": "it made a worker process die twice, or an operator or an extractor fail",
}
"""Of what should have been a document and could not be read."""

SELECTION_REASONS: Mapping[str, str] = {
    "exact_duplicate": "its cleaned text is, character for character, that of another document",
    "near_duplicate": "nearly all of it stands in another document, which is kept",
    "held_out_exact_duplicate": "it would be held out, and is identical to another document that is",
    "held_out_near_duplicate": "it would be held out, and nearly all of it stands in another document that is",
    "held_out_near_training_text": "it would be held out, and nearly all of it stands in a document to train on",
    "in_earlier_corpus": "nearly all of it stands in a corpus of data.deduplication.against",
    "repeated_passages": "nothing was left of it when passages that stand elsewhere had been cut out",
    "not_among_best": "the classifier puts others of its source before it, and data.cleaning.quality.keep_best "
    "keeps only a share of them",
    "least_surprising": "it is among the least surprising of its kind and language, of which "
    "data.cleaning.perplexity.drop_lowest drops a share: lists, templates, text that repeats itself",
    "most_surprising": "it is among the most surprising of its kind and language, of which "
    "data.cleaning.perplexity.drop_highest drops a share: text read wrongly, noise, but also verse",
    "over_synthetic_share": "it was written by a model, and there is more of such text than "
    "data.synthetic_share_at_most allows",
}
"""Of documents that were compared with others."""


def meaning_of(row: Mapping[str, Any], description: Description) -> str | None:
    """What the reason of a row of a ledger means; None for a document that is kept."""
    reason = row["reason"]
    if row["verdict"] == "fault":
        return FAULTS.get(reason)
    rule = rule_that_dropped(row, description)
    if rule is not None:
        return rule.meaning
    if reason == "empty" and row["stage"] in _EMPTIED_BY:
        return _EMPTIED_BY[row["stage"]]
    for source in description.sources:
        for operator in source.operators:
            if source.name == row["source"] and operator.name == row["stage"] and reason in operator.reasons:
                return operator.reasons[reason]
    return SELECTION_REASONS.get(reason) or READING_REASONS.get(reason)


def rule_that_dropped(row: Mapping[str, Any], description: Description) -> RuleNote | None:
    """The rule that a document was dropped by, of those asked of its language; None where it was none."""
    asked = [
        rule
        for source, operator, rule in description.rules()
        if (source.name, operator.name, rule.reason) == (row["source"], row["stage"], row["reason"])
        and rule.concerns(row["language"])
    ]
    # The ledger's 32 bits may put a measure on the other side of a threshold that it all but equals.
    return next(
        (rule for rule in asked if rule.rejects(row.get(MEASURE + rule.measure))), asked[0] if asked else None
    )
