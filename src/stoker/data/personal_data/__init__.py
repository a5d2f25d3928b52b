"""Personal data and secrets in a text, found by form and check digits and masked with typed placeholders."""

from __future__ import annotations

from stoker.data.personal_data.masking import PLACEHOLDERS, mask

__all__ = ["PLACEHOLDERS", "mask"]
