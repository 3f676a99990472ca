"""The native tokenizer against Hugging Face's `tokenizers`, part by part and as a whole.

tools/tokenizer_golden.py does the same with real tokenizers and 10,000 lines each.
"""

from __future__ import annotations

import json
import random
import struct
import unicodedata
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from test_tokenizer_sentencepiece import KINDS, read, train
from tokenizer_data import TEXTS, any_text, trained_byte_level
from tokenizers import Tokenizer as Oracle
from tokenizers import normalizers, pre_tokenizers

import satchel
from satchel import _native
from satchel.errors import ProgramFormatError, TokenizerError
from satchel.llm.compiled import NotCompiled, compile_tokenizer
from satchel.llm.tokenizer_sources import byte_level
from satchel.llm.tokenizer_sources.pre_tokenizers import GPT2, PRE_TOKENIZERS
from satchel.llm.tokenizer_sources.spec import TokenizerSpec
from support.mixed_lines import mixed_lines
from support.tiny_llm import write_tiny_llm


@cache
def native(text: str) -> _native.Tokenizer:
    return _native.Tokenizer.from_bytes(compile_tokenizer(TokenizerSpec(json=text)))


def assert_same(text: str, lines: int = 300) -> None:
    """The same ids of every line, and the same text of these ids."""
    ours, oracle = native(text), Oracle.from_str(text)
    names = [str(token.content) for token in oracle.get_added_tokens_decoder().values()]
    for line in [*TEXTS, *mixed_lines(lines, names=names)]:
        ids = oracle.encode(line, add_special_tokens=False).ids
        assert ours.encode(line) == ids, line
        for skip in (True, False):
            assert ours.decode(ids, skip) == oracle.decode(ids, skip), line


def changed(**parts: Any) -> str:
    """A small byte-level tokenizer with some parts replaced."""
    whole: dict[str, Any] = json.loads(trained_byte_level(GPT2))
    return json.dumps(whole | parts)


@pytest.mark.parametrize(
    "name", sorted({how.patterns: name for name, how in PRE_TOKENIZERS.items()}.values())
)
def test_patterns_of_every_family(name: str) -> None:
    patterns = PRE_TOKENIZERS[name].patterns
    assert_same(changed(pre_tokenizer=byte_level.pre_tokenizer(patterns)))


# Patterns in other tokenizers, and what Oniguruma's syntax has besides.
OTHERS = [
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"\w+|[^\w\s]+",
    r"(?<=\d)[a-z]+|(?<!\S)\S{2,4}?|\p{^L}",
    r"\A.|^\s|\D{2}|(?:ab|a)+?c|\S+\z",
    r"(?>\p{Lu}+)\p{Ll}|[\x{4e00}-\u9fff]+|[^\P{N}1-5]|\t|[\]\-\\^]",
]


@pytest.mark.parametrize("pattern", OTHERS)
@pytest.mark.parametrize("behavior", ["isolated", "removed"])
def test_other_patterns(pattern: str, behavior: str) -> None:
    step = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": behavior.capitalize(),
        "invert": behavior == "removed",
    }
    steps = {"type": "Sequence", "pretokenizers": [step, byte_level.DECODER]}
    assert_same(changed(pre_tokenizer=steps), lines=200)


def state_of(part: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(part.__getstate__())
    return made


@pytest.mark.parametrize("behavior", ["removed", "merged_with_previous", "merged_with_next"])
@pytest.mark.parametrize("kind", ["text", "punctuation", "contiguous"])
def test_other_splits(kind: str, behavior: str) -> None:
    if kind == "text":
        split = pre_tokenizers.Split("a", behavior)
    elif kind == "punctuation":
        split = pre_tokenizers.Punctuation(behavior)
    else:
        split = pre_tokenizers.Split(" ", "contiguous", invert=behavior == "removed")
    steps = [state_of(split), state_of(pre_tokenizers.Digits(individual_digits=False))]
    steps += [state_of(pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True))]
    parts = {"type": "Sequence", "pretokenizers": steps}
    assert_same(changed(pre_tokenizer=parts), lines=150)


@pytest.mark.parametrize("kind", ["NFC", "NFD", "NFKC", "NFKD", "Strip", "Sequence"])
def test_normalizers(kind: str) -> None:
    if kind == "Sequence":
        part: Any = normalizers.Sequence(
            [normalizers.Prepend("x"), normalizers.Replace("the", "a "), normalizers.NFKC()]
        )
    else:
        part = getattr(normalizers, kind)()
    assert_same(changed(normalizer=state_of(part)))


def test_normal_forms_of_every_character() -> None:
    """As the library has them, whose normal forms are of an older Unicode than its classes."""
    every = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    marks = [c for c in every if 0xC0 <= ord(c) < 0x3400 or unicodedata.combining(c)]
    marked = "".join(f"a\u0345{c}\u0323{c}" for c in marks)
    for kind in ("NFC", "NFD", "NFKC", "NFKD"):
        ours = native(changed(normalizer={"type": kind}))
        for text in ("".join(every), marked):
            theirs = getattr(normalizers, kind)().normalize_str(text)
            assert ours.decode(ours.encode(text)) == theirs


def test_flags_of_added_tokens() -> None:
    first = len(json.loads(changed())["model"]["vocab"])
    flags = ("lstrip", "rstrip", "single_word", "normalized", "special")
    added = [
        {"id": first + n, "content": content} | {flag: flag in on for flag in flags}
        for n, (content, on) in enumerate(
            [
                ("<left>", {"lstrip"}),
                ("<right>", {"rstrip", "special"}),
                ("cat", {"single_word"}),
                ("é!", {"normalized"}),
                ("<left><", {"special"}),
                ("AB", {"normalized", "special"}),
            ]
        )
    ]
    text = changed(added_tokens=added, normalizer={"type": "NFKC"})
    assert_same(text)
    ours, oracle = native(text), Oracle.from_str(text)
    for line in ("a  <left> <right>\n b", "cat, cats cat", "<left><right><left>x", "e\u0301! AB"):
        assert ours.encode(line) == oracle.encode(line, add_special_tokens=False).ids, line
        oracle.encode_special_tokens = True
        assert ours.encode(line, False) == oracle.encode(line, add_special_tokens=False).ids
        oracle.encode_special_tokens = False


@pytest.mark.parametrize("kind", [name for name, how in KINDS.items() if how.get("plain")])
def test_sentencepiece(kind: str) -> None:
    assert_same(read(train(kind)).json)


def test_sentencepieces_own_rules_are_left_to_python() -> None:
    with pytest.raises(NotCompiled, match="the normaliser Precompiled"):
        compile_tokenizer(read(train("t5")))


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_metaspace(scheme: str) -> None:
    vocabulary = {chr(c): c - 32 for c in range(32, 127)} | {"▁": 95, "▁a": 96, "an": 97, "<u>": 98}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    text = changed(
        model={
            "type": "BPE",
            "unk_token": "<u>",
            "fuse_unk": False,
            "vocab": vocabulary,
            "merges": ["▁ a", "a n"],
        },
        pre_tokenizer=metaspace,
        decoder=metaspace,
        added_tokens=[
            {"id": 98, "content": "<u>", "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        ],
    )
    assert_same(text, lines=100)


@given(any_text())
@settings(max_examples=150, deadline=None)
def test_any_text(text: str) -> None:
    json_text = changed(pre_tokenizer=byte_level.pre_tokenizer(PRE_TOKENIZERS["gpt-4o"].patterns))
    oracle = Oracle.from_str(json_text)
    assert native(json_text).encode(text) == oracle.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "the normaliser Lowercase"),
        ({"pre_tokenizer": {"type": "BertPreTokenizer"}}, "the pre-tokeniser BertPreTokenizer"),
        ({"decoder": {"type": "WordPiece"}}, "the decoder WordPiece"),
        ({"decoder": None}, "no decoder"),
        ({"model": {"type": "WordLevel", "vocab": {}}}, "models of the type WordLevel"),
        ({"truncation": {"max_length": 2}}, "truncation"),
    ],
)
def test_what_is_not_done_is_named(parts: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(NotCompiled, match=reason):
        compile_tokenizer(TokenizerSpec(json=changed(**parts)))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["x"], {"type": "Prepend", "prepend": "x"}),
        ([[{"type": "NFC"}]], {"type": "Sequence", "normalizers": [{"type": "NFC"}]}),
    ],
)
def test_lists_in_the_place_of_objects_are_read_as_the_library_does(
    written: Any, meant: Mapping[str, Any]
) -> None:
    sections = [
        compile_tokenizer(TokenizerSpec(json=changed(normalizer=one))) for one in (written, meant)
    ]
    assert sections[0] == sections[1]


@pytest.mark.parametrize("pattern", ["(?<=ab)c", "[[a]b]", r"\b", "(", "a{1001}", r"(\1)", "(?:)*"])
def test_patterns_that_are_not_done(pattern: str) -> None:
    with pytest.raises(NotCompiled, match="regular expression"):
        steps = byte_level.pre_tokenizer((pattern,))
        compile_tokenizer(TokenizerSpec(json=changed(pre_tokenizer=steps)))


def test_an_added_token_that_normalisation_changes_is_not_done() -> None:
    token = dict.fromkeys(("lstrip", "rstrip", "single_word", "special"), False)
    token |= {"content": "ＡＢ", "normalized": True}
    number = len(json.loads(changed())["model"]["vocab"])
    text = changed(added_tokens=[{"id": number, **token}], normalizer={"type": "NFKC"})
    with pytest.raises(NotCompiled, match="which normalisation changes"):
        compile_tokenizer(TokenizerSpec(json=text))


def test_text_that_is_no_unicode() -> None:
    with pytest.raises(UnicodeEncodeError):
        native(changed()).encode("\ud800")


def test_slow_patterns_end() -> None:
    text = changed(pre_tokenizer=byte_level.pre_tokenizer((r"(?:(?:a+)+)+b",)))
    with pytest.raises(TokenizerError, match="too long"):
        native(text).encode("a" * 3000)


SECTIONS = {
    "bytes": lambda: changed(added_tokens=[], normalizer={"type": "NFC"}),
    "bpe": lambda: read(train("gemma")).json,
    "unigram": lambda: read(train("unigram")).json,
}


def damaged(section: bytes, chance: random.Random) -> bytes:
    data = bytearray(section)
    for _ in range(chance.choice([1, 1, 2, 8])):
        at = chance.randrange(len(data) // 4) * 4
        value = chance.choice(
            [
                0,
                1,
                2,
                255,
                0xFFFFFFFF,
                0x7FFFFFFF,
                chance.getrandbits(32),
                len(data),
                len(data) // 8,
            ]
        )
        if chance.random() < 0.5:
            at = chance.randrange(24 + 28 * 16, 24 + 28 * 16 + 400) // 4 * 4
        data[at : at + 4] = struct.pack("<I", value)
    if chance.random() < 0.1:
        del data[chance.randrange(len(data)) :]
    return bytes(data)


@pytest.mark.parametrize("kind", SECTIONS)
def test_damaged_sections(kind: str) -> None:
    """Refused, or harmless: never a crash."""
    section = compile_tokenizer(TokenizerSpec(json=SECTIONS[kind]()))
    chance = random.Random(7)
    lines = list(mixed_lines(4))
    refused = 0
    for _ in range(400):
        try:
            tokenizer = _native.Tokenizer.from_bytes(damaged(section, chance))
        except ProgramFormatError as error:
            assert error.section == "text" and error.advice
            refused += 1
            continue
        for line in lines:
            try:
                ids = tokenizer.encode(line)
            except TokenizerError:
                continue
            tokenizer.decode(ids)
            tokenizer.decode([*ids, 10**9], False)
    assert refused > 100


def test_programs_have_the_section(tmp_path: Path) -> None:
    checkpoint = write_tiny_llm(tmp_path / "tiny")
    program = satchel.load(satchel.export(checkpoint, tmp_path / "a.satchel", context=64))
    oracle = Oracle.from_str(program.section("tokenizer").decode())
    ours = _native.Tokenizer.from_bytes(program.section("text"))
    line = "Hello <|user|> wörld"
    assert ours.encode(line) == oracle.encode(line, add_special_tokens=False).ids


def test_an_export_says_which_template_only_python_reads(tmp_path: Path) -> None:
    checkpoint = write_tiny_llm(tmp_path / "tiny", template="{{ 9 | filesizeformat }}")
    with pytest.warns(UserWarning, match="cannot chat.*the filter 'filesizeformat' is not done"):
        satchel.export(checkpoint, tmp_path / "a.satchel", context=64)


def test_an_export_says_what_the_native_tokenizer_lacks(tmp_path: Path) -> None:
    checkpoint = write_tiny_llm(tmp_path / "tiny")
    file = checkpoint / "tokenizer.json"
    whole = json.loads(file.read_text())
    file.write_text(json.dumps(whole | {"normalizer": {"type": "Lowercase"}}))
    with pytest.warns(UserWarning, match="does not do the normaliser Lowercase.*Python can"):
        path = satchel.export(checkpoint, tmp_path / "a.satchel", context=64)
    program = satchel.load(path)
    assert "text" not in {s["name"] for s in program.sections}
    assert satchel.LLM(program).tokenizer.encode("ABC", add_bos=False) == satchel.LLM(
        program
    ).tokenizer.encode("abc", add_bos=False)
