"""Exports that are refused because they are worse than allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import satchel
from satchel.cli.main import main
from satchel.errors import ConfigError, EvaluationError, QualityError
from satchel.eval import EvaluationOptions, evaluate
from satchel.eval.gate import GatedExport, QualityGate
from satchel.eval.layer_costs import LayerCost, describe_costs, keep_in_float
from satchel.exporter import ExportOptions, prepare_export
from satchel.runtime.program import Program

OPTIONS = ExportOptions(context=64)


def gated(checkpoint: Path, text: Path, allowed: float, limit: int = 200) -> GatedExport:
    job = prepare_export(checkpoint, OPTIONS)
    return GatedExport(checkpoint, job, QualityGate(allowed, text, limit))


def test_a_good_enough_program_is_what_export_writes(
    checkpoint: Path, text: Path, tmp_path: Path
) -> None:
    output = tmp_path / "good.satchel"
    quality = gated(checkpoint, text, 1e9).run(output)
    plain = satchel.export(checkpoint, tmp_path / "plain.satchel", context=64)
    assert output.read_bytes() == plain.read_bytes()
    assert sorted(p.name for p in tmp_path.glob("*.satchel")) == ["good.satchel", "plain.satchel"]
    phases = evaluate(
        output,
        EvaluationOptions(
            text=text, limit=200, phases=("fp", "device"), checkpoint=checkpoint, restart=True
        ),
    )["phases"]
    assert quality["fp_ppl"] == phases["fp"]["ppl"]
    assert quality["device_ppl"] == phases["device"]["ppl"]
    assert quality["increase"] == quality["device_ppl"] - quality["fp_ppl"]


def test_a_worse_program_is_refused_and_nothing_is_left(
    checkpoint: Path, likely_text: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "outputs"
    folder.mkdir()
    (folder / "there.satchel").write_text("mine")
    with pytest.raises(QualityError) as caught:
        gated(checkpoint, likely_text, 0.0).run(folder / "new.satchel")
    assert "and 0 is allowed" in caught.value.message
    assert "one kind in float at a time, " in caught.value.advice
    assert "model.layers.*." in caught.value.advice
    with pytest.raises(QualityError):
        gated(checkpoint, likely_text, 0.0).run(folder / "there.satchel", overwrite=True)
    assert [p.name for p in folder.iterdir()] == ["there.satchel"]
    assert (folder / "there.satchel").read_text() == "mine"


def test_a_kind_of_layer_in_float(checkpoint: Path, text: Path, tmp_path: Path) -> None:
    """With every kind in float, the program computes what an fp32 one with an f16 cache does."""
    job = prepare_export(checkpoint, OPTIONS)
    for kind in ("model.embed_tokens.weight", "model.layers.*.weight"):
        job = keep_in_float(job, kind)
    path = job.run(tmp_path / "float.satchel")
    kinds = {w["encoding"] for w in Program(path).weights}
    assert kinds == {"matrix_f32", "f32"}
    plain = satchel.export(checkpoint, tmp_path / "fp32.satchel", recipe="fp32", context=64)
    found, wanted = (
        evaluate(p, EvaluationOptions(text=text, limit=100))["phases"]["device"]["nll"]
        for p in (path, plain)
    )
    assert abs(found - wanted) < 1e-3


def test_what_is_said_of_the_layers() -> None:
    costs = [LayerCost("a", 0.01, 2.0, 99), LayerCost("b", 0.2, 0.5, 99), LayerCost("c", 1.0, None)]
    assert describe_costs(costs).endswith(
        "(one kind in float at a time, 99 tokens): a 2.000, b 0.500."
    )
    assert "largest weight errors are b 0.2000" in describe_costs([LayerCost("b", 0.2, -1.0)])
    assert "No layer is quantised" in describe_costs([])


def test_the_time_for_the_layers_is_bounded(
    checkpoint: Path, likely_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.eval.layer_costs.SECONDS", -1.0)
    with pytest.raises(QualityError, match="largest weight errors are"):
        gated(checkpoint, likely_text, 0.0).run(tmp_path / "o.satchel")


def test_the_text_is_checked_before_the_export(checkpoint: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("a")
    with pytest.raises(EvaluationError, match="has 1 tokens"):
        gated(checkpoint, short, 0.5)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="cannot be allowed to rise"):
            QualityGate(wrong, short)


def test_the_command(
    checkpoint: Path, likely_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "o.satchel"
    call = ["export", str(checkpoint), "-o", str(output), "--context", "64"]
    gate = ["--eval-text", str(likely_text), "--eval-limit", "100", "--max-ppl-increase"]
    assert main([*call, *gate, "0"]) == 1
    assert not output.exists()
    assert "the perplexity rises by" in capsys.readouterr().err
    assert main([*call, *gate, "1e9", "--json"]) == 0
    quality = json.loads(capsys.readouterr().out)["quality"]
    assert quality["tokens"] == 98 and quality["max_ppl_increase"] == 1e9
    assert main([*call, *gate, "1e9", "--force"]) == 0
    assert "over float's, on 98 tokens" in capsys.readouterr().out
    assert main([*call, *gate[:2]]) == 2
    assert "need each other" in capsys.readouterr().err
