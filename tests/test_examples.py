"""The scripts in examples/ run as they are, with a tiny model in the place of a real one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.tiny_llm import write_tiny_llm

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("examples") / "tiny")


def run(name: str, tmp_path: Path, *arguments: object) -> str:
    environment = {**os.environ, "SATCHEL_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_texts_are_sorted_into_classes(model: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("It was lovely.\n\nIt was dull.\n")
    lines = run("classify_texts.py", tmp_path, texts, "--model", model).splitlines()
    assert len(lines) == 2
    for line in lines:
        name, share, _ = line.split("\t")
        assert name in ("positive", "negative") and 0.5 <= float(share) <= 1


def test_the_passage_that_answers_is_found(model: Path, tmp_path: Path) -> None:
    for name, text in (
        ("rivers", "The Po is a river in Italy."),
        ("hills", "Monte Bianco is high."),
    ):
        (tmp_path / f"{name}.md").write_text(f"{text}\n\nNothing else is here.")
    files = sorted(tmp_path.glob("*.md"))
    asked = ["-q", "Which river is in Italy?", "--passages", 1, "--max-new-tokens", 4]
    shown = run("chat_with_documents.py", tmp_path, *files, *asked, "--model", model)
    assert shown.rstrip().endswith("from: [rivers.md]")


def test_recipes_are_compared(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Pack a model once and carry it. " * 8)
    lines = run("export_sweep.py", tmp_path, model, "--text", text, "--context", 64).splitlines()
    assert len(lines) == 5
    sizes = [float(size) for size in re.findall(r"([\d.]+) MB", "\n".join(lines))]
    assert sizes[0] == max(sizes)


def test_a_server_answers_every_question(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    from satchel import LLM

    call = [sys.executable, "-m", "satchel", "serve", f"tiny={model}", "--port", "0", "--json"]
    environment = {**os.environ, "SATCHEL_CACHE": str(tmp_path / "cache")}
    questions = ["Where is the Po?", "How high is it?", "Who asks?"]
    file = tmp_path / "questions.txt"
    file.write_text("\n".join(questions))
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            asked = [file, "--url", url, "--max-tokens", 8]
            lines = run("server_client.py", tmp_path, *asked).splitlines()
        finally:
            server.kill()
    assert lines[::2] == questions
    (program,) = (tmp_path / "cache" / "programs").glob("*.satchel")
    llm = LLM(program)
    for question, answer in zip(questions, lines[1::2], strict=True):
        alone = llm.generate(question, max_new_tokens=8, temperature=0).finish().text
        assert answer.split() == alone.split()


def test_a_client_without_a_server_says_so(tmp_path: Path) -> None:
    (tmp_path / "questions.txt").write_text("Anyone?")
    script = [sys.executable, str(EXAMPLES / "server_client.py"), str(tmp_path / "questions.txt")]
    done = subprocess.run(
        [*script, "--url", "http://127.0.0.1:1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "no server at http://127.0.0.1:1" in done.stderr


def test_a_module_computes_what_pytorch_does(tmp_path: Path) -> None:
    shown = run("torch_module.py", tmp_path)
    (difference,) = re.findall(r"PyTorch: ([\d.e+-]+)", shown)
    assert float(difference) < 1e-5


def test_every_example_is_listed_and_run() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.py")}
    assert scripts == set(re.findall(r"`(\w+\.py)`", (EXAMPLES / "README.md").read_text()))
    assert all(f'"{name}"' in Path(__file__).read_text() for name in scripts)
