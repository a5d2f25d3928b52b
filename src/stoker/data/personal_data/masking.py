"""What is found of personal data, replaced by placeholders that say what stood there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stoker.data.minhash import code_points
from stoker.data.personal_data.candidates import ACCOUNT, DIGITS, candidates
from stoker.data.personal_data.numbers import Found, accounts, numbers
from stoker.data.personal_data.words import emails, ipv6_addresses, key_at, private_keys
from stoker.recipe.personal_data import PersonalKind

PLACEHOLDERS: Mapping[PersonalKind, str] = {
    "email": "<EMAIL>",
    "phone": "<PHONE>",
    "chinese_id": "<ID_NUMBER>",
    "us_ssn": "<ID_NUMBER>",
    "iban": "<IBAN>",
    "credit_card": "<CARD_NUMBER>",
    "ip_address": "<IP_ADDRESS>",
    "key": "<KEY>",
}
"""What is written in place of each kind."""
_OF_NUMBERS: frozenset[PersonalKind] = frozenset(("phone", "chinese_id", "us_ssn", "credit_card", "ip_address"))


def mask(text: str, kinds: frozenset[PersonalKind]) -> tuple[str, dict[PersonalKind, int]]:
    """(`text` with what is found of `kinds` masked, how many of each there were). Idempotent."""
    counts = dict.fromkeys(sorted(kinds), 0)
    found = sorted(_found(text, kinds), key=lambda one: (one[0], -one[1]))
    if not found:
        return text, counts
    pieces, done = [], 0
    for first, last, kind in found:
        if first < done:
            continue
        pieces += [text[done:first], PLACEHOLDERS[kind]]
        counts[kind] += 1
        done = last
    return "".join([*pieces, text[done:]]), counts


def _found(text: str, kinds: frozenset[PersonalKind]) -> Iterator[Found]:
    if "email" in kinds and "@" in text:
        yield from emails(text)
    if "key" in kinds:
        yield from private_keys(text)
    if "ip_address" in kinds:
        yield from ipv6_addresses(text)
    if kinds <= {"email"}:
        return
    of_numbers = kinds & _OF_NUMBERS
    for first, last, what in candidates(code_points(text)).tolist():
        if what == DIGITS:
            if of_numbers:
                yield from numbers(text, first, last, of_numbers)
        elif what == ACCOUNT:
            if "iban" in kinds:
                yield from accounts(text, first)
        elif "key" in kinds:
            yield from key_at(text, first, last)
