"""How time grows with length, as a plot: prefill with the prompt, decode with the context.

    python benchmarks/growth.py llama-1b.satchel smollm2.satchel --output docs/growth.png

Needs matplotlib, which Satchel itself does not: pip install matplotlib
Each program is measured in a process of its own; lengths past its context are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lengths import numbers
from limits import busy_share

import satchel
from satchel.sweeps.processes import Failed, run_json

HERE = Path(__file__).resolve().parent
PROMPTS = [16, 32, 64, 128, 256, 512, 1024, 1536, 2048]
CONTEXTS = [16, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048]
COLORS = ["#1f6feb", "#d1570b", "#1a7f37", "#8250df", "#bf3989"]
INK, QUIET = "#1f2328", "#6e7781"


def measure(path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    program = satchel.load(path)
    room = int(program.states[0]["shape"][1])
    prompts = ",".join(str(n) for n in arguments.prompts if n <= room)
    contexts = ",".join(str(n) for n in arguments.contexts if n + 16 <= room)
    command = [sys.executable, str(HERE / "lengths.py"), str(path), "--json"]
    command += [f"--prompts={prompts}", f"--contexts={contexts}"]
    command += [f"--threads={arguments.threads}", f"--runs={arguments.runs}"]
    print(f"measuring {path.name} …", file=sys.stderr, flush=True)
    result = run_json(command, Path(arguments.log or f"{path}.growth.log"))
    result["name"] = str(program.metadata.get("name", path.stem))
    return result


def _every_512() -> Any:
    from matplotlib.ticker import MultipleLocator

    return MultipleLocator(512)


def style(axes: Any, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, loc="left", fontsize=12, color=INK, pad=12)
    axes.set_xlabel(x_label, color=QUIET)
    axes.set_ylabel(y_label, color=QUIET)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(_every_512())
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#d0d7de", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=QUIET, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#d0d7de")


def draw_line(axes: Any, points: dict[str, float], unit: float, color: str, label: str) -> None:
    lengths = [int(length) for length in points]
    times = [seconds * unit for seconds in points.values()]
    axes.plot(lengths, times, color=color, linewidth=2, marker="o", markersize=4, label=label)


def draw(results: list[dict[str, Any]], output: Path, busy: float) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    mpl.rcParams["font.size"] = 10
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.6))
    for result, color in zip(results, COLORS, strict=False):
        name, prefill, decode = result["name"], result["prefill_s"], result["decode_s"]
        draw_line(left, prefill, 1, color, name)
        draw_line(right, decode, 1000, color, name)
        shortest = min((int(n) for n in prefill if int(n) >= 256), default=None)
        if shortest:
            # What it would be if every token took as long as in a prompt of 256.
            last = max(int(n) for n in prefill)
            end = prefill[str(shortest)] / shortest * last
            left.plot([0, last], [0, end], color=color, linewidth=1, linestyle=(0, (2, 3)))
    style(left, "Reading a prompt", "prompt, tokens", "seconds")
    style(right, "Writing one more token", "context before it, tokens", "milliseconds")
    left.plot([], [], color=QUIET, linewidth=1, linestyle=(0, (2, 3)), label="in proportion to 256")
    left.legend(frameon=False, loc="upper left", labelcolor=INK)
    kinds = sorted({f"{r['threads']} threads, {r['kernels']} kernels" for r in results})
    note = f"{'; '.join(kinds)}; the fastest of some runs; made by benchmarks/growth.py"
    figure.text(0.995, 0.01, note, fontsize=8, color=QUIET, ha="right")
    if busy >= 0.1:
        warning = f"measured on a busy machine (others used {busy:.0%} of the CPU): do not use"
        figure.text(0.01, 0.01, warning, fontsize=9, color="#cf222e", ha="left")
    figure.tight_layout(rect=(0, 0.03, 1, 1), w_pad=3)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=160, facecolor="white")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="+", type=Path, metavar="PROGRAM")
    parser.add_argument("--output", type=Path, default=HERE.parent / "docs" / "growth.png")
    parser.add_argument("--prompts", type=numbers, default=PROMPTS, metavar="N,N,…")
    parser.add_argument("--contexts", type=numbers, default=CONTEXTS, metavar="N,N,…")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--log", type=Path, help="default: beside the program")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON too")
    arguments = parser.parse_args()
    busy = busy_share() or 0.0
    try:
        results = [measure(path, arguments) for path in arguments.programs]
    except Failed as reason:
        sys.exit(str(reason))
    draw(results, arguments.output, busy)
    if arguments.json:
        print(json.dumps(results))
    else:
        print(arguments.output)


if __name__ == "__main__":
    main()
