"""The monitor as the command starts it: `python -m stoker.monitoring RUN`."""

from __future__ import annotations

import os
import sys

from stoker.monitoring.watching import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a tracker's library that hangs must not hold up the end
