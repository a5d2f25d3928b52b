"""What a rank prints of its own accord: what a user has to know, and not that another rank is gone.

When a rank dies, all others lose their connections to it and say so in many voices, though the supervisor has said
what happened. Such a warning waits, and comes only from a rank that is still there when it would have been ended.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings

PATIENCE_SECONDS = 15.0
_OF_CONNECTIONS = ("gloo", "NCCL", "peer", "onnection", "ocket", "roken pipe")


def print_what_matters() -> None:
    """From now on, in this process, which is a rank."""
    # Which of torch's functions will be renamed is for developers to know.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.")
    own = logging.getLogger("stoker")
    if not own.hasHandlers():
        own.addHandler(PatientHandler())


class PatientHandler(logging.Handler):
    """Prints warnings on standard error; those about lost connections later, if at all."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print it now or later."""
        if tells_of_connection(record):
            later = threading.Timer(PATIENCE_SECONDS, self._print, (record,))
            later.daemon = True
            later.start()
        else:
            self._print(record)

    def _print(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            print(self.format(record), file=sys.stderr, flush=True)


def tells_of_connection(record: logging.LogRecord) -> bool:
    """Whether it reports an exception that a lost connection raises."""
    reported = record.args if isinstance(record.args, tuple) else ()
    return any(
        isinstance(one, ConnectionError)
        or (isinstance(one, RuntimeError | OSError) and any(word in str(one) for word in _OF_CONNECTIONS))
        for one in reported
    )
