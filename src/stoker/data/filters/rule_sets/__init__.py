"""Rules by the name of the set that a recipe asks for (`data.cleaning.rules`)."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.data.filters.rule import Rule
from stoker.data.filters.rule_sets.c4 import C4
from stoker.data.filters.rule_sets.chinese import CHINESEWEBTEXT, FINEWEB2_CHINESE
from stoker.data.filters.rule_sets.fineweb import FINEWEB
from stoker.data.filters.rule_sets.gopher import GOPHER
from stoker.data.filters.rule_sets.stoker import STOKER
from stoker.recipe.filter_names import RuleSet

RULE_SETS: Mapping[RuleSet, tuple[Rule, ...]] = {
    "stoker": STOKER,
    "gopher": GOPHER,
    "c4": C4,
    "fineweb": FINEWEB,
    "chinesewebtext": CHINESEWEBTEXT,
    "fineweb2_chinese": FINEWEB2_CHINESE,
}

__all__ = ["RULE_SETS"]
