"""Flags of the published guides that are none here, and what to type instead."""

from __future__ import annotations

from collections.abc import Sequence

from satchel.backends import families

_FIRST = "the model is the first word: satchel {command} NAME"
_ALWAYS = "leave it out: it is always so"
_IN_THE_FILE = "leave it out: the file holds it"
_INSTEAD = {
    "--decoder-model": _FIRST,
    "--model": _FIRST,
    "--model-name": _FIRST,
    "--model-path": "the file is the first word: satchel {command} FILE",
    "--artifact": "write -o FOLDER/",
    "--output-name": "write -o NAME",
    "--output-dir": "write -o FOLDER/",
    "--output-path": "write -o NAME",
    "--soc-model": "the chip is part of --target, which satchel export --help explains",
    "--compile-only": "leave it out: an export compiles, and satchel run runs",
    "--pre-gen-pte": "leave it out: satchel run FILE takes what was exported",
    "--ci": "write --random-weights",
    "--quantize": "write --recipe int8, or 8da4w for a language model",
    "--force-fp16": "write --recipe fp16",
    "--dtype": "write --recipe fp32 or fp16",
    "--tasks": "write --calibrate task:NAME",
    "--limit": "write --calibrate-samples N",
    "--num-samples": "write --calibrate-samples N",
    "--max-length": "write --calibrate-length N",
    "--ar-len": "write --prefill-ar-len N",
    **dict.fromkeys(("--xnnpack", "-X"), "leave it out: --target cpu is usual"),
    "--tokenizer-bin": "leave it out: --tokenizer_model is enough",
    "--quant-attrs-path": _IN_THE_FILE,
    "--tokenizer-path": _IN_THE_FILE,
    "--decoder-model-version": _IN_THE_FILE,
    "--system-prompt": "write --system TEXT",
    "--run-lm-eval": "use satchel eval FILE --tasks NAME",
    **dict.fromkeys(
        ("--use-kv-cache", "--use-sdpa-with-kv-cache", "--delegate", "--use-partitioner"), _ALWAYS
    ),
    **dict.fromkeys(("--build", "--build-folder", "-b"), "leave it out: nothing is built"),
    "--prompt": 'write --calibrate "prompt:TEXT", or give it to satchel run',
    "--max-new-tokens": "write --new-tokens N",
    "-m": "the model is the first word, and a chip part of --target",
    "-a": "write -o FOLDER/",
    "-s": "leave it out: satchel device finds what is connected",
    "-q": "write --recipe int8",
    "-fp16": "write --recipe fp16",
    "-precision": "write --recipe fp16 or fp32",
    "-c": "write --units all",
    "-d": "write --recipe fp32 or fp16",
    "-E": "write --embedding-quantize BITS,GROUP",
    "-qat": "leave it out: the checkpoint says it, and --preq_mode how",
    "-lora": "write --lora_rank N",
    **dict.fromkeys(("-kv", "-n"), _ALWAYS),
}
# Of openai-whisper.
_OF_TRANSCRIBE = {
    "--word-timestamps": "write --words",
    "--condition-on-previous-text": "leave it out, or write --no-condition",
    "--temperature-increment-on-fallback": "write --temperatures T,T,…",
    "--verbose": "leave it out: -o FOLDER prints no text",
    "--fp16": "leave it out: satchel export --recipe fp16 has chosen it",
}
# Of runners, where they differ.
_OF_A_PROGRAM = {
    "-m": "the file is the first word: satchel {command} FILE",
    "-t": _IN_THE_FILE,
    "-c": _IN_THE_FILE,
    "--ar-len": "leave it out: satchel export --prefill-ar-len N has chosen it",
}


def instead_of(words: Sequence[str], command: str) -> str:
    """What to type for each of these words that the guides have; nothing if none is theirs.

    Their switches for a backend are targets here.

    >>> instead_of(["--decoder-model", "qwen3"], "export")
    'for --decoder-model the model is the first word: satchel export NAME'
    """
    targets = {family: f"write --target {family}" for family in families()}
    known = _INSTEAD if command == "export" else _INSTEAD | _OF_A_PROGRAM
    if command == "transcribe":
        known = known | _OF_TRANSCRIBE
    found: dict[str, str] = {}
    for flag in (word.partition("=")[0] for word in words if word.startswith("-")):
        if flag.lstrip("-") in targets:
            found[flag] = targets[flag.lstrip("-")]
        elif flag in known:
            found[flag] = known[flag].format(command=command)
    return "; ".join(f"for {flag} {advice}" for flag, advice in found.items())
