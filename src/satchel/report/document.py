"""What a report shows of each program: its file, and what was measured of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from satchel.errors import ConfigError
from satchel.runtime.program import Program

# The first of these whose word is in a weight's name is the part that it belongs to.
_PARTS = (
    ("adapters", (".lora_A", ".lora_B")),
    ("attention", ("attn", "attention")),
    ("MLP", ("mlp",)),
    ("embedding", ("embed", "wte")),
    ("head", ("lm_head",)),
)
_OTHER_WEIGHTS = "norms and constants"
COLOURS = 6  # that the page has for programs
_MOST_PARTS = 6  # of a model whose parts have no names that are known


def describe_program(program: Program) -> dict[str, Any]:
    """What the file says of itself; measurements are added by :func:`add_results`."""
    metadata = program.metadata
    recipe = metadata.get("recipe")
    return {
        "file": program.path.name,
        "name": metadata.get("name"),
        "architecture": metadata.get("architecture"),
        "kind": metadata.get("kind"),
        "parameters": metadata.get("parameters"),
        "recipe": recipe.get("description") if isinstance(recipe, dict) else None,
        "context": metadata.get("context"),
        "target": metadata.get("target"),
        "checksum": program.checksum,
        "file_size_bytes": program.size,
        "parts": size_by_part(program),
        "weight_error": _numbers(metadata.get("weight_error")),
        "layer_error": _lists(metadata.get("layer_error")),
        "placement": _placement(metadata.get("placement")),
        "bench": None,
        "evals": [],
    }


# A program's metadata may hold anything, so that only what can be shown is taken from it.


def _is_number(value: object) -> bool:
    usual = isinstance(value, (int, float)) and not isinstance(value, bool)
    return usual and 0 <= value < 1e18  # type: ignore[operator]


def _numbers(given: object) -> dict[str, float]:
    pairs = given.items() if isinstance(given, dict) else ()
    return {str(key): value for key, value in pairs if _is_number(value)}


def _lists(given: object) -> dict[str, list[float]]:
    pairs = given.items() if isinstance(given, dict) else ()
    return {
        str(key): values
        for key, values in pairs
        if isinstance(values, list) and all(map(_is_number, values))
    }


def _placement(given: object) -> dict[str, Any]:
    known = given if isinstance(given, dict) else {}
    falls = known.get("fallbacks")
    nodes = _numbers(known.get("nodes"))
    return {"nodes": nodes, "fallbacks": falls if isinstance(falls, list) else []}


def label_programs(programs: Sequence[dict[str, Any]]) -> None:
    """A name that tells each from the others, and a colour."""
    files = Counter(p["file"] for p in programs)
    for number, program in enumerate(programs):
        name = str(program["file"]).removesuffix(".satchel")
        again = files[program["file"]] > 1
        program["label"] = f"{name} ({program['checksum'][:6]})" if again else name
        program["colour"] = number % COLOURS
        program["letter"] = _letter(number)


def _letter(number: int) -> str:
    """
    >>> [_letter(number) for number in (0, 25, 26)]
    ['A', 'Z', 'AA']
    """
    first = _letter(number // 26 - 1) if number >= 26 else ""
    return first + chr(ord("A") + number % 26)


def size_by_part(program: Program) -> dict[str, int]:
    """Bytes of each part; they add up to the file."""
    is_llm = program.is_language_model
    sizes: Counter[str] = Counter()
    for weight in program.weights:
        part = part_of(weight["name"]) if is_llm else weight["name"].split(".")[0]
        sizes[part] += weight["codes_size"] + weight["scales_size"]
    if not is_llm and len(sizes) > _MOST_PARTS:
        kept = dict(sizes.most_common(_MOST_PARTS - 1))
        sizes = Counter(kept | {"other weights": sizes.total() - sum(kept.values())})
    tokenizer = next((s["size"] for s in program.sections if s["name"] == "tokenizer"), 0)
    order = [name for name, _ in _PARTS] + [_OTHER_WEIGHTS]
    parts = {name: sizes[name] for name in (order if is_llm else sizes) if sizes[name]}
    if tokenizer:
        parts["tokenizer"] = tokenizer
    parts["graphs and the rest"] = program.size - sum(parts.values())
    return parts


def part_of(weight: str) -> str:
    """
    >>> part_of("model.layers.3.self_attn.q_proj.weight")
    'attention'
    """
    found = (part for part, words in _PARTS if any(word in weight for word in words))
    return next(found, _OTHER_WEIGHTS)


def read_results(path: str | Path) -> dict[str, Any]:
    """What ``satchel bench --json`` or ``satchel eval --json`` printed into a file."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ConfigError(f"{path} is not JSON", "Save what --json printed.") from None
    if not isinstance(document, dict) or not isinstance(document.get("checksum"), str):
        raise ConfigError(
            f"{path} holds no results", "Save what satchel bench or eval print with --json."
        )
    if not _is_bench(document) and not _is_eval(document):
        raise ConfigError(
            f"{path} holds neither a bench's nor an eval's results", "Measure again with --json."
        )
    return document


_BENCH_NUMBERS = (
    *("decode_tok_s", "prefill_tok_s", "ttft_s", "bandwidth_share", "peak_rss_bytes"),
    *("prompt_tokens", "new_tokens", "threads", "runs"),
)
_MODULE_NUMBERS = ("median_s", "calls_s", "peak_rss_bytes", "threads", "runs")
_GUESSING = ("speedup", "tokens_per_step")


def is_module_bench(document: Mapping[str, Any]) -> bool:
    """Whether this is the speed of a model that is no language model."""
    return all(_is_number(document.get(name)) for name in _MODULE_NUMBERS)


def _is_bench(document: Mapping[str, Any]) -> bool:
    if is_module_bench(document):
        return True
    guessing = document.get("lookahead")
    whole = all(_is_number(document.get(name)) for name in _BENCH_NUMBERS)
    return whole and (
        guessing is None
        or (isinstance(guessing, dict) and all(_is_number(guessing.get(g)) for g in _GUESSING))
    )


def _is_eval(document: Mapping[str, Any]) -> bool:
    phases, tasks = document.get("phases"), document.get("tasks")
    if not isinstance(phases, dict) or not isinstance(tasks, dict):
        return False
    scored = all(isinstance(p, dict) and _is_number(p.get("ppl")) for p in phases.values())
    cut = not phases or all(_is_number(document.get(name)) for name in ("tokens", "window"))
    by_phase = [
        found for task in tasks.values() if isinstance(task, dict) for found in task.values()
    ]
    nested = all(isinstance(task, dict) for task in tasks.values())
    return scored and cut and nested and all(isinstance(found, dict) for found in by_phase)


def add_results(
    programs: Sequence[dict[str, Any]], results: Iterable[tuple[str, dict[str, Any]]]
) -> None:
    """Give each result, with the name of its file, to the program whose checksum it has."""
    for path, document in results:
        owners = [p for p in programs if p["checksum"] == document["checksum"]]
        if not owners:
            raise ConfigError(
                f"{path} was measured with another program (checksum {document['checksum'][:12]})",
                "Give that program too, or measure again.",
            )
        for owner in owners:
            if _is_bench(document):
                owner["bench"] = document
            else:
                owner["evals"].append(document)
