"""Settings of all tests. That this file is here makes ``support`` importable from each."""

from __future__ import annotations

import os
import signal

# Before numpy and torch are loaded: the models are tiny, and threads would only cost time.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


# A shell starts jobs in the background with interrupts ignored, which the processes that tests
# interrupt would inherit.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    from hypothesis import settings

    # No deadline on a busy machine, and the same examples in every run.
    settings.register_profile("satchel", deadline=None, derandomize=True)
    settings.load_profile("satchel")
