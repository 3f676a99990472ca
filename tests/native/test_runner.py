"""satchel-run beside Python: the same tokens and texts, the same documents and errors."""

from __future__ import annotations

import array
import json
import os
import platform
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lora_files import write_lora
from safetensors.torch import load_file

import satchel
from support import program_file as fm
from support.tiny_llm import write_tiny_llm, write_tokenizer

RunJson = Callable[..., dict[str, Any]]

FLAGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.9, "seed": 3},
    {"temperature": 1.2, "seed": 2**40 + 1, "top_k": 7, "top_p": 0.9, "min_p": 0.01},
    {"repetition_penalty": 1.3},
    {"temperature": 0.7, "seed": 5, "repetition_penalty": 1.1, "top_p": 0.5, "top_k": 0},
]


MODES = ("on", "auto", "off")


def as_flags(options: dict[str, Any]) -> list[object]:
    return [
        part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)
    ]


@pytest.mark.parametrize("options", FLAGS, ids=lambda options: ",".join(options) or "greedy")
def test_texts_are_pythons(options: dict[str, Any], program: Path, run_json: RunJson) -> None:
    llm = satchel.LLM(program)
    for text in ("Hello there, wörld!", "日本語 and <|end|> 12", "x" * 90):
        for raw in (True, False):
            wanted = llm.generate(text, raw=raw, max_new_tokens=30, **options).finish()
            found = run_json(
                "run", program, text, "--max-new-tokens", 30, *as_flags(options), *["--raw"] * raw
            )
            assert found["tokens"] == wanted.tokens
            assert found["text"] == wanted.text
            assert found["stop_reason"] == wanted.stop_reason
            assert found["prompt_tokens"] == wanted.stats.prompt_tokens


def test_thinking_by_other_names(tmp_path: Path, run_json: RunJson) -> None:
    """Templates of Granite and Seed-OSS, as Python's."""
    template = (
        "{{ messages[0].content }}{% if thinking %}Think.{% endif %}"
        "{% if thinking_budget == 0 %}None.{% endif %}"
    )
    path = satchel.export(write_tiny_llm(tmp_path / "tiny", template), tmp_path / "p.satchel")
    llm, found = satchel.LLM(path), set()
    for how in ([], ["--thinking", "on"], ["--thinking", "off"]):
        variables = {"enable_thinking": how[-1] == "on"} if how else {}
        wanted = llm.chat_tokens([{"role": "user", "content": "Hello"}], **variables)
        document = run_json("run", path, "Hello", "--max-new-tokens", 1, *how)
        assert document["prompt_tokens"] == len(wanted)
        found.add(len(wanted))
    assert len(found) == 3


def test_it_is_small(device: Path) -> None:
    """Of the package's own, most is kernels, those for x86-64 of four instruction sets. It drives
    GPUs too, which static ones cannot: that is their shaders, and half a megabyte."""
    most = 3_900_000 if platform.machine() in ("x86_64", "AMD64") else 3_000_000
    folder = Path(__file__).parents[2] / "native" / "vulkan" / "shaders"
    shaders = sum(path.stat().st_size for path in folder.glob("*.spv"))
    size = (device / "bin" / "satchel-run").stat().st_size
    assert shaders > 0 and size - shaders < most + 500_000


def test_documents_have_the_fields_of_pythons(
    program: Path, run_json: RunJson, capsys: pytest.CaptureFixture[str]
) -> None:
    from satchel.cli.main import main

    main(["run", str(program), "Hi", "--max-new-tokens", "4", "--json"])
    wanted = json.loads(capsys.readouterr().out)
    found = run_json("run", program, "Hi", "--max-new-tokens", 4)
    assert set(found) == set(wanted)
    for name in ("text", "tokens", "stop_reason", "sampling", "mode", "adapter", "kernels"):
        assert found[name] == wanted[name], name


COPYING = "one two three four five. one two three four five. one two three"


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.2}], ids=["greedy", "penalty"])
def test_guessing_ahead_changes_no_text(
    options: dict[str, Any], program: Path, run_json: RunJson
) -> None:
    llm = satchel.LLM(program)
    flags = ["--raw", "--max-new-tokens", 120, *as_flags(options)]
    wanted = llm.generate(COPYING, raw=True, max_new_tokens=120, lookahead="off", **options)
    wanted.finish()
    found = {mode: run_json("run", program, COPYING, *flags, "--lookahead", mode) for mode in MODES}
    for mode, document in found.items():
        assert document["tokens"] == wanted.tokens, mode
        assert document["text"] == wanted.text and document["lookahead"]["mode"] == mode
    told = found["on"]["lookahead"]
    assert told["guessed"] > 0 and told["steps"] <= 119
    assert told["accepted"] + told["steps"] == 119 == found["off"]["lookahead"]["steps"]
    by_python = llm.generate(COPYING, raw=True, max_new_tokens=120, **options).finish()
    assert set(told) == set(by_python.stats.lookahead.to_dict(1.0))


def test_guessing_ahead_keeps_stops_limits_and_full_contexts(
    program: Path, run_json: RunJson
) -> None:
    llm = satchel.LLM(program)
    whole = llm.generate(COPYING, raw=True, max_new_tokens=60).finish().text
    cases: list[dict[str, Any]] = [{"max_new_tokens": n} for n in (1, 2, 7)]
    cases += [{"stop": [whole[n : n + 2]], "max_new_tokens": 60} for n in (5, 12)]
    cases += [{"on_context_full": policy, "max_new_tokens": 600} for policy in ("stop", "slide")]
    for options in cases:
        wanted = llm.generate(COPYING, raw=True, lookahead="off", **options).finish()
        flags = as_flags({k: v[0] if k == "stop" else v for k, v in options.items()})
        found = run_json("run", program, COPYING, "--raw", "--lookahead", "on", *flags)
        assert found["tokens"] == wanted.tokens, options
        assert (found["text"], found["stop_reason"]) == (wanted.text, wanted.stop_reason), options


def test_what_cannot_be_guessed(checkpoint: Path, tmp_path: Path, runner: Any) -> None:
    path = satchel.export(checkpoint, tmp_path / "kv.satchel", context=64, mode="kv")
    done = runner("run", path, "Hi", "--lookahead", "on")
    assert done.returncode == 1 and "takes one token at a time. Export it with" in done.stderr
    done = runner("run", path, "Hi", "--max-new-tokens", 3, "--json")
    assert "takes one token" in json.loads(done.stdout)["lookahead"]["off_because"]
    assert runner("run", path, "Hi", "--lookahead", "perhaps").returncode == 2


def test_stop_texts_and_limits(program: Path, run_json: RunJson) -> None:
    llm = satchel.LLM(program)
    whole = llm.generate("Hello", raw=True, max_new_tokens=40).finish().text
    stop = whole[7:9]
    wanted = llm.generate("Hello", raw=True, max_new_tokens=40, stop=[stop, "zzz"]).finish()
    flags = ["--raw", "--max-new-tokens", 40, "--stop", stop, "--stop", "zzz"]
    found = run_json("run", program, "Hello", *flags)
    assert (found["text"], found["stop_reason"]) == (wanted.text, "stop_string")
    prompt = llm.tokenizer.encode("Hello")
    found = run_json("run", program, "Hello", "--raw", "--seq-len", len(prompt) + 3)
    assert len(found["tokens"]) == 3


@pytest.mark.parametrize("policy", ["stop", "slide"])
def test_a_full_context(policy: str, program: Path, run_json: RunJson) -> None:
    wanted = satchel.LLM(program).generate(
        "Hello there", system="Be brief.", max_new_tokens=700, on_context_full=policy
    )
    wanted.finish()
    flags = ["--system", "Be brief.", "--max-new-tokens", 700, "--on-context-full", policy]
    found = run_json("run", program, "Hello there", *flags)
    assert (found["tokens"], found["stop_reason"]) == (wanted.tokens, wanted.stop_reason)
    assert found["context_slides"] == wanted.stats.slides
    assert (found["context_slides"] > 0) == (policy == "slide")


def test_adapters_and_small_caches(checkpoint: Path, tmp_path: Path, run_json: RunJson) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    adapter = write_lora(tmp_path / "lora", SimpleNamespace(state_dict=lambda: tensors))
    path = satchel.export(
        checkpoint, tmp_path / "a.satchel", context=96, kv_bits=8, adapters={"fr": adapter}
    )
    texts = {}
    for name in (None, "fr"):
        wanted = satchel.LLM(path, adapter=name).generate("Hello", max_new_tokens=20).finish()
        flags = ["--adapter", name] if name else []
        found = run_json("run", path, "Hello", "--max-new-tokens", 20, *flags)
        assert found["tokens"] == wanted.tokens and found["adapter"] == name
        texts[name] = found["text"]
    assert texts[None] != texts["fr"]


def test_conversations_are_pythons(program: Path, runner: Any) -> None:
    said = ["Hello", "And now?", "Go on."]
    chat = satchel.LLM(program).chat(system="Be brief.", max_new_tokens=12, on_context_full="slide")
    wanted = [chat.send(text).finish().text for text in said]
    flags = ["--system", "Be brief.", "--max-new-tokens", 12]
    done = runner("chat", program, *flags, given="\n".join(said) + "\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"{text}\n" for text in wanted)


def test_lines_may_end_as_on_windows(program: Path, runner: Any, tmp_path: Path) -> None:
    flags = ["--max-new-tokens", 8]
    said = "Hello\nHow are you?\n"
    wanted = runner("chat", program, *flags, given=said)
    found = runner("chat", program, *flags, given="\r\n \r\n" + said.replace("\n", "\r\n"))
    assert wanted.returncode == 0 and found.stdout == wanted.stdout
    prompt = tmp_path / "prompt.txt"
    prompt.write_bytes(b"One\r\ntwo\rthree\r\n")
    llm = satchel.LLM(program)
    wanted = llm.generate(prompt.read_text(), max_new_tokens=8).finish()
    for flag in ("--prompt-file", "--input"):
        found = json.loads(runner("run", program, flag, prompt, *flags, "--json").stdout)
        assert found["tokens"] == wanted.tokens
        assert found["prompt_tokens"] == wanted.stats.prompt_tokens


def test_an_interrupt_ends_an_answer_and_not_the_conversation(device: Path, tmp_path: Path) -> None:
    checkpoint = write_tiny_llm(tmp_path / "endless")
    write_tokenizer(checkpoint, end=None)  # nothing else ends an answer before the interrupt comes
    program = satchel.export(checkpoint, tmp_path / "endless.satchel", context=512)
    flags = ["--repetition-penalty", "1", "--max-new-tokens", "100000000"]
    command = [str(device / "bin" / "satchel-run"), "chat", str(program), *flags]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, bufsize=0) as process:
        assert process.stdin and process.stdout and process.stderr
        for _ in range(2):
            process.stdin.write(b"Hello\n")
            answer = b""
            while len(answer) < 64:
                piece = process.stdout.read(64)
                assert piece
                answer += piece
            process.send_signal(signal.SIGINT)
            while b"tok/s" not in (line := process.stderr.readline()):  # what the answer took
                assert line
            os.set_blocking(process.stdout.fileno(), False)
            while process.stdout.read(1 << 16):  # the end of the answer before the next one begins
                pass
            os.set_blocking(process.stdout.fileno(), True)
        _, rest = process.communicate(timeout=30)
    assert process.returncode == 0, rest


def test_a_second_interrupt_ends_what_does_not_notice_the_first(
    device: Path, program: Path
) -> None:
    """An answer that nobody reads, so that it waits in the middle of a write."""
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        pytest.skip("pipes have one size here")
    flags = ["--repetition-penalty", "1", "--max-new-tokens", "100000000"]
    command = [str(device / "bin" / "satchel-run"), "chat", str(program), *flags]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, bufsize=0) as process:
        assert process.stdin and process.stdout
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        process.stdin.write(b"Hello\n")
        assert process.stdout.read(1)
        before, waiting = -1, array.array("i", [0])
        while waiting[0] > before:
            before = waiting[0]
            time.sleep(0.1)
            fcntl.ioctl(process.stdout, termios.FIONREAD, waiting)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == -signal.SIGINT


def test_a_reader_that_leaves_ends_it_without_a_word(device: Path, program: Path) -> None:
    flags = ["--repetition-penalty", "1", "--max-new-tokens", "100000000"]
    command = [str(device / "bin" / "satchel-run"), "chat", str(program), *flags]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(b"Hello\n")
        process.stdin.flush()
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.wait(30) == -signal.SIGPIPE
        assert b"satchel-run:" not in process.stderr.read()


def test_a_long_text_by_a_pipe(program: Path, runner: Any) -> None:
    text = "Wörter, words and 言葉. " * 20_000
    done = runner("run", program, "--prompt-file", "-", given=text)
    assert done.returncode == 1 and "and the context 512. Shorten it" in done.stderr
    words = ("--max-new-tokens", 4, "--on-context-full", "slide", "--json")
    done = runner("run", program, "--prompt-file", "-", *words, given=text)
    assert done.returncode == 0 and len(json.loads(done.stdout)["tokens"]) == 4


def test_two_processes_on_one_file(device: Path, program: Path) -> None:
    command = [str(device / "bin" / "satchel-run"), "run", str(program), "Hello", "--verify"]
    both = [subprocess.Popen([*command, "--json"], stdout=-1, stderr=-1) for _ in range(2)]
    ends = [process.communicate(timeout=60) for process in both]
    first, second = (json.loads(out)["tokens"] for out, _ in ends)
    assert first == second


def test_tokens(program: Path, run_json: RunJson) -> None:
    text = "Hello <|user|> ünï\n"
    wanted = satchel.LLM(program).tokenizer.encode(text, add_bos=False)
    assert run_json("tokenize", program, text)["tokens"] == wanted


def test_inspect_verify_and_bench(program: Path, run_json: RunJson) -> None:
    loaded = satchel.load(program)
    found = run_json("verify", program)
    assert found == {"ok": True, "file_size_bytes": loaded.size, "checksum": loaded.checksum}
    found = run_json("inspect", program)
    assert found["metadata"] == loaded.metadata and found["checksum"] == loaded.checksum
    assert [m["name"] for m in found["methods"]] == [m["name"] for m in loaded.methods]
    found = run_json("bench", program, "--prompt-tokens", 70, "--new-tokens", 4, "--runs", 2)
    assert found["prefill_tok_s"] > 0 and found["decode_tok_s"] > 0 and found["peak_rss_bytes"] > 0


def test_damaged_files(program: Path, tmp_path: Path, runner: Any) -> None:
    data = bytearray(program.read_bytes())
    data[-200] ^= 1  # in the metadata
    path = tmp_path / "x.satchel"
    path.write_bytes(data)
    for command in ("verify", "inspect", "run"):
        done = runner(command, path, *["Hi"] * (command == "run"))
        assert done.returncode == 1 and "checksum is wrong" in done.stderr, done.stderr
    path.write_bytes(program.read_bytes()[:1000])
    done = runner("run", path, "Hi")
    assert done.returncode == 1 and "not as long as it says" in done.stderr
    model = fm.read(program.read_bytes())
    model.text = model.text[:-64]
    path.write_bytes(fm.write(model))
    done = runner("run", path, "Hi")
    assert done.returncode == 1 and "compiled tokenizer" in done.stderr
    model.text = b""
    path.write_bytes(fm.write(model))
    done = runner("run", path, "Hi")
    assert (
        done.returncode == 1 and "has no compiled tokenizer. Export the model again" in done.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "a command is missing"),
        (["fly"], "there is no command 'fly'"),
        (["run"], "there is nothing to answer"),
        (["run", "FILE", "Hi", "--fast"], "there is no option --fast"),
        (["run", "FILE", "Hi", "-x"], "there is no option -x"),
        (["run", "FILE", "Hi", "--top-k", "x"], "--top-k is a whole number"),
        (["run", "FILE", "Hi", "--top-p", "2"], "top_p cannot be. It must be above 0"),
        (["chat", "nowhere.satchel", "--temperature", "-1"], "temperature cannot be"),
        (
            ["run", "FILE", "Hi", "--threads", "99999999999"],
            "--threads is a whole number from 1 to",
        ),
        (["run", "FILE", "Hi", "--prompt", "Ho"], "two things"),
        (["bench"], "bench takes one program"),
    ],
)
def test_wrong_usage(arguments: list[str], why: str, program: Path, runner: Any) -> None:
    done = runner(*[str(program) if a == "FILE" else a for a in arguments])
    assert done.returncode == 2 and why in done.stderr
    assert done.stderr.count("\n") == 1 and "satchel-run --help" in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"], ["run", "--help"]])
def test_help(arguments: list[str], runner: Any) -> None:
    done = runner(*arguments)
    assert done.returncode == 0 and done.stdout.startswith("usage: satchel-run COMMAND FILE")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["run", "nowhere.satchel", "Hi"], "nowhere.satchel"),
        (["run", "FILE", "Hi", "--adapter", "fr"], "has no adapter 'fr'. It has none"),
        (["run", "FILE", "x" * 900], "the prompt has"),
        (["run", "FILE", ""], "the prompt is empty"),
    ],
)
def test_what_fails_says_what_to_do(
    arguments: list[str], why: str, program: Path, runner: Any
) -> None:
    done = runner(*[str(program) if a == "FILE" else a for a in arguments])
    assert done.returncode == 1 and why in done.stderr, done.stderr


def test_control_characters_of_a_file_do_not_reach_the_terminal(
    program: Path, tmp_path: Path, runner: Any, run_json: RunJson
) -> None:
    steering = "a\x1b]0;owned\x07\x9b31m\u202eb"
    model = fm.read(program.read_bytes())
    model.metadata = json.dumps({**json.loads(model.metadata), "name": steering}).encode()
    path = tmp_path / "x.satchel"
    path.write_bytes(fm.write(model))
    hidden = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
    done = runner("inspect", path)
    assert done.returncode == 0 and not hidden.search(done.stdout)
    assert r"a\x1b]0;owned\x07\x9b31m\u202eb" in done.stdout
    assert not hidden.search(runner("inspect", path, "--json").stdout)
    assert run_json("inspect", path)["metadata"]["name"] == steering
    done = runner("inspect", tmp_path / f"no{steering}.satchel")
    assert done.returncode == 1 and not hidden.search(done.stderr)
    assert "offset 0" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("command", [["inspect", "FILE"], ["run", "FILE", "Hi"]])
def test_a_result_that_is_not_written_is_a_failure(
    command: list[str], program: Path, device: Path
) -> None:
    words = [str(program) if word == "FILE" else word for word in command]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [device / "bin" / "satchel-run", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1 and b"could not be written" in done.stderr
