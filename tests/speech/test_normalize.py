"""Texts as they are compared, against transformers' normalisers; error rates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile
from transformers.models.whisper.english_normalizer import (
    BasicTextNormalizer,
    EnglishTextNormalizer,
)

from satchel.cli.main import main
from satchel.errors import InputError
from satchel.eval.speech import edits, recordings
from satchel.speech import normalize
from satchel.speech.normalize import normalize_basic, normalize_english
from speech.test_sound import voice
from support.tiny_whisper import export_tiny

SENTENCES = """\
Mr. Smith won't pay twenty-five dollars, um, he's 3,000 miles away.
It cost three thousand two hundred and five pounds.
On the twenty first of May, nineteen eighty four, I had one apple and two pears.
He's been there since the 1960s; it's 50% off, or fifty percent.
Chapter one. Two thousand and ten. twenty ten. nineteen oh five
She said "let's go" (laughs) [noise] and I'll follow, y'all gonna see.
one hundred and one dalmatians
three point one four one five nine
minus five degrees, two and a half million people
$2.50 and €20, twenty cents, one dollar and fifty cents
the first, the second, the third, fourth, fifth, ninth, twentieth, hundredth
double oh seven, triple nine
a million two hundred thousand
Dr. Jones, Prof. Miller and Lt. Col. Sanders
Cafe naïve façade œuvre straße
ones and twos in the sixties
He had ten thousand pounds; at four per cent interest, it's four hundred a year.
one two three four five six seven eight nine ten
I have 1,234.56 reasons. In 2.5 million years.
we're 100 percent sure 3 million dollars 2nd 3rd 21st
One day, no one came. That one's mine.
twenty two thirty three forty
five hundred thousand and sixty
Grüß Gott [lacht], Herr Müller! Ça va? 東京は、晴れ。
"""


@pytest.mark.parametrize("sentence", SENTENCES.splitlines())
def test_normalisers_are_transformers(sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalize, "_spellings", dict)
    assert normalize_english(sentence) == EnglishTextNormalizer({})(sentence)
    assert normalize_basic(sentence) == BasicTextNormalizer()(sentence).strip()


def test_edits() -> None:
    assert edits("a b c d".split(), "a x c".split()) == 2
    assert edits([], "ab") == 2 and edits("ab", "") == 2 and edits("abc", "abc") == 0


def test_error_rates_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, program = export_tiny(tmp_path)
    folder = tmp_path / "speech"
    folder.mkdir()
    with pytest.raises(InputError, match="no recordings with transcripts"):
        recordings(folder)
    for name, text in (("a", "Ten small words."), ("b", "Nothing else was said here.")):
        soundfile.write(folder / f"{name}.wav", voice(3), 16000)
        (folder / f"{name}.txt").write_text(text)
    soundfile.write(folder / "without.wav", voice(1), 16000)
    call = ["eval", str(program), "--speech", str(folder), "--language", "en", "--threads", "1"]
    assert main([*call, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["words"] == 8 and len(document["files"]) == 2
    wrong = sum(one["word_edits"] for one in document["files"])
    assert document["wer"] == wrong / 8 and document["cer"] > 0
    assert document["audio_seconds"] == pytest.approx(6)
    assert main([*call, "--limit", "1"]) == 0
    assert "word error rate" in capsys.readouterr().out
    # Nothing that was asked for is left out silently.
    for flags in (["--text", "a.txt"], ["--vqa", "q.jsonl"], ["--phases", "fp"]):
        assert main([*call, *flags]) == 2
    assert main(["eval", str(program), "--text", "a.txt", "--language", "de"]) == 2
    capsys.readouterr()
    # What is wrong is told before the first recording is heard.
    (folder / "c.txt").write_text("More.")
    (folder / "c.wav").write_bytes(b"no sound")
    assert main(call) == 1
    told = capsys.readouterr().err
    assert "c.wav is not sound" in told and "Listening" not in told
    (folder / "c.txt").write_bytes(b"\xff\xfe")
    assert main(call) == 1
    assert "c.txt is not UTF-8 text" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_word(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", voice(1), 16000)
    (tmp_path / "a.txt").write_text("Two words", encoding="utf-8-sig")
    assert recordings(tmp_path) == [(tmp_path / "a.wav", "Two words")]
