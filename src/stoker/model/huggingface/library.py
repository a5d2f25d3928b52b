"""The optional library `transformers`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from stoker.errors import MissingExtra


def transformers_library() -> Any:
    """The `transformers` module. Raises `MissingExtra` when it is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra("exporting to Hugging Face", "export") from error
    return transformers


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from writing remarks and progress bars meanwhile."""
    messages = transformers_library().utils.logging
    verbosity, bars = messages.get_verbosity(), messages.is_progress_bar_enabled()
    messages.set_verbosity_error()
    messages.disable_progress_bar()
    try:
        yield
    finally:
        messages.set_verbosity(verbosity)
        if bars:
            messages.enable_progress_bar()
