"""What this machine can do at most: reading memory, and multiplying bytes.

python benchmarks/limits.py --threads 2 --json
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from satchel import _native

TABLES_WITH_LOOP = ("avx2", "avx512", "amx")


def busy_share(seconds: float = 1.0) -> float | None:
    """How much of the CPU others use now; None where the system does not tell."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None

    def ticks() -> tuple[int, int]:
        values = [int(value) for value in stat.read_text().split("\n", 1)[0].split()[1:9]]
        return values[3] + values[4], sum(values)  # idle and waiting for a disk; all

    idle, total = ticks()
    time.sleep(seconds)
    later_idle, later_total = ticks()
    return 1 - (later_idle - idle) / max(later_total - total, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    kernels = _native.kernels
    result: dict[str, Any] = {
        "busy_share": busy_share(),
        "read_bandwidth_bytes_s": kernels.measure_read_bandwidth(arguments.threads),
        "int8_macs_s": {
            table: kernels.measure_int8_rate(arguments.threads, table)
            for table in kernels.available()
            if table in TABLES_WITH_LOOP
        },
        "selected": kernels.selected(),
    }
    if arguments.json:
        print(json.dumps(result))
        return
    if result["busy_share"] is not None:
        print(f"others use     {result['busy_share']:8.0%} of the CPU")
    print(f"read bandwidth {result['read_bandwidth_bytes_s'] / 1e9:8.1f} GB/s")
    for table, rate in result["int8_macs_s"].items():
        print(f"int8, {table:8} {rate / 1e9:8.0f} G multiply-accumulates/s")


if __name__ == "__main__":
    main()
