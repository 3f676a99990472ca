"""Language models on the emulator: export, load, run, against the reference's rounded run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from models.model_rows import ROWS
from satchel.backends import open_instance
from satchel.backends.qnn import compiler, export, sizes
from satchel.backends.qnn.binary_info import differences
from satchel.backends.qnn.child import Child
from satchel.backends.qnn.payload import extract, read_manifest
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.cli.main import main
from satchel.errors import BackendError
from satchel.llm.session import Session
from satchel.runtime.program import Instance, Program
from support.arrays import integers
from support.tiny_models import tiny_model, write_checkpoint

pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")

OPTIONS = {"target": "qnn:SM8750", "context": 48, "prefill_ar_len": 12}
PROMPT = integers(17, below=256).tolist()  # more than a block, and not a multiple of it


def _greedy(session: Session, count: int = 6) -> tuple[np.ndarray, list[int]]:
    logits = first = session.feed(PROMPT)
    tokens = []
    for _ in range(count):
        tokens.append(int(logits.argmax()))
        logits = session.feed(tokens[-1:])
    return first, tokens


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.fixture(scope="module")
def reference(npu_program: Path) -> tuple[np.ndarray, list[int]]:
    program = Program(npu_program)
    return _greedy(Session(program, instance=open_instance(program, reference=True)))


def test_the_emulator_agrees_with_the_reference(
    npu_program: Path, reference: tuple[np.ndarray, list[int]]
) -> None:
    program = Program(npu_program, verify=True)
    session = Session(program)
    logits, tokens = _greedy(session)
    assert session.instance.kernels == "qnn emulator" and session.mode == "hybrid"
    assert _cosine(logits, reference[0]) > 0.999
    assert tokens == reference[1]
    # What was kept of compiling for the emulator gives the same; so does going back.
    again = Session(program)
    assert _greedy(again)[1] == tokens
    again.rewind(len(PROMPT))
    np.testing.assert_array_equal(again.feed(tokens[:1]), _fed(session, tokens[:1]))


def _fed(session: Session, tokens: list[int]) -> np.ndarray:
    session.rewind(len(PROMPT))
    return session.feed(tokens)


def test_rounding_changes_little(
    npu_program: Path, reference: tuple[np.ndarray, list[int]]
) -> None:
    """Against the same weights on the CPU, where ranges are measured for each row anew."""
    program = Program(npu_program)
    logits, _ = _greedy(Session(program, instance=Instance(program)))
    assert _cosine(logits, reference[0]) > 0.99


def test_a_cache_of_16_bits(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Whole numbers of twice the bytes on the chip, and the same text as the reference."""
    path = satchel.export(tiny_checkpoint, tmp_path / "kv16.satchel", **OPTIONS, kv_bits=16)
    program = Program(path)
    manifest = read_manifest(program)
    caches = {c.name for method in manifest.methods.values() for c in method.caches}
    assert caches and all(manifest.encodings[name].bits == 16 for name in caches)
    wanted, tokens = _greedy(Session(program, instance=open_instance(program, reference=True)))
    logits, emulated = _greedy(Session(program))
    assert _cosine(logits, wanted) > 0.999
    assert emulated == tokens
    cpu, _ = _greedy(Session(program, instance=Instance(program)))
    assert _cosine(wanted, cpu) > 0.99


def test_two_shards_give_the_tokens_of_one(
    tiny_checkpoint: Path, reference: tuple[np.ndarray, list[int]]
) -> None:
    output = tiny_checkpoint.parent / "two.satchel"
    chip = satchel.find_target("qnn:SM8750", num_sharding=2, compile_jobs=2)
    options = OPTIONS | {"target": chip}
    program = Program(satchel.export(tiny_checkpoint, output, **options))
    manifest = read_manifest(program)
    assert len(manifest.shards) == 2 and len(manifest.cuts) == 1
    assert all(len(s["files"]) == 3 for s in manifest.shards), "one binary and two models each"
    logits, tokens = _greedy(Session(program))
    assert tokens == reference[1]
    assert _cosine(logits, reference[0]) > 0.999


def test_a_head_that_is_larger_than_a_shard(
    tiny_checkpoint: Path,
    reference: tuple[np.ndarray, list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is split by rows, and the host puts the logits together."""
    monkeypatch.setattr(sizes, "_MEMORY_PER_NODE", 0)
    monkeypatch.setattr(export, "COMPILE_MEMORY", export.MEMORY_BASE + 120_000)
    options = {**OPTIONS, "target": "qnn:SM8450", "mode": "kv"}
    output = tiny_checkpoint.parent / "parts.satchel"
    program = Program(satchel.export(tiny_checkpoint, output, **options))
    manifest = read_manifest(program)
    assert list(manifest.row_parts.values()) == [2]
    method = manifest.methods["kv_forward"]
    assert method.parts == {"logits": ["logits.0", "logits.1"]}
    assert [s.outputs[-1].name for s in method.shards[-2:]] == ["logits.0", "logits.1"]
    logits, tokens = _greedy(Session(program))
    assert tokens == reference[1] and _cosine(logits, reference[0]) > 0.995


def test_one_token_at_a_time(
    tiny_checkpoint: Path, reference: tuple[np.ndarray, list[int]]
) -> None:
    """A chip that does not share weights, and a program without a method for blocks."""
    options = {**OPTIONS, "target": "qnn:SM8450", "mode": "kv"}
    output = tiny_checkpoint.parent / "kv.satchel"
    program = Program(satchel.export(tiny_checkpoint, output, **options))
    assert [m["name"] for m in program.methods] == ["kv_forward", "kv_forward.before"]
    logits, tokens = _greedy(Session(program))
    assert tokens == reference[1] and _cosine(logits, reference[0]) > 0.995


def test_shared_weights_are_stored_once(npu_program: Path, tmp_path: Path) -> None:
    """The shared binary is hardly larger than the larger of two that do not share."""
    program = Program(npu_program)
    manifest = read_manifest(program)
    assert manifest.shared and manifest.tokens == {"kv_forward": 1, "prefill_forward": 12}
    prepared = PreparedProgram.of(program)
    sources = prepared.write_models(0, tmp_path)
    with Child() as child:
        for name, model in sources.items():
            child.compile([(name, model, tmp_path / f"{name}.onnx")], manifest.target)
    alone = [path.stat().st_size for path in tmp_path.glob("*_qnn.bin")]
    extracted = {path.name: path for path in extract(program, tmp_path / "shared")}
    (shared,) = (p.stat().st_size for n, p in extracted.items() if n.endswith(".bin"))
    assert len(alone) == 2
    # These weights are tiny: most of a binary is its code, of which there are two.
    weights = sum(w["codes_size"] for w in program.weights if w["encoding"] != "u8")
    assert shared < sum(alone) and shared - max(alone) < sum(alone) - weights


def test_graphs_that_share_weights_compute_the_same_bits(npu_program: Path, tmp_path: Path) -> None:
    """In the process that compiled them: all methods of a shared binary, against each alone."""
    program = Program(npu_program)
    manifest = read_manifest(program)
    sources = PreparedProgram.of(program).write_models(0, tmp_path)
    results = []
    for share in (True, False):
        with Child() as child:
            models = [
                (name, path, tmp_path / f"{share}.{name}.onnx") for name, path in sources.items()
            ]
            child.compile(models, manifest.target, share)
            results.append(
                {name: child.run(name, _random_codes(manifest.methods[name])) for name in sources}
            )
    for name in sources:
        for output, codes in results[0][name].items():
            np.testing.assert_array_equal(codes, results[1][name][output], err_msg=output)


def _random_codes(method: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {
        tensor.name: rng.integers(0, 2**tensor.encoding.bits, tensor.shape).astype(
            tensor.encoding.dtype
        )
        for tensor in method.shards[0].inputs
    }


def test_a_binary_says_what_is_in_it(npu_program: Path, tmp_path: Path) -> None:
    """Qualcomm's system library reads the shared binary: two graphs, as the manifest has them."""
    program = Program(npu_program)
    manifest = read_manifest(program)
    extract(program, tmp_path)
    shards = {name: method.shards[0] for name, method in manifest.methods.items()}
    assert len({shard.binary for shard in shards.values()}) == 1
    with Child() as child:
        binary = tmp_path / shards["kv_forward"].binary
        told = child.ask("contents", {"binary": str(binary)})[0]
        assert told["soc_model"] == 69 and len(told["graphs"]) == 2
        for shard in shards.values():
            assert differences(shard.to_dict(), told["graphs"][shard.graph]) == []
        other = differences(
            shards["kv_forward"].to_dict(), told["graphs"][shards["prefill_forward"].graph]
        )
        assert any("shape" in line for line in other)
        (tmp_path / "no.bin").write_bytes(b"no context" * 20)
        with pytest.raises(BackendError, match="cannot read no.bin"):
            child.ask("contents", {"binary": str(tmp_path / "no.bin")})


def test_a_binary_with_other_graphs_is_not_written(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "differences", lambda *_: ["x has the shape [1] and not [2]"])
    with pytest.raises(BackendError, match=r"not what the manifest says.*shape \[1\] and not"):
        satchel.export(tiny_checkpoint, tmp_path / "x.satchel", mode="kv", **OPTIONS)
    assert not (tmp_path / "x.satchel").exists()


@pytest.mark.parametrize("name", ["gemma2-soft_caps", "qwen3-wide_heads", "codegen-partly_rotated"])
def test_other_families(name: str, tmp_path: Path) -> None:
    """Soft caps, windows and gelu; norms of each head; norms with a mean."""
    pytest.importorskip("torch")
    row = next(row for row in ROWS if row.id == name)
    changes = {k: v for k, v in row.config.items() if k != "attn_implementation"}
    checkpoint = write_checkpoint(tmp_path / "model", tiny_model(row.model_type, **changes))
    options = {**OPTIONS, "recipe": "16a8w", "mode": "kv" if name.startswith("qwen") else "hybrid"}
    program = Program(satchel.export(checkpoint, tmp_path / "p.satchel", **options))
    wanted = Session(program, instance=open_instance(program, reference=True)).feed(PROMPT)
    assert _cosine(Session(program).feed(PROMPT), wanted) > 0.999


def test_a_binary_that_computes_something_else_is_not_written(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "cosine", lambda *_: 0.9)
    with pytest.raises(BackendError, match="computes something else than the reference"):
        satchel.export(tiny_checkpoint, tmp_path / "p.satchel", **{**OPTIONS, "mode": "kv"})
    assert not list(tmp_path.iterdir())


def test_a_kit_beside_the_program_and_its_own_calibration(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a chip whose methods cannot share weights, which is told."""
    text = tmp_path / "text.txt"
    text.write_text("Ranges are measured on this text, again and again. " * 12)
    command = ["export", tiny_checkpoint, "-o", tmp_path / "p.satchel", "--context", 48]
    command += ["--prefill-ar-len", 12, "--target", "qnn:SM8450", "--kit", tmp_path / "kit"]
    assert main([*map(str, command), "--calibrate", str(text)]) == 0
    said = capsys.readouterr()
    assert "SM8450 does not share weights between methods" in said.err
    # The compiler's process counts too: it alone takes more than the weights and this one.
    (used,) = re.findall(r"at most ([\d.]+) (MB|GB) of memory", said.out)
    shards = Program(tmp_path / "p.satchel").metadata["payloads"]["qnn:SM8450"]["shards"]
    megabytes = float(used[0]) * (1000 if used[1] == "GB" else 1)
    assert megabytes >= max(s["peak_memory_bytes"] for s in shards) / 1e6
    binaries = sorted(path.name for path in (tmp_path / "kit").glob("*.bin"))
    assert binaries == ["shard0.kv_forward_qnn.bin", "shard0.prefill_forward_qnn.bin"]
    command = ["export", str(tiny_checkpoint), "--kit", str(tmp_path / "other")]
    assert main(command) == 2
    assert "kit is for coreml or qnn, and the target is cpu" in capsys.readouterr().err


def test_a_prompt_of_a_few_words_is_enough_to_calibrate(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["export", tiny_checkpoint, "-o", tmp_path / "p.satchel", "--context", 96]
    command += ["--target", "qnn:SM8750", "--mode", "kv", "--calibrate", "prompt:Hello there"]
    assert main([*map(str, command)]) == 0
    program = Program(tmp_path / "p.satchel")
    wanted = Session(program, instance=open_instance(program, reference=True)).feed(PROMPT)
    assert _cosine(Session(program).feed(PROMPT), wanted) > 0.99
    capsys.readouterr()
    command[3:4], command[-1:] = [tmp_path / "other.satchel"], ["prompt:"]
    assert main([*map(str, command)]) == 1
    said = capsys.readouterr().err
    assert "0 tokens" in said and "Packing" not in said


def test_commands(npu_program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(*arguments: object) -> dict[str, Any]:
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) == 0
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    text = tmp_path / "text.txt"
    text.write_text("Pack a model once and carry it. " * 2)
    phases = answer(
        "eval", npu_program, "--text", text, "--window", 40, "--limit", 40, "--phases", "qdq,device"
    )["phases"]
    assert abs(phases["device"]["ppl"] / phases["qdq"]["ppl"] - 1) < 0.02
    ran = answer("run", npu_program, "--prompt", "Hello", "--max-new-tokens", 3)
    assert ran["kernels"] == "qnn emulator" and len(ran["tokens"]) <= 3
    assert main(["run", str(npu_program), "--prompt", "Hello", "--max-new-tokens", "1"]) == 0
    assert "runs on an emulator" in capsys.readouterr().err
    bench = ("bench", npu_program, "--prompt-tokens", 4, "--new-tokens", 2, "--runs", 1)
    assert answer(*bench)["emulated"] is True
    assert main([*map(str, bench)]) == 0
    assert "emulator: not a speed" in capsys.readouterr().out
    placement = answer("inspect", npu_program)["placement"]
    assert placement["nodes"]["qnn"] > placement["nodes"]["cpu"] > 0
    assert {entry["op"] for entry in placement["fallbacks"]} >= {"embedding", "take_rows"}
    assert all(entry["reason"] for entry in placement["fallbacks"])
