"""Damaged programs, templates, checkpoints and inputs without end, and how many were tried.

    python tools/fuzz.py --seconds 60 --jobs 2      # the native fuzzer, built with sanitizers
    python tools/fuzz.py mixed --seconds 600        # ten minutes of everything
    python tools/fuzz.py soak --seconds 3600        # an hour of ordinary use: memory stays flat

    # on a machine with g++ and cmake alone: good programs are made here, and taken along
    python tools/fuzz.py --seeds build/seeds --seconds 1
    python3 tools/fuzz.py --seeds build/seeds --preset release --jobs 16 --seconds 480

``native`` changes bytes of sections and puts right places and checksums around them;
``structure`` (tests/program/mutations.py) changes a program's values, nodes and weights, and what
loads is run; ``templates`` puts chat templates together; ``text`` damages compiled tokenizers and
the native templates; ``inputs`` (tools/input_worker.py) damages checkpoints, ONNX models, pictures,
sound, signatures and experiments; ``mixed`` takes turns with all of them. Runs of five minutes and
more begin with programs that hear, look and choose experts too, which take a while to make.
A crash, a hang or a finding of a sanitizer ends with status 1 and says how to see it again. Else
counts are printed as JSON: ``files`` in all, ``wall_seconds``, and those of each kind; ``slowest``
is in seconds of the thread itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
BUILD = ROOT / "build" / "asan"
# How many of the seeds are made to have their structure changed; the others are exports.
STRUCTURED = 2
# The sanitizers' own limits: leaks are looked for by `soak`.
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=4096",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def build_fuzzers(preset: str, names: list[str]) -> Path:
    """Native fuzzers of a CMake preset; the folder that they are in."""
    folder = ROOT / "build" / preset
    generator = [] if shutil.which("make") else ["-G", "Ninja"]
    cores = str(os.cpu_count() or 1)
    for command in (
        ["cmake", "--preset", preset, *generator],
        ["cmake", "--build", str(folder), "--target", *names, "--parallel", cores],
    ):
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    return folder


def write_seeds(folder: Path, all_kinds: bool = False) -> list[Path]:
    """Good programs to begin with: every section, every encoding, sizes that are computed or that a
    run decides, language model and image ops."""
    sys.path[:0] = [str(TESTS), str(TESTS / "program")]
    import satchel
    from support.sized_program import write_sized_program
    from support.small_program import write_small_program
    from support.tiny_llm import write_tiny_llm

    small = write_small_program(folder / "small.satchel")
    sized = write_sized_program(folder / "sized.satchel")
    # Small, because most of the time would else go into what good weights multiply.
    sizes = {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32, "vocab_size": 272}
    checkpoint = write_tiny_llm(folder / "tiny", **sizes)
    seeds = [small, sized]
    for recipe in ("8da4w", "16a8w", "fp16"):
        path = folder / f"{recipe}.satchel"
        options = {"recipe": recipe, "context": 32, "prefill_ar_len": 8}
        seeds.append(satchel.export(checkpoint, path, **options))
    if all_kinds:
        from support.tiny_llava import tiny_llava
        from support.tiny_models import tiny_model, write_checkpoint
        from support.tiny_whisper import export_tiny

        _, looks = tiny_llava(folder / "llava")
        experts = tiny_model("mixtral", num_local_experts=4, num_experts_per_tok=2)
        chooses = write_checkpoint(folder / "experts", experts)
        for name, source in (("looks", looks), ("experts", chooses)):
            seeds.append(satchel.export(source, folder / f"{name}.satchel", context=32))
        seeds.append(export_tiny(folder / "whisper", "8a8w")[1])
    return seeds


def write_texts(seeds: list[Path], folder: Path) -> list[Path]:
    """Compiled tokenizers and templates of programs, each in a file of its own."""
    from satchel.runtime.program import Program

    template = folder / "template.jinja"
    template.write_text("{% for m in messages %}{{ m.role | upper }}: {{ m.content }}{% endfor %}")
    texts = [template]
    for path in seeds[STRUCTURED : STRUCTURED + 2]:
        texts.append(folder / f"{path.stem}.text")
        texts[-1].write_bytes(Program(path).section("text"))
    return texts


def kept_seeds(folder: Path) -> list[Path]:
    """The programs in a folder, which is filled where it is not there."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        write_seeds(folder)
    return sorted(folder.glob("*.satchel"))


def run(command: list[str], seconds: float, **environment: str) -> dict[str, Any]:
    """The counts that a worker prints; a worker that crashes or hangs is a finding."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=2 * seconds + 300,
            env=os.environ | SANITIZERS | environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SystemExit(f"it hangs: {' '.join(command)}") from None
    if done.returncode:
        raise SystemExit(f"{done.stderr[-6000:]}\nfound by: {' '.join(command)}")
    counts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return counts


def native(fuzzer: Path, seeds: list[Path], seconds: float, seed: int) -> dict[str, Any]:
    command = [str(fuzzer), "--seconds", str(seconds), "--seed", str(seed), *map(str, seeds)]
    return run(command, seconds)


def structure(seeds: list[Path], seconds: float, seed: int, folder: Path) -> dict[str, Any]:
    worker = [sys.executable, str(TESTS / "program" / "attack_worker.py"), "random"]
    worker += map(str, seeds[:STRUCTURED])
    limits = ["--seconds", str(seconds), "--seed", str(seed), "--folder", str(folder / str(seed))]
    # Beside what is there: a Satchel with sanitizers.
    paths = [str(TESTS), str(TESTS / "program"), os.environ.get("PYTHONPATH", "")]
    return run([*worker, *limits], seconds, PYTHONPATH=os.pathsep.join(filter(None, paths)))


def templates(seconds: float, seed: int) -> dict[str, Any]:
    worker = [sys.executable, str(TESTS / "llm" / "template_worker.py")]
    return run([*worker, "--seconds", str(seconds), "--seed", str(seed)], seconds)


def text(fuzzer: Path, texts: list[Path], seconds: float, seed: int) -> dict[str, Any]:
    return run([str(fuzzer), str(round(seconds)), str(seed), *map(str, texts)], seconds)


def inputs(seconds: float, seed: int, folder: Path) -> dict[str, Any]:
    worker = [sys.executable, str(ROOT / "tools" / "input_worker.py"), str(folder / f"in{seed}")]
    return run([*worker, "--seconds", str(seconds), "--seed", str(seed)], seconds)


def soak(seconds: float, folder: Path) -> dict[str, Any]:
    """Answers, exports and damaged files over and over; memory at the end as after warming up."""
    worker = [sys.executable, str(ROOT / "tools" / "soak_worker.py"), str(folder)]
    counts = run([*worker, "--seconds", str(seconds)], seconds)
    if counts["grown_bytes"] > max(16 << 20, counts["warm_bytes"] // 20):
        raise SystemExit(f"memory grew: {json.dumps(counts)}")
    return counts


def total(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums of counts, and the slowest of all."""
    names = {name for counts in results for name in counts}
    return {
        name: (max if name.startswith("slowest") else sum)(c.get(name, 0) for c in results)
        for name in sorted(names)
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    turns = ["native", "structure", "templates", "text", "inputs"]
    kinds = [*turns, "mixed", "soak"]
    parser.add_argument("kind", nargs="?", choices=kinds, default="native")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--preset",
        default="asan",
        help="asan, tsan, fuzz, which is soon built, or release, which tries many more files",
    )
    parser.add_argument(
        "--seeds",
        type=Path,
        metavar="FOLDER",
        help="good programs to begin with, made there at first; native needs no other Satchel",
    )
    options = parser.parse_args()
    results: dict[str, Any] = {"seed": options.seed, "seconds": options.seconds}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own_seeds = options.seeds and options.kind == "native"
        long = options.kind == "mixed" and options.seconds >= 300
        seeds = kept_seeds(options.seeds) if own_seeds else write_seeds(folder, long)
        fuzzers = {"native": ["program_fuzzer"], "text": ["text_fuzzer"]}
        wanted = fuzzers.get(options.kind, [])
        if options.kind == "mixed":
            wanted = [name for names in fuzzers.values() for name in names]
        built = build_fuzzers(options.preset, wanted) if wanted else folder
        texts = write_texts(seeds, folder) if "text_fuzzer" in wanted else []

        begin = time.monotonic()

        def one(kind: str, seconds: float, number: int) -> dict[str, Any]:
            seed = options.seed + number
            if kind == "native":
                return native(built / "program_fuzzer", seeds, seconds, seed)
            if kind == "text":
                return text(built / "text_fuzzer", texts, seconds, seed)
            if kind == "inputs":
                return inputs(seconds, seed, folder)
            if kind == "structure":
                return structure(seeds, seconds, seed, folder)
            return templates(seconds, seed)

        if options.kind == "soak":
            results["soak"] = soak(options.seconds, folder)
        else:
            kinds = turns if options.kind == "mixed" else [options.kind]
            with ThreadPoolExecutor(options.jobs) as pool:
                for kind in kinds:
                    jobs = [
                        pool.submit(one, kind, options.seconds / len(kinds), number)
                        for number in range(options.jobs)
                    ]
                    results[kind] = total([job.result() for job in jobs])
            results["files"] = sum(results[kind].get("files", 0) for kind in kinds)
        results["wall_seconds"] = round(time.monotonic() - begin, 1)
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
