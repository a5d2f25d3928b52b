"""The `data.cleaning.personal_data` section: what of personal data is masked."""

from __future__ import annotations

from typing import Literal

from stoker.recipe.section import Section

PersonalKind = Literal["email", "phone", "chinese_id", "us_ssn", "iban", "credit_card", "ip_address", "key"]


class PersonalData(Section):
    """Personal data and secrets are replaced by placeholders such as `<EMAIL>`; `mask: []` switches it off."""

    mask: tuple[PersonalKind, ...] = (
        "email",
        "phone",
        "chinese_id",
        "us_ssn",
        "iban",
        "credit_card",
        "ip_address",
        "key",
    )
    """What is masked in prose, mathematics and dialogue."""
    mask_in_code: tuple[PersonalKind, ...] = ("key",)
    """What is masked in code, where numbers and addresses are part of the program."""
