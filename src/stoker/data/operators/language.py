"""Identification of language as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stoker.data.document import Document
from stoker.data.filters.rule import OWN, Rule, adjusted, judge, primary_tag
from stoker.data.language.identification import CODE, MIXED, Identified, identify, languages
from stoker.data.operators.operator import Outcome
from stoker.errors import BadInput
from stoker.recipe import Cleaning, Source

_NAMED = ("zh", "en", CODE)
_SAME = {"nb": "no", "nn": "no", "ms": "id", "bs": "hr", "cmn": "zh", "yue": "zh"}
"""Tags by which the model knows a language, of tags that it does not tell apart from it."""
_ALIKE = (
    frozenset({"da", "no", "sv"}),
    frozenset({"cs", "sk"}),
    frozenset({"hr", "sl", "sr"}),
    frozenset({"es", "gl", "pt", "ca"}),
    frozenset({"be", "bg", "mk", "ru", "sr", "uk"}),
    frozenset({"hi", "mr", "ne"}),
)
"""Languages that short texts do not tell apart for certain: a text in one of them may be in the others."""
_LONG_ENOUGH = 100
"""Bytes of UTF-8 from which a text is judged by its language."""
_CERTAIN = 0.8
"""Share of a text in one language from which it counts for more than what the source says."""

WRONG_LANGUAGE = Rule(
    reason="wrong_language",
    measure="language.wanted",
    drops="below",
    threshold=0.2,
    kinds=("prose", "dialogue"),
    languages=None,
    source=OWN,
    meaning="hardly any of the text is in the language of its source, or in one of data.cleaning.languages",
)


@dataclass(frozen=True)
class IdentifyLanguage:
    """Finds out the language of text that is not code, and drops what is in none of the wanted ones."""

    wanted: frozenset[str]
    """Languages of which text is kept, and those that are like them; empty keeps every one."""
    rules: tuple[Rule, ...]
    name: str = "language"
    measures: tuple[str, ...] = (
        "language.confidence",
        *(f"language.share_{name}" for name in _NAMED),
        "language.share_other",
        "language.wanted",
    )

    @property
    def reasons(self) -> Mapping[str, str]:
        """That of its rule."""
        return {rule.reason: rule.meaning for rule in self.rules}

    @classmethod
    def of(cls, source: Source, cleaning: Cleaning) -> IdentifyLanguage | None:
        """The operator of a source that is not code. Raises `BadInput` at a language that nothing identifies."""
        if source.kind == "code":
            return None
        wanted = {_known(tag) for tag in cleaning.languages}
        if unknown := sorted(wanted - set(languages())):
            raise BadInput(
                f"data.cleaning.languages: text in {', '.join(unknown)} cannot be told from other text; "
                f"known are {' '.join(languages())}"
            )
        if not wanted and source.language is not None and _known(source.language) in languages():
            wanted = {_known(source.language)}
        alike = (group for group in _ALIKE if group & wanted)
        asked = [rule for rule in (WRONG_LANGUAGE,) if wanted and rule.concerns(source.kind, None)]
        rules = adjusted(asked, cleaning.thresholds, cleaning.off) if cleaning.filters else ()
        return cls(frozenset(wanted).union(*alike), rules)

    def __call__(self, document: Document) -> Outcome:
        """The document with its language, where its source gave none, or one that it is certainly not in."""
        found = identify(document.text)
        measures = self._measured(document, found)
        if found.label not in (None, CODE) and (document.language is None or _contradicts(document, found)):
            document = replace(document, language=found.label)
        return Outcome(document, judge(measures, self.rules), measures)

    def _measured(self, document: Document, found: Identified) -> dict[str, float]:
        shares = found.shares
        if found.label is None:
            return {}
        measures = {"language.confidence": found.confidence}
        measures |= {f"language.share_{name}": shares.get(name, 0.0) for name in _NAMED}
        measures["language.share_other"] = max(0.0, 1 - sum(measures[f"language.share_{n}"] for n in _NAMED))
        if self.wanted and _is_long_enough(document):
            # Code among prose is in no wrong language; the filters judge it.
            measures["language.wanted"] = sum(shares.get(name, 0.0) for name in (*sorted(self.wanted), CODE))
        return measures


def _is_long_enough(document: Document) -> bool:
    return len(document.text[:_LONG_ENOUGH].encode()) >= _LONG_ENOUGH


def _contradicts(document: Document, found: Identified) -> bool:
    """Whether nearly all of a text that is long enough is in another language than its source says."""
    given = _known(document.language or "")
    alike = {given}.union(*(group for group in _ALIKE if given in group))
    return (
        given in languages()
        and found.label not in (*alike, MIXED)
        and found.confidence >= _CERTAIN
        and sum(found.shares.get(name, 0.0) for name in alike) < WRONG_LANGUAGE.threshold
        and _is_long_enough(document)
    )


def _known(tag: str) -> str:
    """The name by which the model knows the language of a tag such as `zh-CN`."""
    primary = primary_tag(tag) or tag
    return _SAME.get(primary, primary)
