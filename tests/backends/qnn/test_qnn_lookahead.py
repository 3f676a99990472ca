"""Guessing ahead on the NPU: the text is exactly that of plain decoding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")

import satchel
from satchel.backends import open_instance
from satchel.backends.qnn import instance
from satchel.backends.qnn.lowering import MaskInput
from satchel.backends.qnn.payload import read_manifest
from satchel.backends.qnn.runner import visible_slots
from satchel.errors import ConfigError, ExecutionError, ProgramFormatError
from satchel.llm.llm import LLM
from satchel.llm.session import Session
from satchel.llm.steps import Look
from satchel.runtime.program import Instance, Program

OPTIONS = {"target": "qnn:SM8750", "context": 64, "prefill_ar_len": 12}


@pytest.fixture(scope="module")
def program(tiny_checkpoint: Path) -> Program:
    path = tiny_checkpoint.parent / "lookahead.satchel"
    sizes = {"ngram": 3, "window": 2, "gcap": 2}
    return Program(satchel.export(tiny_checkpoint, path, mode="lookahead", **sizes, **OPTIONS))


def test_trees_and_single_tokens_are_one_graph(program: Program) -> None:
    names = {m["name"] for m in program.methods if "." not in m["name"]}
    assert names == {"kv_forward", "prefill_forward", "lookahead_forward", "lookahead_accept"}
    assert read_manifest(program).tokens == {"prefill_forward": 12, "lookahead_forward": 9}
    assert program.metadata["lookahead"] == {"ngram": 3, "window": 2, "gcap": 2}


@pytest.mark.parametrize(("prompt", "repeats"), [("abcabcabcabc", True), ("The cat sat.", False)])
def test_the_text_is_that_of_plain_decoding(program: Program, prompt: str, repeats: bool) -> None:
    llm = LLM(program)
    options = {"raw": True, "max_new_tokens": 24}
    plain = llm.generate(prompt, lookahead="off", **options).finish()
    llm.session.rewind(0)
    guessed = llm.generate(prompt, **options).finish()
    stats = guessed.stats.lookahead
    assert stats.mode == "on" and stats.branches and stats.guessing_steps > 0
    assert guessed.tokens == plain.tokens
    assert (stats.accepted > 0) == repeats
    assert (stats.steps < plain.stats.lookahead.steps) == repeats


def test_a_token_has_the_same_bits_alone_and_in_a_tree(program: Program) -> None:
    """Every path of a tree, on the emulator, and in the reference's rounded run too."""
    tokens, parents = [5, 9, 17, 9, 33, 40], [-1, 0, 1, 0, 3, 1]
    for reference in (False, True):
        session = Session(program, instance=open_instance(program, reference=reference))
        session.feed([3, 1, 4, 1, 5, 9, 2, 6])
        rows = session.look(Look(tokens, parents, range(6)))
        session.accept([0, 3, 4], [5, 9, 33])
        after = session.feed([7])
        for last in range(6):
            path = [last]
            while parents[path[0]] >= 0:
                path.insert(0, parents[path[0]])
            session.rewind(8)
            for node in path:
                alone = session.feed([tokens[node]])
            np.testing.assert_array_equal(alone, rows[last])
        session.rewind(8)
        for token in (5, 9, 33):
            session.feed([token])
        np.testing.assert_array_equal(session.feed([7]), after)


def test_what_a_tree_sees() -> None:
    """As a line it is what a block sees; with a window, what lies too far back is hidden."""
    for window in (0, 3):
        mask = MaskInput("mask", window)
        line = visible_slots(mask, 4, 10, 5)
        queries, slots = 5 + np.arange(4)[:, None], np.r_[np.arange(10), 5 + np.arange(4)][None]
        wanted = (slots <= queries) & ((np.arange(14) >= 10) | (slots < 5))
        wanted &= (slots > queries - window) if window else True
        np.testing.assert_array_equal(line, wanted)
    tree = visible_slots(MaskInput("mask", 0), 4, 10, 5, np.array([-1, 0, 0, 2]))[:, 10:]
    assert tree.astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
    near = visible_slots(MaskInput("mask", 2), 4, 10, 5, np.array([-1, 0, 0, 2]))
    assert near[3].nonzero()[0].tolist() == [12, 13]


def test_trees_that_are_none(program: Program) -> None:
    session = Session(program)
    session.feed([1, 2, 3])
    with pytest.raises(ExecutionError, match="cannot have the parent"):
        session.look(Look([1, 2], [-1, 1], [0]))
    with pytest.raises(ExecutionError, match="must rise"):
        session.accept([0, 2, 1], [1, 2, 3])


def test_hybrid_programs_do_not_guess(npu_program: Path) -> None:
    llm = LLM(npu_program)
    stats = llm.generate("abab", raw=True, max_new_tokens=2).finish().stats.lookahead
    assert stats.mode == "off" and "other bits alone" in str(stats.off_because)
    with pytest.raises(ConfigError, match="mode lookahead"):
        llm.generate("x", raw=True, lookahead="on")


def test_hybrid_programs_that_were_tried_do(tiny_checkpoint: Path) -> None:
    """Guesses are looked at in the blocks that prompts are read in, and the text is the same."""
    chip = satchel.find_target("qnn:SM8750", guess_in_blocks=True)
    path = tiny_checkpoint.parent / "tried.satchel"
    program = Program(satchel.export(tiny_checkpoint, path, **{**OPTIONS, "target": chip}))
    assert read_manifest(program).same_bits
    llm = LLM(program)
    assert llm.session.instance.has_same_bits()  # type: ignore[attr-defined]
    options = {"raw": True, "max_new_tokens": 20}
    plain = llm.generate("aaaa", lookahead="off", **options).finish()
    llm.session.rewind(0)
    guessed = llm.generate("aaaa", lookahead="on", **options).finish()
    assert guessed.tokens == plain.tokens
    stats = guessed.stats.lookahead
    assert stats.accepted > 0 and stats.steps < plain.stats.lookahead.steps
    with pytest.raises(ConfigError, match="for programs of --mode hybrid"):
        satchel.export(tiny_checkpoint, mode="kv", **{**OPTIONS, "target": chip})


def test_a_manifest_without_a_method(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = read_manifest(program)
    del manifest.methods["lookahead_forward"]
    monkeypatch.setattr(instance, "read_manifest", lambda _: manifest)
    with pytest.raises(ProgramFormatError, match="lacks methods"):
        open_instance(program)
    assert Instance(program).same_bits_in_blocks
