"""The monitor as the command starts it: `python -m stoker.monitoring RUN`."""

from __future__ import annotations

import sys

from stoker.monitoring.watching import main

if __name__ == "__main__":
    sys.exit(main())
