"""The three phases: what each one runs, and how they compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import satchel
from models.quantized_check import QuantizedPair
from satchel.backends.reference import ReferenceInstance
from satchel.errors import EvaluationError, ExecutionError
from satchel.eval import EvaluationOptions, evaluate
from satchel.eval.likelihood import log_likelihoods
from satchel.eval.perplexity import Perplexity, compare
from satchel.eval.phases import PhaseMaker, check_phases
from satchel.exporter import ExportOptions, prepare_export
from satchel.graph.reference import ReferenceInterpreter
from satchel.llm.session import Session
from satchel.program.stored_graphs import read_graphs
from satchel.runtime.program import Program
from satchel.sources.catalog import CATALOG
from support.tiny_llm import write_tiny_llm
from support.tiny_models import logits_of, tiny_model, write_checkpoint

TOKENS = [(11 * i + 5) % 250 for i in range(40)]


def options(text: Path, *phases: str, **more: object) -> EvaluationOptions:
    return EvaluationOptions(text=text, window=64, phases=phases, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["llama", "gemma2", "phi3", "qwen2"])
def test_graphs_read_from_the_file_are_those_that_were_written(family: str, tmp_path: Path) -> None:
    """Bit for bit in the reference, with reshapes that the file leaves out."""
    extra = {"phi3": {"pad_token_id": 0}, "gemma2": {"head_dim": 16}}
    model = tiny_model(family, **extra.get(family, {}))
    folder = write_checkpoint(tmp_path / "model", model)
    job = prepare_export(folder, ExportOptions(context=64))
    program = Program(job.run(tmp_path / "p.satchel"))
    written = {graph.name: graph for graph in job.graphs}
    read = read_graphs(program)
    assert [n.op for n in read["kv_forward"].nodes].count("linear") == [
        n.op for n in written["kv_forward"].nodes
    ].count("linear")
    arrays = {"tokens": np.array(TOKENS), "position": np.arange(len(TOKENS)), "rows": np.arange(40)}
    arrays["sequence"] = np.zeros(len(TOKENS))
    results = [
        ReferenceInterpreter(lambda w: program.weight(w.name)).run(graph, arrays)["logits"]
        for graph in (written["prefill_forward"], read["prefill_forward"])
    ]
    np.testing.assert_array_equal(*results)


def test_qdq_of_a_float_program_is_transformers(tmp_path: Path) -> None:
    """The graph and weights of an fp32 file, run by the reference."""
    model = tiny_model("qwen3", head_dim=16)
    folder = write_checkpoint(tmp_path / "model", model)
    path = satchel.export(folder, tmp_path / "p.satchel", recipe="fp32", context=64)
    session = Session(Program(path), instance=ReferenceInstance(Program(path)))
    found = np.concatenate(list(session.logits_of(TOKENS)))
    wanted = logits_of(model, np.array(TOKENS, np.int32))
    np.testing.assert_allclose(found, wanted, atol=2e-4)


def test_device_is_qdq_where_it_rounds_alike(checkpoint: Path, tmp_path: Path) -> None:
    """Rounding turns the last bit of a float into a whole step, for either of the two. With the
    reference on the native core's side of each border, the perplexities are the same."""
    pair = QuantizedPair(checkpoint, tmp_path / "p.satchel", context=128)
    tokens = np.array([(7 * i * i + 3) % 256 for i in range(120)], np.int32)
    block = {"tokens": tokens, "position": [0], "rows": np.arange(119)}
    nll = [
        -log_likelihoods(each, tokens[1:])[0].mean()
        for each in pair.run("prefill_forward", **block)
    ]
    assert abs(np.exp(nll[0] - nll[1]) - 1) < 1e-3 / 10


def test_three_phases(program: Path, checkpoint: Path, text: Path) -> None:
    document = evaluate(
        program, options(text, "device", "fp", "qdq", checkpoint=checkpoint, limit=300)
    )
    assert list(document["phases"]) == ["fp", "qdq", "device"]
    fp, qdq, device = (document["phases"][p] for p in ("fp", "qdq", "device"))
    assert fp["tokens"] == qdq["tokens"] == device["tokens"] == document["tokens"] == 300 - 5
    # A model of random weights: quantisation changes it a lot more than rounding borders do.
    assert abs(device["nll"] - qdq["nll"]) < abs(device["nll"] - fp["nll"])
    assert document["checksum"] == Program(program).checksum


def test_the_difference_of_device_and_qdq_comes_with_its_error(program: Path, text: Path) -> None:
    """numpy's weighted mean and its standard error over windows, all of the same length."""
    ours, theirs = np.array([60.0, 70.0, 68.0, 75.0]), np.array([61.0, 69.0, 69.0, 73.0])
    one, other = (
        Perplexity(float(a.sum() / 40), 40, 0.0, 0, tuple((float(x), 10) for x in a))
        for a in (ours, theirs)
    )
    found = compare(one, other)
    rates = (ours - theirs) / 10
    assert found["difference"] == pytest.approx(np.exp(rates.mean()) - 1)
    assert found["stderr"] == pytest.approx(rates.std(ddof=1) / np.sqrt(4))
    document = evaluate(program, options(text, "qdq", "device", limit=60))
    assert document["device_over_qdq"]["stderr"] is None  # one window
    assert evaluate(program, options(text, "device", limit=60))["device_over_qdq"] is None


def test_fp_is_the_float_program(
    program: Path, checkpoint: Path, text: Path, tmp_path: Path
) -> None:
    found = evaluate(program, options(text, "fp", checkpoint=checkpoint))
    plain = satchel.export(checkpoint, tmp_path / "fp32.satchel", recipe="fp32", context=64)
    wanted = evaluate(plain, options(text, "device"))
    assert found["phases"]["fp"]["nll"] == wanted["phases"]["device"]["nll"]


def test_kv_programs_have_all_phases(checkpoint: Path, text: Path, tmp_path: Path) -> None:
    path = satchel.export(checkpoint, tmp_path / "kv.satchel", context=64, mode="kv")
    hybrid = satchel.export(checkpoint, tmp_path / "hybrid.satchel", context=64)
    phases = evaluate(path, options(text, "fp", "qdq", "device", checkpoint=checkpoint, limit=90))
    same = evaluate(hybrid, options(text, "device", limit=90))
    assert phases["phases"]["device"]["nll"] == same["phases"]["device"]["nll"]
    assert len(phases["phases"]) == 3


def test_compile_with_one_text_and_evaluate_with_others(
    program: Path, text: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("0123456789" * 20)
    first, second = (evaluate(program, options(t, "device")) for t in (text, other))
    assert first["checksum"] == second["checksum"]
    assert first["text_digest"] != second["text_digest"]
    assert first["phases"]["device"]["ppl"] != second["phases"]["device"]["ppl"]


def test_unknown_phases_are_an_error() -> None:
    with pytest.raises(EvaluationError, match=r"no phase 'float'.*fp, qdq, device"):
        check_phases(["fp", "float"])
    with pytest.raises(EvaluationError, match="no phase was chosen"):
        check_phases([])


def test_fp_without_a_checkpoint_is_an_error(program: Path, text: Path) -> None:
    with pytest.raises(EvaluationError, match=r"float phase needs the checkpoint.*with checkpoint"):
        evaluate(program, options(text, "fp", "device"))


def test_fp_finds_the_checkpoint_of_a_name_in_the_cache(
    checkpoint: Path, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = CATALOG["smollm2-135m"]
    kept = own_cache / "checkpoints" / entry.name / "weights.gguf"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"")
    job = prepare_export(checkpoint, ExportOptions(context=64))
    place = {"file": kept.name}
    described = replace(job.portable.describe({}), name=entry.name, provenance=place)
    portable = replace(job.portable, describe=lambda _: described)
    path = job.with_portable(portable).run(tmp_path / "named.satchel")
    monkeypatch.setattr(PhaseMaker, "_check_model", lambda *_: None)
    assert PhaseMaker(Program(path), ("fp",)).checkpoint == kept


def test_a_checkpoint_of_another_model_is_an_error(
    program: Path, text: Path, tmp_path: Path
) -> None:
    other = write_tiny_llm(tmp_path / "other", num_hidden_layers=1)
    with pytest.raises(EvaluationError, match="is of another model: its parameters is"):
        evaluate(program, options(text, "fp", checkpoint=other))


def test_the_reference_has_no_other_methods(program: Path) -> None:
    with pytest.raises(ExecutionError, match="no method 'forward'"):
        ReferenceInstance(Program(program)).method("forward")
