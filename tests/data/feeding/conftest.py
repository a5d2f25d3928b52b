"""The machine may be busy: no example has a deadline."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no deadline", deadline=None, max_examples=60)
settings.load_profile("no deadline")
