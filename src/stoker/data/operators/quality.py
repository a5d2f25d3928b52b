"""The classifier of quality as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stoker.data.document import Document
from stoker.data.filters.rule import EVERY_KIND, Rule, judge
from stoker.data.operators.operator import Outcome
from stoker.data.quality.classifier import SCORE, Classifier, loaded_classifier
from stoker.recipe import Cleaning, Source

_MEANING = "the classifier finds it less like the text held up as good than data.cleaning.quality.minimum asks"


@dataclass(frozen=True)
class ScoreQuality:
    """Scores documents, and drops those below a fixed score where the recipe gives one."""

    classifier: Classifier
    rules: tuple[Rule, ...]
    name: str = "quality"
    measures: tuple[str, ...] = (SCORE,)

    @classmethod
    def of(cls, source: Source, cleaning: Cleaning) -> ScoreQuality | None:
        """The operator of a source of a kind that is scored. Raises `BadInput` where the model cannot be read."""
        section = cleaning.quality
        if section.model is None or source.kind not in section.kinds:
            return None
        rules: tuple[Rule, ...] = ()
        if section.minimum is not None:
            setting = "data.cleaning.quality.minimum"
            rules = (Rule("low_quality", SCORE, "below", section.minimum, EVERY_KIND, None, setting, _MEANING),)
        return cls(loaded_classifier(section.model), rules)

    @property
    def reasons(self) -> Mapping[str, str]:
        """That of its rule."""
        return {rule.reason: rule.meaning for rule in self.rules}

    def __call__(self, document: Document) -> Outcome:
        """The document as it is, or the reason to drop it."""
        measures = {SCORE: self.classifier.score(document.text)}
        return Outcome(document, judge(measures, self.rules), measures)
