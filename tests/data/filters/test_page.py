"""docs/filters.md shows the rules as they are. `python -m tests.data.filters.test_page` writes its tables anew."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from stoker.data.decontamination import CONTAMINATED
from stoker.data.filters import MEASURES, RULE_SETS, SIZES
from stoker.data.filters.line_edits import CITATIONS, CITATIONS_MEANING, LINE_EDITS
from stoker.data.filters.rule import Rule
from stoker.data.personal_data import PLACEHOLDERS
from stoker.data.unsafe import UNSAFE

_PAGE = Path(__file__).parents[3] / "docs" / "filters.md"
_FOUND_BY = {
    "email": "form; not `git@`, `noreply@`, domains kept for examples, logins in addresses",
    "phone": "international with country code; national behind a word for phone; North American; "
    "Chinese mobile (behind Chinese or a word for phone) "
    "and landline",
    "chinese_id": "18 characters: province, date of birth, check digit (GB 11643)",
    "us_ssn": "three hyphenated parts that have been given out",
    "iban": "length of the country, remainder 97 (ISO 13616)",
    "credit_card": "prefix and length of a network, Luhn; in groups, or behind a word for card",
    "ip_address": "one machine on the internet; no private, reserved, multicast addresses, no versions",
    "key": "prefixes of known providers with enough entropy; web tokens; private keys in PEM form",
}


def _threshold(rule: Rule) -> str:
    return f"{'>' if rule.drops == 'above' else '<'} {rule.threshold:.4g}"


def _rule_rows(rules: tuple[Rule, ...]) -> Iterator[str]:
    yield "| reason | dropped where | kinds | why | figure from |"
    yield "|---|---|---|---|---|"
    for rule in rules:
        asked = ", ".join(rule.kinds) + (f" ({', '.join(rule.languages)})" if rule.languages else "")
        name = rule.measure.removeprefix("filter.")
        yield f"| `{rule.reason}` | `{name}` {_threshold(rule)} | {asked} | {rule.meaning} | {rule.source} |"


def _measure_rows() -> Iterator[str]:
    yield "| measure | what it is |"
    yield "|---|---|"
    for name, measure in MEASURES.items():
        if measure.__doc__ is not None and "partial" not in type(measure).__name__:
            yield f"| `{name}` | {' '.join(measure.__doc__.split())} |"
    yield "| `filter.commonest_N_words_share` | Characters of the commonest run of N words, of all (N: 2 to 4). |"
    yield "| `filter.repeated_N_words_share` | Characters in runs of N words that occurred before (N: 5 to 10). |"


def _edit_rows() -> Iterator[str]:
    yield "| name | what is cut out |"
    yield "|---|---|"
    yield f"| `{CITATIONS}` | {CITATIONS_MEANING} |"
    for name, (_, meaning) in LINE_EDITS.items():
        yield f"| `{name}` | {meaning} |"


def _personal_rows() -> Iterator[str]:
    yield "| kind | placeholder | found by |"
    yield "|---|---|---|"
    for kind, placeholder in PLACEHOLDERS.items():
        yield f"| `{kind}` | `{placeholder}` | {_FOUND_BY[kind]} |"


def _size_rows() -> Iterator[str]:
    yield "| reason | why |"
    yield "|---|---|"
    for reason, meaning in SIZES.items():
        yield f"| `{reason}` | {meaning} |"


TABLES: Mapping[str, str] = {
    "sizes": "\n".join(_size_rows()),
    **{name: "\n".join(_rule_rows(rules)) for name, rules in RULE_SETS.items()},
    "edits": "\n".join(_edit_rows()),
    "personal data": "\n".join(_personal_rows()),
    "other rules": "\n".join(_rule_rows((UNSAFE, CONTAMINATED))),
    "measures": "\n".join(_measure_rows()),
}


def _place(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- table: {name} -->\n\n)(?:\|.*\n)*")


@pytest.mark.parametrize("name", TABLES)
def test_the_page_shows_the_table_as_it_is(name: str) -> None:
    found = _place(name).search(_PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert found[0] == TABLES[name] + "\n"


def test_every_measure_has_a_sentence() -> None:
    for name, measure in MEASURES.items():
        if "_words_share" not in name:
            assert (measure.__doc__ or "").strip().endswith("."), name


if __name__ == "__main__":
    page = _PAGE.read_text(encoding="utf-8")
    for table_name, table in TABLES.items():
        page = _place(table_name).sub(lambda match, table=table: table + "\n", page)  # type: ignore[misc]
    _PAGE.write_text(page, encoding="utf-8")
