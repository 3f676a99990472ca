"""Two versions of Satchel on the same model, in turns: how much faster or slower the second is.

    python benchmarks/two_versions.py \\
        before/bin/satchel before.satchel after/bin/satchel after.satchel --rounds 9

Each version runs in an environment of its own with a program that it exported itself. One turn is
one `satchel bench` of each, in changing order; the table has the median of the turns' ratios, and
the range in which the middle half of them lies, since a machine's speed drifts between turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from satchel.sweeps.processes import run_json

FIELDS = ("prefill_tok_s", "decode_tok_s")


def turns(sides: list[tuple[str, str]], options: list[str], rounds: int) -> list[list[Any]]:
    """What each side's bench said, turn by turn."""
    found: list[list[Any]] = [[], []]
    with tempfile.TemporaryDirectory() as logs:
        for turn in range(rounds):
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                satchel, program = sides[side]
                command = [satchel, "bench", program, *options, "--json"]
                found[side].append(run_json(command, Path(logs) / f"{side}.log"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for side in ("before", "after"):
        parser.add_argument(f"{side}_satchel", metavar=f"{side.upper()}_SATCHEL")
        parser.add_argument(f"{side}_program", metavar=f"{side.upper()}_PROGRAM")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sides = [
        (given.before_satchel, given.before_program),
        (given.after_satchel, given.after_program),
    ]
    options = [
        f"--{n.replace('_', '-')}={getattr(given, n)}"
        for n in ("threads", "prompt_tokens", "new_tokens")
    ] + ["--runs=1"]
    before, after = turns(sides, options, given.rounds)
    result = {}
    for field in FIELDS:
        ratios = [b[field] / a[field] for a, b in zip(before, after, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        result[field] = {
            "before": statistics.median(one[field] for one in before),
            "after": statistics.median(one[field] for one in after),
            "ratio": middle,
            "middle_half": [low, high],
        }
    if given.json:
        print(json.dumps(result))
        return
    for field, row in result.items():
        print(
            f"{field:14} {row['before']:8.1f} before, {row['after']:8.1f} after: "
            f"{row['ratio']:.3f} x (middle half {row['middle_half'][0]:.3f} to "
            f"{row['middle_half'][1]:.3f})"
        )


if __name__ == "__main__":
    main()
