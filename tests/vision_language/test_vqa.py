"""Questions about images from a file, and which answers are right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import satchel
from satchel.cli.main import main
from satchel.errors import InputError, SatchelError
from satchel.eval.vqa import is_right, plain_answer, read_questions
from support.tiny_llava import tiny_llava
from vision_language.test_llava import photo


def test_answers_are_compared_as_they_are_meant() -> None:
    assert is_right(" Two cats.", ["a dog", "2 cats"])
    assert is_right("Yes!", ["yes"]) and not is_right("yes and no", ["yes"])
    assert plain_answer("It's 3.5 m") == "it s 3.5 m"


def test_exact_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, checkpoint = tiny_llava(tmp_path)
    path = satchel.export(checkpoint, tmp_path / "l.satchel", recipe="fp32", context=256)
    llm = satchel.LLM(path, threads=1)
    raw = not llm.has_chat_template
    photo(40, 30).save(tmp_path / "a.png")
    options = {"max_new_tokens": 32, "temperature": 0, "raw": raw}
    said = llm.generate("What?", images=[tmp_path / "a.png"], **options).finish().text
    lines = [
        {"image": "a.png", "question": "What?", "answer": said},
        {"image": "a.png", "question": "What?", "answers": ["never", "that"]},
    ]
    file = tmp_path / "q.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["eval", str(path), "--vqa", str(file), "--json", "--threads", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [item["right"] for item in document["items"]] == [True, False]
    assert document["exact_match"] == 0.5
    assert main(["eval", str(path), "--vqa", str(file), "--threads", "1", "--limit", "1"]) == 0
    assert "1 of 1 answers are right" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "{}",
        '{"image": 1, "question": "", "answer": ""}',
        '{"image": "a.png", "question": " ", "answer": "x"}',
        '{"image": "a.png", "question": "What?", "answer": true}',
        "",
    ],
)
def test_files_that_hold_no_questions(line: str, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(line)
    with pytest.raises(InputError, match="is not a question|no questions"):
        read_questions(tmp_path / "q.jsonl")


def test_lines_as_others_write_them(tmp_path: Path) -> None:
    """A byte order mark before, numbers for answers, and line ends of Unicode inside of texts."""
    photo(4, 4).save(tmp_path / "a.png")
    row = {"image": "a.png", "question": "How\u2028many?", "answers": [2, 2.5, "two"]}
    lines = [json.dumps(row, ensure_ascii=False) + "\r\n", "\n", json.dumps(row)]
    (tmp_path / "q.jsonl").write_bytes(b"\xef\xbb\xbf" + "".join(lines).encode())
    first, second = read_questions(tmp_path / "q.jsonl")
    assert first == second and first["answers"] == ["2", "2.5", "two"]


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_bytes(b"\xff\x00")
    with pytest.raises(SatchelError, match="is not UTF-8"):
        read_questions(tmp_path / "q.jsonl")
    (tmp_path / "q.jsonl").write_text("[" * 100_000)
    with pytest.raises(InputError, match="is not a question"):
        read_questions(tmp_path / "q.jsonl")


def test_an_image_that_is_not_there_is_told_before_the_work(tmp_path: Path) -> None:
    photo(4, 4).save(tmp_path / "a.png")
    names = ("a.png", "a.png", "b.png")
    lines = [json.dumps({"image": name, "question": "What?", "answer": "x"}) for name in names]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"line 3: .*b\.png is no file"):
        read_questions(tmp_path / "q.jsonl")
    assert len(read_questions(tmp_path / "q.jsonl", limit=2)) == 2
