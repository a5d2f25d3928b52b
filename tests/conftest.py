"""One thread each, and the same drawn examples every time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Before anything imports torch or numba: tests run side by side, and forked workers must not meet OpenMP's threads.
for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

settings.register_profile(
    "reproducible",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("reproducible")
