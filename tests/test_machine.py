"""What a process says that it took."""

from __future__ import annotations

import subprocess
import sys

import pytest

LARGE = """
import subprocess, sys
from satchel.machine import current_rss, note_children, peak_rss, peak_with_children
block = b"x" * 200_000_000
del block
subprocess.run([sys.executable, "-c", "pass"], check=True)
note_children(1000)
print(peak_rss() - current_rss(), peak_with_children() - peak_rss())
note_children(500_000_000)
print(peak_with_children() - current_rss())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux that counts so")
def test_a_process_that_is_started_does_not_count_its_parents_memory() -> None:
    """Linux gives a child the largest size of the process that it was started from."""
    done = subprocess.run([sys.executable, "-c", LARGE], stdout=subprocess.PIPE, check=True)
    freed, more, together = map(int, done.stdout.split())
    assert freed > 150_000_000 and more == 0
    assert 490_000_000 < together < 510_000_000
