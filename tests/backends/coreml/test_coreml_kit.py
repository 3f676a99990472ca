"""The Swift package that ``--kit`` writes: words are filled in, and turns are the template's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import satchel
from satchel.backends import find_target
from satchel.errors import ConfigError, OutputExistsError
from support.tiny_llm import write_tiny_llm

pytest.importorskip("coremltools", reason="pip install 'satchel[coreml]'")


def test_a_swift_package_is_written(tmp_path: Path) -> None:
    checkpoint = write_tiny_llm(tmp_path / "tiny")
    template = (
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>"
        "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    settings = checkpoint / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": template}))
    target = find_target("coreml", kit=str(tmp_path / "kit"), units="ane")
    satchel.export(checkpoint, tmp_path / "m.mlpackage", target=target, context=64)
    swift = (tmp_path / "kit/Sources/SatchelModel/LanguageModel.swift").read_text()
    assert "let context = 64" in swift and ".cpuAndNeuralEngine" in swift
    assert 'try load("prefill")' in swift
    assert "@" not in swift and "{{" not in swift
    resources = tmp_path / "kit/Sources/SatchelModel/Resources"
    turns = json.loads((resources / "turns.json").read_text())
    program = satchel.LLM(satchel.export(checkpoint, tmp_path / "m.satchel", context=64))
    talk = [("user", "Hi"), ("assistant", "Hello"), ("user", "Name a river.")]
    messages = [{"role": role, "content": text} for role, text in talk]
    first = turns["first"] + "Hi" + turns["after"]
    assert first == program.template.render(messages[:1])
    whole = first + "Hello" + turns["next"] + "Name a river." + turns["after"]
    assert whole == program.template.render(messages)
    assert (resources / "tokenizer.json").exists()
    with pytest.raises(OutputExistsError, match="is not empty"):
        satchel.export(checkpoint, tmp_path / "n.mlpackage", target=target, context=64)
    assert not (tmp_path / "n.mlpackage").exists()  # it was told before the work
    older = find_target("coreml:iOS17", kit=str(tmp_path / "older"))
    with pytest.raises(ConfigError, match="needs iOS 18"):
        satchel.export(checkpoint, tmp_path / "n.mlpackage", target=older)
    assert not (tmp_path / "older").exists()


@pytest.mark.parametrize("mode", ["hybrid", "kv"])
def test_what_is_written_is_swift(tmp_path: Path, mode: str) -> None:
    """By the grammar alone: no compiler with Apple's libraries is to be had here."""
    tree_sitter = pytest.importorskip("tree_sitter")
    grammar = pytest.importorskip("tree_sitter_swift", reason="pip install tree-sitter-swift")
    checkpoint = write_tiny_llm(tmp_path / "tiny")
    target = find_target("coreml", kit=str(tmp_path / "kit"))
    satchel.export(checkpoint, tmp_path / "m.mlpackage", target=target, context=64, mode=mode)
    parser = tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    written = list((tmp_path / "kit").rglob("*.swift"))
    assert len(written) == 3
    for path in written:
        assert not parser.parse(path.read_bytes()).root_node.has_error, path
