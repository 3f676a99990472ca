"""Each command as a user runs it: output, exit status, one-line errors."""

from __future__ import annotations

import io
import json
import re
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import Any

import pytest

from satchel.benchmark.profile import require_profile
from satchel.cli import doctor
from satchel.cli.main import COMMANDS, main
from satchel.runtime.program import load
from support.tiny_llm import write_tiny_llm

Capture = pytest.CaptureFixture[str]


def run_json(capsys: Capture, *arguments: object) -> dict[str, Any]:
    """Standard output is one JSON object and nothing else."""
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def failure(capsys: Capture, *arguments: object, status: int = 1) -> str:
    """That exit status, nothing on standard output, one line on standard error."""
    capsys.readouterr()
    assert main([*map(str, arguments)]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    last = captured.err.splitlines()[-1]
    assert last.startswith("satchel: ")
    assert "Traceback" not in captured.err
    return last


def test_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"satchel {version('satchel')}\n"


def test_export_writes_the_file_it_planned(
    capsys: Capture, checkpoint: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.satchel"
    plan = run_json(capsys, "export", checkpoint, "-o", output, "--plan")
    assert not output.exists()
    result = run_json(capsys, "export", checkpoint, "-o", output)
    assert result["file_size_bytes"] == output.stat().st_size
    assert abs(plan["plan"]["file_size_bytes"] / result["file_size_bytes"] - 1) < 0.01
    assert result["recipe"].startswith("8da4w, group size 32")
    assert set(result["weight_error"]) >= {"model.embed_tokens.weight"}


def test_export_has_a_telling_default_name(
    capsys: Capture, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(checkpoint), "--group-size", "64", "--embedding", "8,0"]) == 1
    assert "does not divide" in capsys.readouterr().err  # the feed-forward is 96 wide
    assert main(["export", str(checkpoint), "--embedding", "8,0", "--head-bits", "8"]) == 0
    assert "relative weight error by kind of layer" in capsys.readouterr().out
    assert main(["export", str(checkpoint), "--recipe", "fp16"]) == 0
    names = sorted(p.name for p in tmp_path.glob("*.satchel"))
    assert names == ["tiny-llama-cpu-8da4w-g32-e8_0-h8.satchel", "tiny-llama-cpu-fp16.satchel"]


def test_export_does_not_overwrite_without_force(
    capsys: Capture, checkpoint: Path, tmp_path: Path
) -> None:
    output = tmp_path / "there.satchel"
    output.write_text("mine")
    line = failure(capsys, "export", checkpoint, "-o", output)
    assert "there.satchel exists" in line
    assert "--force" in line
    assert output.read_text() == "mine"
    assert main(["export", str(checkpoint), "-o", str(output), "--force"]) == 0
    assert output.read_bytes()[:7] == b"SATCHEL"


def test_run_prints_the_answer_alone(capsys: Capture, program: Path) -> None:
    document = run_json(capsys, "run", program, "--prompt", "hello", "--max-new-tokens", 5)
    assert main(["run", str(program), "--prompt", "hello", "--max-new-tokens", "5"]) == 0
    captured = capsys.readouterr()
    assert captured.out == document["text"] + "\n"
    assert "prompt tokens" in captured.err
    assert len(document["tokens"]) == 5
    assert document["stop_reason"] == "max_new_tokens"


def test_run_takes_a_prompt_from_a_file_or_standard_input(
    capsys: Capture, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = run_json(capsys, "run", program, "--prompt", "grüß dich", "--max-new-tokens", 4)
    file = tmp_path / "prompt.txt"
    file.write_text("grüß dich", encoding="utf-8")
    same = run_json(capsys, "run", program, "--prompt-file", file, "--max-new-tokens", 4)
    assert same["tokens"] == wanted["tokens"]
    for dash in (["--prompt-file", "-"], ["-"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("grüß dich".encode())))
        same = run_json(capsys, "run", program, *dash, "--max-new-tokens", 4)
        assert same["tokens"] == wanted["tokens"]
    file.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in failure(capsys, "run", program, "--prompt-file", file)
    assert "No such file" in failure(capsys, "run", program, "--prompt-file", tmp_path / "no")


def test_raw_and_template_differ(capsys: Capture, program: Path) -> None:
    raw = run_json(capsys, "run", program, "--prompt", "hello", "--raw", "--max-new-tokens", 3)
    chat = run_json(capsys, "run", program, "--prompt", "hello", "--max-new-tokens", 3)
    assert raw["prompt_tokens"] == len("hello")
    assert chat["prompt_tokens"] > raw["prompt_tokens"]


def test_a_base_model_is_continued_and_cannot_chat(capsys: Capture, tmp_path: Path) -> None:
    checkpoint = write_tiny_llm(tmp_path / "base", template=None)
    output = tmp_path / "base.satchel"
    assert main(["export", str(checkpoint), "-o", str(output), "--context", "64"]) == 0
    assert main(["run", str(output), "--prompt", "x", "--max-new-tokens", "2"]) == 0
    assert "no chat template" in capsys.readouterr().err
    assert "--raw" in failure(capsys, "chat", output, "--prompt", "x")


def test_chat_exports_a_checkpoint_once_and_says_so(
    capsys: Capture, checkpoint: Path, own_cache: Path
) -> None:
    arguments = ["chat", str(checkpoint), "--prompt", "hi", "--max-new-tokens", "3"]
    assert main(arguments) == 0
    first = capsys.readouterr()
    assert "for the first time" in first.err
    assert str(own_cache) in first.err
    assert main(arguments) == 0
    second = capsys.readouterr()
    assert "for the first time" not in second.err
    assert first.out == second.out
    assert len(list((own_cache / "programs").glob("*.satchel"))) == 1


def test_chat_is_a_conversation(
    capsys: Capture, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "hello\n\n/help\nand you\n/reset\nhello\n/exit\nnever read\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert main(["chat", str(program), "--max-new-tokens", "4"]) == 0
    captured = capsys.readouterr()
    answers = captured.err.count("new tokens")
    assert answers == 3
    assert "from the cache" in captured.err
    assert "starts over" in captured.err
    # After the reset the first answer comes again.
    assert captured.out.count("\n") >= 3


def test_chat_with_json_needs_a_prompt(capsys: Capture, program: Path) -> None:
    assert main(["chat", str(program), "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["type"] == "ConfigError"


def test_a_turn_that_does_not_fit_does_not_end_the_conversation(
    capsys: Capture, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * 200 + "\nhi\n"))
    full = ["--on-context-full", "stop"]
    assert main(["chat", str(program), "--max-new-tokens", "2", *full]) == 0
    captured = capsys.readouterr()
    assert "the context 96" in captured.err
    assert captured.err.count("new tokens") == 1


def test_bench(capsys: Capture, program: Path) -> None:
    sizes = ["--prompt-tokens", "20", "--new-tokens", "8", "--runs", "2"]
    document = run_json(capsys, "bench", program, *sizes)
    for field in ("prefill_tok_s", "decode_tok_s", "ttft_s", "ttft_kv_s", "bandwidth_share"):
        assert document[field] > 0, field
    assert document["peak_rss_bytes"] > document["file_size_bytes"]
    assert document["mode"] == "hybrid"
    assert main(["bench", str(program), *sizes, "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "hybrid, 20 prompt tokens" in out
    assert re.search(r"kv, [\d.]+ times as long", out)
    assert "more than the context" in failure(capsys, "bench", program, "--new-tokens", 90)


def test_bench_times_every_op(capsys: Capture, program: Path) -> None:
    sizes = ["--prompt-tokens", "20", "--new-tokens", "8", "--runs", "2"]
    assert run_json(capsys, "bench", program, *sizes)["profile"] is None
    profile = run_json(capsys, "bench", program, *sizes, "--profile")["profile"]
    ops = {m["name"]: m["ops"] for m in run_json(capsys, "inspect", program)["methods"]}
    for phase, method, calls in (("prefill", "prefill_forward", 1), ("decode", "kv_forward", 7)):
        rows = profile[phase]["ops"]
        wanted = {op: calls * count for op, count in ops[method].items()}
        assert {row["op"]: row["calls"] for row in rows} == wanted
        assert 0 < sum(row["seconds"] for row in rows) <= profile[phase]["seconds"]
        assert rows == sorted(rows, key=lambda row: -row["share"])
        layers = profile[phase]["layers"]
        spent = next(row["seconds"] for row in rows if row["op"] == "linear")
        assert sum(row["seconds"] for row in layers) == pytest.approx(spent)
    assert main(["bench", str(program), *sizes, "--profile"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^  linear +\d+ +[\d.]+ +[\d.]+%$", out, re.M)
    assert re.search(r"^  linear \d+ x \d+(, \d+ x \d+)* +\d+ +[\d.]+ +[\d.]+$", out, re.M)
    for_npu = load(program)
    for_npu.metadata["target"] = "qnn:SM8750"
    require_profile(for_npu)  # whose cycles are counted


def test_inspect(capsys: Capture, program: Path) -> None:
    document = run_json(capsys, "inspect", program)
    names = ["kv_forward", "prefill_forward", "lookahead_forward", "lookahead_accept"]
    assert [m["name"] for m in document["methods"]] == names
    assert document["methods"][1]["inputs"][0]["shape"] == ["S<=96"]
    assert document["recipe"]["name"] == "8da4w"
    assert document["placement"]["fallbacks"] == []
    assert {s["name"] for s in document["sections"]} >= {"weights", "methods", "metadata"}
    assert document["metadata"]["context"] == 96
    assert main(["inspect", str(program), "--weights"]) == 0
    out = capsys.readouterr().out
    assert "model.layers.1.mlp.down_proj.weight" in out
    assert "KV cache" in out


def test_verify(capsys: Capture, program: Path, tmp_path: Path) -> None:
    document = run_json(capsys, "verify", program)
    assert document["ok"] is True
    assert re.fullmatch("[0-9a-f]{64}", document["checksum"])
    damaged = tmp_path / "damaged.satchel"
    data = bytearray(program.read_bytes())
    weights = run_json(capsys, "inspect", program)["sections"]
    place = next(s for s in weights if s["name"] == "weights")
    data[place["offset"] + place["size"] // 2] ^= 1
    damaged.write_bytes(data)
    assert "are not those that were written" in failure(capsys, "verify", damaged)
    # Loading stays lazy, so only --verify finds it before running.
    arguments = ["run", damaged, "--prompt", "x", "--max-new-tokens", 1]
    assert "are not those" in failure(capsys, *arguments, "--verify")
    assert main([*map(str, arguments)]) == 0


def test_models(capsys: Capture) -> None:
    models = run_json(capsys, "models")["models"]
    assert {"smollm2-135m", "llama3_2-1b", "stories15m"} <= {m["name"] for m in models}
    assert main(["models", "smollm2-1"]) == 0
    assert capsys.readouterr().out.count("smollm2-135m") == 1


def test_doctor(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    document = run_json(capsys, "doctor")
    assert document["ok"] is True
    assert document["kernels"]["selected"] in document["kernels"]["available"]
    assert main(["doctor"]) == 0
    assert "All is well" in capsys.readouterr().out


def test_doctor_knows_all_extras(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = metadata("satchel").get_all("Provides-Extra")
    extras = run_json(capsys, "doctor")["extras"]
    assert set(extras) == {*wanted} - {"test"}
    # The modules are those of the packages that the extra asks for.
    for extra, state in extras.items():
        assert state["installed"] == (not state["missing"])
        assert state["installed"] == all(map(_is_there, _packages(extra)))
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    extras = run_json(capsys, "doctor")["extras"]
    assert not any(state["installed"] for state in extras.values())
    assert extras["vision"]["missing"] == ["PIL", "torch", "torchvision"]
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "satchel transcribe: pip install 'satchel[speech]'" in out and "none installed" in out


def _packages(extra: str) -> set[str]:
    """The names of the packages that an extra brings, those of extras within it too."""
    lines = [line for line in requires("satchel") or [] if line.endswith(f'extra == "{extra}"')]
    within = {name for line in lines for name in re.findall(r"^satchel\[(\w+)\]", line)}
    own = {line.split(";")[0] for line in lines if not line.startswith("satchel[")}
    return {re.split(r"[<>=]", line)[0] for line in own}.union(*map(_packages, within))


def _is_there(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def test_pull(capsys: Capture, checkpoint: Path) -> None:
    assert run_json(capsys, "pull", checkpoint)["path"] == str(checkpoint)
    assert "smollm2-135m" in failure(capsys, "pull", "smolm2-135")


@pytest.mark.parametrize("command", COMMANDS)
def test_help(capsys: Capture, command: str) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main([command, "--help"])
    assert exit_info.value.code == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["run", "x.satchel"],
        ["run", "x", "--prompt", "a", "--prompt-file", "b"],
        ["export", "x", "--embedding", "4"],
        ["export", "x", "--embedding", "4,x"],
        ["export", "x", "--context", "0"],
        ["export", "x", "--head-bits", "5"],
        ["bench", "x", "--runs", "none"],
    ],
)
def test_wrong_usage_is_exit_status_2(capsys: Capture, arguments: list[str]) -> None:
    try:
        status = main(arguments)
    except SystemExit as stop:
        assert isinstance(stop.code, int)
        status = stop.code
    assert status == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("satchel")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "missing.satchel", "--prompt", "x"], "missing.satchel"),
        (["inspect", "missing.satchel"], "No such file"),
        (["export", "./no-such-folder"], "does not exist"),
        (["chat", "smollm3-135m", "--prompt", "x"], "Did you mean"),
    ],
)
def test_failures_are_one_line(capsys: Capture, arguments: list[str], said: str) -> None:
    assert said in failure(capsys, *arguments)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--recipe", "int3"], "Recipes: fp32, fp16, keep, 16a8w"),
        (["--group-size", "48"], "Use 32, 64, 128, 256"),
        (["--embedding", "5,32"], "BITS,GROUP"),
        (["--recipe", "fp16", "--head-bits", "8"], "does not quantise"),
        (["--prefill-ar-len", "1"], "at least 2"),
    ],
)
def test_wrong_options_are_explained(
    capsys: Capture, checkpoint: Path, options: list[str], said: str
) -> None:
    assert said in failure(capsys, "export", checkpoint, *options, status=2)


def test_sampling_options_reach_the_sampler(capsys: Capture, program: Path) -> None:
    base = ["run", program, "--prompt", "x", "--max-new-tokens", 12]
    warm = [*base, "--temperature", 1.5, "--top-k", 50, "--top-p", 0.9, "--min-p", 0.01]
    one = run_json(capsys, *warm, "--seed", 1)["tokens"]
    assert run_json(capsys, *warm, "--seed", 1)["tokens"] == one
    assert run_json(capsys, *warm, "--seed", 2)["tokens"] != one


def test_lookahead_gives_the_same_answer(capsys: Capture, program: Path) -> None:
    call = ["run", program, "--prompt", "abcabc", "--max-new-tokens", 40]
    plain = run_json(capsys, *call, "--lookahead", "off")
    sizes = ["--ngram", 3, "--window", 2, "--gcap", 2]
    guessed = run_json(capsys, *call, "--lookahead", "on", *sizes)
    assert guessed["tokens"] == plain["tokens"]
    found = guessed["lookahead"]
    assert (found["mode"], found["ngram"], found["window"], found["gcap"]) == ("on", 3, 2, 2)
    assert found["tokens_per_step"] == 39 / found["steps"]
    assert plain["lookahead"]["tokens_per_step"] == 1 and plain["lookahead"]["guessed"] == 0
    assert "at most 31" in failure(capsys, *call, "--ngram", 9, status=2)
    assert main([*map(str, call), "--lookahead", "on", "--temperature", "1"]) == 0
    assert "Lookahead is off: only greedy" in capsys.readouterr().err


def test_bench_measures_lookahead(capsys: Capture, program: Path, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("abcabcabc")
    call = ["bench", program, "--prompt-tokens", 4, "--new-tokens", 30, "--runs", 2]
    assert run_json(capsys, *call)["lookahead"] is None
    found = run_json(capsys, *call, "--lookahead", "on", "--prompt-file", prompt)["lookahead"]
    assert found["speedup"] > 0 and found["tokens_per_step"] >= 1
    assert found["prompt_tokens"] == len("abcabcabc") + 3  # and what the template adds
    assert main([*map(str, call), "--lookahead", "auto"]) == 0
    assert "times plain decoding" in capsys.readouterr().out
    assert "--lookahead auto" in failure(capsys, *call, "--window", 2, status=2)
    prompt.write_text("a" * 90)
    text = failure(capsys, *call, "--lookahead", "on", "--prompt-file", prompt)
    assert "more than the context" in text
