"""Language models as .pte files: ExecuTorch's runtime gives what transformers and we give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from models.family_check import decode_only
from models.model_rows import ROWS, ModelRow
from satchel.backends import find_target
from satchel.errors import ConfigError
from satchel.exporter import ExportOptions, ModelExport, prepare_export
from satchel.graph.reference import ReferenceInterpreter
from satchel.program.stored_graphs import read_graphs
from satchel.runtime.program import Program
from support.arrays import integers
from support.tiny_models import logits_of, tiny_model, write_checkpoint

CONTEXT, BLOCK = 64, 16
TOKENS = integers(40, below=258, seed="tokens")
BLOCKS = [16, 1, 16, 1, 1, 5]
TOLERANCE = 1e-4  # XNNPACK's functions are not the reference's to the last bit
WIDE = {"hidden_size": 128, "intermediate_size": 256}
FIRST_ROWS = {row.model_type: row for row in reversed(ROWS)}
EXPERTS = [row for row in FIRST_ROWS.values() if "num_experts_per_tok" in row.config]
CHOSEN = [*FIRST_ROWS.values(), *(r for r in ROWS if r.name in ("soft_caps", "window", "long"))]
CHOSEN = [row for row in CHOSEN if "num_experts_per_tok" not in row.config]


def prepare(source: Path, recipe: str, all_logits: bool = True, **more: Any) -> ModelExport:
    target = find_target("executorch", all_logits=all_logits)
    options = {"recipe": recipe, "context": CONTEXT, "prefill_ar_len": BLOCK} | more
    return prepare_export(source, ExportOptions(target=target, **options))


@pytest.mark.parametrize("row", {row.id: row for row in CHOSEN}.values(), ids=lambda row: row.id)
def test_floats_are_those_of_transformers(tmp_path: Path, open_pte: Any, row: ModelRow) -> None:
    model = tiny_model(row.model_type, **row.config)
    job = prepare(write_checkpoint(tmp_path / "m", model), "fp32")
    path = job.run(tmp_path / "m.pte")
    assert path.stat().st_size == job.plan().file_size
    got = open_pte(path).logits(TOKENS, BLOCKS)
    np.testing.assert_allclose(got, logits_of(model, TOKENS), atol=TOLERANCE)


@pytest.mark.parametrize("row", EXPERTS, ids=lambda row: row.id)
def test_mixtures_of_experts_are_refused(tmp_path: Path, open_pte: Any, row: ModelRow) -> None:
    checkpoint = write_checkpoint(tmp_path / "m", tiny_model(row.model_type, **row.config))
    with pytest.raises(ConfigError, match="mixtures of experts.*target cpu or vulkan"):
        prepare(checkpoint, "fp32")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wide") / "m"
    return write_checkpoint(folder, tiny_model("llama", **WIDE, tie_word_embeddings=True))


def both(job: ModelExport, folder: Path) -> tuple[Program, Path]:
    """The program on the way to the .pte file, and that: with the same weights."""
    portable, made = job.both_forms(folder, threads=2)
    return Program(portable, target="cpu"), made[".pte"]


def greedy(step: Any, tokens: list[int], count: int) -> list[int]:
    text = list(tokens)
    logits = step(text, 0)
    for _ in range(count):
        text.append(int(logits.argmax()))
        logits = step(text[-1:], len(text) - 1)
    return text[len(tokens) :]


def test_the_text_is_that_of_our_program(tmp_path: Path, open_pte: Any, checkpoint: Path) -> None:
    program, path = both(prepare(checkpoint, "fp32", all_logits=False), tmp_path)
    theirs, kv = open_pte(path), program.instance(1).method("kv_forward")
    prompt = TOKENS[:8].tolist()

    def ours(tokens: list[int], start: int) -> Any:
        return [kv.run([t], [start + i])[0] for i, t in enumerate(tokens)][-1]

    def pte(tokens: list[int], start: int) -> Any:
        return theirs.forward(np.array([tokens], np.int64), np.array([start], np.int64))

    assert greedy(pte, prompt, 32) == greedy(ours, prompt, 32)


@pytest.mark.parametrize("recipe", ["8a8w", "8da4w"])
@pytest.mark.parametrize("rounding", ["plain", "search"])
def test_codes_and_scales_are_those_of_the_program(
    tmp_path: Path, open_pte: Any, checkpoint: Path, recipe: str, rounding: str
) -> None:
    """Beside the program's numbers in floats, activations in 8 bits cost theirs as much as ours."""
    job = prepare(checkpoint, recipe, rounding=rounding)
    program, path = both(job, tmp_path)
    assert path.stat().st_size == job.plan().file_size
    theirs = open_pte(path).logits(TOKENS, BLOCKS)
    ours = decode_only(program, TOKENS)
    exact = in_floats(program)
    noise = [float(((got - exact) ** 2).mean() ** 0.5) for got in (theirs, ours)]
    assert 0 < noise[0] < 1.3 * noise[1]
    assert noise[0] < 0.05 * exact.std()
    first, second = np.sort(exact, axis=1)[:, -1], np.sort(exact, axis=1)[:, -2]
    clear = first - second > 6 * noise[0]  # what both choose alike, whatever their rounding
    assert clear.sum() > 10
    assert (theirs.argmax(axis=1) == ours.argmax(axis=1))[clear].all()


def in_floats(program: Program) -> Any:
    """The logits of the program's weights, with activations that are not rounded."""
    graph = read_graphs(program)["prefill_forward"]
    for node in graph.nodes:
        node.attrs.pop("activations", None)
    run = ReferenceInterpreter(lambda weight: program.weight(weight.name)).run
    rows = []
    for at in range(0, len(TOKENS), BLOCK):
        tokens = TOKENS[at : at + BLOCK]
        places = np.arange(len(tokens), dtype=np.int32)
        given = {"tokens": tokens, "position": places + at, "rows": places}
        rows.append(run(graph, given | {"sequence": np.zeros_like(places)})["logits"])
    return np.concatenate(rows)


def test_what_runners_ask(tmp_path: Path, open_pte: Any, checkpoint: Path) -> None:
    path = satchel.export(
        checkpoint, tmp_path / "m.pte", target="executorch", context=CONTEXT, prefill_ar_len=BLOCK
    )
    opened = open_pte(path)
    told = {name: opened.told(name) for name in opened.program.method_names if name != "forward"}
    assert told == {
        "get_vocab_size": [272],
        "get_bos_id": [256],
        "get_eos_ids": [257],
        "get_max_seq_len": [BLOCK],
        "get_max_context_len": [CONTEXT],
        "get_n_layers": [2],
        "use_kv_cache": [True],
        "use_sdpa_with_kv_cache": [True],
        "enable_dynamic_shape": [True],
    }
    assert opened.logits(TOKENS, BLOCKS).shape == (len(BLOCKS), 272)  # of last tokens
    from pytorch_tokenizers import pytorch_tokenizers_cpp as native

    reader = native.HFTokenizer()
    reader.load(str(tmp_path / "m.tokenizer.json"))
    text = "Hello, 12 worlds!"
    ours = satchel.LLM(satchel.export(checkpoint, tmp_path / "m.satchel", context=CONTEXT))
    assert list(reader.encode(text, 0, 0)) == ours.tokenizer.encode(text, add_bos=False)


def test_one_token_at_a_time(tmp_path: Path, open_pte: Any, checkpoint: Path) -> None:
    job = prepare(checkpoint, "fp32", all_logits=False, mode="kv", prefill_ar_len=None)
    opened = open_pte(job.run(tmp_path / "m.pte"))
    assert opened.told("enable_dynamic_shape") == [False]
    model = prepare(checkpoint, "fp32").run(tmp_path / "all.pte")
    whole = open_pte(model).logits(TOKENS, BLOCKS)
    np.testing.assert_allclose(opened.logits(TOKENS, [1] * 40), whole, atol=TOLERANCE)


def test_the_stock_runner_writes_a_text(tmp_path: Path, open_pte: Any, checkpoint: Path) -> None:
    """ExecuTorch's own C++ runner, in a process of its own: it exits on what it dislikes."""
    path = satchel.export(
        checkpoint, tmp_path / "m.pte", target="executorch", context=CONTEXT, prefill_ar_len=BLOCK
    )
    script = f"""
import torch
import executorch.extension.llm.custom_ops.custom_ops, executorch.kernels.quantized
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner
runner = TextLLMRunner({str(path)!r}, {str(path.with_suffix(".tokenizer.json"))!r})
config = GenerationConfig(max_new_tokens=12, temperature=0.0, echo=False)
stats = []
runner.generate("A long prompt, of more than 16 tokens.", config, None, stats.append)
print("tokens", stats[0].num_prompt_tokens, stats[0].num_generated_tokens)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert "tokens 38 " in done.stdout, done.stdout + done.stderr
