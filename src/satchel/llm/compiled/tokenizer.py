"""From a tokenizer's JSON to the section that the native tokenizer maps."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.llm.compiled.refusal import NotCompiled
from satchel.llm.compiled.steps import Steps
from satchel.llm.compiled.tables import EMPTY, pair_table, text_table, trie
from satchel.llm.tokenizer_sources.byte_level import CHAR_TO_BYTE
from satchel.llm.tokenizer_sources.spec import TokenizerSpec

MAGIC = b"SATCHTOK"
VERSION = 1
ALIGNMENT = 16
# native/llm/tokenizer_tables.h has the same order.
ARRAYS = (
    *("settings", "end_ids", "prefix_ids", "suffix_ids"),
    *("key_offsets", "keys", "key_table", "text_offsets", "texts", "flags"),
    *("byte_ids", "merges", "scores", "vocabulary_nodes", "vocabulary_edges"),
    *("added", "raw_nodes", "raw_edges", "normal_nodes", "normal_edges"),
    *("normalizers", "splits", "string_offsets", "strings"),
    *("pattern_offsets", "patterns", "classes", "ranges"),
)
BYTE_LEVEL, CHARACTERS, UNIGRAM = range(3)
BYTE_FALLBACK, FUSE_UNKNOWN, WHOLE_WORDS, ADD_BOS, ADD_EOS = (1 << bit for bit in range(5))
SPECIAL, ADDED, BYTE, ABSENT = (1 << bit for bit in range(4))
LSTRIP, RSTRIP, SINGLE_WORD, IS_SPECIAL = (1 << bit for bit in range(4))
DECODE_BYTES, DECODE_PIECES, DECODE_METASPACE = range(3)
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_DECODER_LETTERS = {"Replace": "r", "ByteFallback": "b", "Fuse": "f", "Strip": "s"}
Array = NDArray[Any]


def compile_tokenizer(spec: TokenizerSpec) -> bytes:
    """The native form of a tokenizer; :class:`NotCompiled` says what it does not do.

    Example::

        section = compile_tokenizer(read_tokenizer(TokenizerSource("huggingface", folder)))
        NativeTokenizer(section).encode("Hello")
    """
    try:
        return _compile(spec, json.loads(spec.json))
    except (AttributeError, KeyError, TypeError, ValueError):
        # The library also reads lists in the place of objects, and the like: its own words for it.
        from tokenizers import Tokenizer

        return _compile(spec, json.loads(Tokenizer.from_str(spec.json).to_str()))


def _compile(spec: TokenizerSpec, whole: Mapping[str, Any]) -> bytes:
    for name in ("truncation", "padding"):
        if whole.get(name):
            raise NotCompiled(f"{name} in the tokenizer's JSON")
    compiler = _Compiler(spec, whole)
    return _packed(compiler.arrays())


class _Compiler:
    def __init__(self, spec: TokenizerSpec, whole: Mapping[str, Any]) -> None:
        self.spec, self.model = spec, whole["model"]
        self.added = sorted(whole.get("added_tokens") or [], key=lambda token: token["id"])
        self.steps = Steps()
        self.steps.add_normalizer(whole.get("normalizer"))
        self.steps.add_pre_tokenizer(whole.get("pre_tokenizer"))
        self.decoder = _Decoder(whole.get("decoder"))
        _check_normalized(spec.json, self.added)
        kind = self.model.get("type") or ("BPE" if "merges" in self.model else "")
        if kind == "Unigram":
            self.kind = UNIGRAM
            self.vocab = {entry[0]: at for at, entry in enumerate(self.model["vocab"])}
        elif kind == "BPE":
            self.kind = BYTE_LEVEL if self.steps.to_bytes else CHARACTERS
            self.vocab = self.model["vocab"]
        else:
            raise NotCompiled(f"models of the type {kind or 'that is not named'}")
        if self.kind == UNIGRAM and self.steps.to_bytes:
            raise NotCompiled("a unigram model of bytes")
        for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
            if self.model.get(name):
                raise NotCompiled(f"{name} of the model")
        self._check_added_ids(whole.get("added_tokens") or [])
        self.contents: dict[int, str] = {at: token for token, at in self.vocab.items()}
        self.contents |= {token["id"]: token["content"] for token in self.added}
        self.count = max(self.contents, default=-1) + 1
        if self.count > 1 << 24:
            raise NotCompiled(f"{self.count} tokens")

    def _check_added_ids(self, added: Sequence[Mapping[str, Any]]) -> None:
        """`tokenizers` gives a new token the next number, whatever number the JSON names."""
        following = len(self.vocab)
        for token in added:
            number = self.vocab.get(token["content"], following)
            if number != token["id"]:
                raise NotCompiled(f"the added token {token['content']!r} as {token['id']}")
            following = max(following, number + 1)

    def arrays(self) -> dict[str, Array]:
        keys = [self._key(at) for at in range(self.count)]
        texts = [self.decoder.text(self.contents.get(at, "")) for at in range(self.count)]
        lookup = {key: at for at in self.vocab.values() if (key := keys[at]) is not None}
        named = [b"" if key is None else key for key in keys]
        made = {
            "settings": self._settings(),
            "end_ids": _numbers(self.spec.eos_ids),
            "prefix_ids": _numbers(self.spec.prefix_ids),
            "suffix_ids": _numbers(self.spec.suffix_ids),
            "key_table": text_table(list(lookup), list(lookup.values())),
            "flags": np.array([self._flags(at) for at in range(self.count)], np.uint8),
            "byte_ids": self._byte_ids(lookup),
        }
        made["key_offsets"], made["keys"] = _joined(named)
        made["text_offsets"], made["texts"] = _joined(texts)
        if self.kind == UNIGRAM:
            made["scores"] = np.array([entry[1] for entry in self.model["vocab"]], np.float64)
            made["vocabulary_nodes"], made["vocabulary_edges"] = trie(lookup)
        else:
            made["merges"] = self._merges()
        return made | self._added() | self._steps()

    def _key(self, at: int) -> bytes | None:
        """What text has to be for a token of the model; None if no text can reach it."""
        token = self.contents.get(at)
        if token is None or self.vocab.get(token) != at:
            return None
        if self.kind != BYTE_LEVEL:
            return token.encode()
        return _alphabet_bytes(token)

    def _settings(self) -> Array:
        model = self.model
        flags = BYTE_FALLBACK * bool(model.get("byte_fallback"))
        flags |= FUSE_UNKNOWN * bool(self.kind == UNIGRAM or model.get("fuse_unk"))
        flags |= WHOLE_WORDS * bool(model.get("ignore_merges"))
        flags |= ADD_BOS * self.spec.add_bos | ADD_EOS * self.spec.add_eos
        if self.kind == UNIGRAM:
            unknown = model.get("unk_id")
        else:
            named = model.get("unk_token")
            unknown = None if named is None else self.vocab.get(named)
            if named is not None and unknown is None:
                raise NotCompiled("an unknown token that is not in the vocabulary")
        ids = [EMPTY if one is None else one for one in (unknown, self.spec.bos_id)]
        decoder = self.decoder
        return _numbers([self.kind, self.count, flags, *ids, decoder.kind, decoder.strip, 0])

    def _flags(self, at: int) -> int:
        token = self.contents.get(at)
        if token is None:
            return ABSENT
        flags = BYTE * bool(self.decoder.byte_fallback and _BYTE_PIECE.fullmatch(token))
        return flags | self._added_flags.get(token, 0)

    @property
    def _added_flags(self) -> dict[str, int]:
        if not hasattr(self, "_flags_by_content"):
            self._flags_by_content = {
                token["content"]: ADDED | SPECIAL * bool(token["special"]) for token in self.added
            }
        return self._flags_by_content

    def _byte_ids(self, lookup: Mapping[bytes, int]) -> Array:
        if self.kind == BYTE_LEVEL:
            found = [lookup.get(bytes([byte]), EMPTY) for byte in range(256)]
        else:
            found = [lookup.get(b"<0x%02X>" % byte, EMPTY) for byte in range(256)]
        return _numbers(found)

    def _merges(self) -> Array:
        merges = [
            merge.split(" ", 1) if isinstance(merge, str) else merge
            for merge in self.model.get("merges") or []
        ]
        vocab = self.vocab
        try:
            rows = [(vocab[a], vocab[b], vocab[a + b]) for a, b in merges]
        except (KeyError, ValueError):
            raise NotCompiled("merges of tokens that are not in the vocabulary") from None
        ranks = {row[:2]: (rank, row[2]) for rank, row in enumerate(rows)}  # the last one counts
        pairs = np.array([(*key, new) for key, (_, new) in ranks.items()], np.uint32)
        numbers = np.array([rank for rank, _ in ranks.values()], np.uint32)
        return pair_table(pairs.reshape(-1, 3), numbers)

    def _added(self) -> dict[str, Array]:
        rows: list[int] = []
        raw: dict[bytes, int] = {}
        normal: dict[bytes, int] = {}
        for number, token in enumerate(self.added):
            flags = LSTRIP * bool(token["lstrip"]) | RSTRIP * bool(token["rstrip"])
            flags |= SINGLE_WORD * bool(token["single_word"]) | IS_SPECIAL * bool(token["special"])
            rows += [token["id"], flags]
            if token["content"]:
                words = normal if token["normalized"] else raw
                words.setdefault(token["content"].encode(), number)
        made = {"added": _numbers(rows)}
        made["raw_nodes"], made["raw_edges"] = trie(raw)
        made["normal_nodes"], made["normal_edges"] = trie(normal)
        return made

    def _steps(self) -> dict[str, Array]:
        steps = self.steps
        string_offsets, strings = _joined(steps.texts)
        ends = np.cumsum([0, *(len(words) for words in steps.patterns)])
        words = [word & 0xFFFFFFFF for pattern in steps.patterns for word in pattern]
        return {
            "normalizers": _numbers([n for step in steps.normalizers for n in step]),
            "splits": _numbers([n for step in steps.splits for n in step]),
            "string_offsets": string_offsets,
            "strings": strings,
            "pattern_offsets": _numbers(ends.tolist()),
            "patterns": _numbers(words),
            "classes": _numbers(steps.classes.words),
            "ranges": _numbers(steps.classes.ranges),
        }


class _Decoder:
    """How tokens become text: each one's text is known beforehand."""

    def __init__(self, decoder: Mapping[str, Any] | None) -> None:
        if decoder is None:
            raise NotCompiled("no decoder")
        steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
        kinds = [step["type"] for step in steps]
        self.replacements: list[tuple[str, str]] = []
        self.byte_fallback = False
        self.strip = 0
        if kinds == ["ByteLevel"]:
            self.kind = DECODE_BYTES
            return
        if kinds == ["Metaspace"]:
            first_only = steps[0].get("prepend_scheme", "always") != "never"
            self.kind = DECODE_METASPACE if first_only else DECODE_PIECES
            self.replacements = [(steps[0]["replacement"], " ")]
            return
        self.kind = DECODE_PIECES
        pattern = "".join(_DECODER_LETTERS.get(kind, "?") for kind in kinds)
        if not re.fullmatch("r*b?(fs?)?", pattern):
            raise NotCompiled(f"the decoder {' + '.join(kinds)}")
        for step in steps:
            if step["type"] == "Replace":
                if "String" not in step["pattern"]:
                    raise NotCompiled("a decoder that replaces by a regular expression")
                self.replacements.append((step["pattern"]["String"], step["content"]))
            elif step["type"] == "Strip":
                if step["stop"] or step["content"] != " ":
                    raise NotCompiled("a decoder that strips more than spaces at the start")
                self.strip = step["start"]
        self.byte_fallback = "b" in pattern

    def text(self, token: str) -> bytes:
        if self.kind == DECODE_BYTES:
            data = _alphabet_bytes(token)
            return token.encode() if data is None else data
        for old, new in self.replacements:
            token = token.replace(old, new)
        if self.byte_fallback and (byte := _BYTE_PIECE.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        return token.encode()


def _alphabet_bytes(token: str) -> bytes | None:
    try:
        return bytes([CHAR_TO_BYTE[char] for char in token])
    except KeyError:
        return None


def _check_normalized(text: str, added: Sequence[Mapping[str, Any]]) -> None:
    """Tokens that are looked for in normalised text are normalised by `tokenizers`, and then shown
    in that form: there are none such among language models."""
    contents = [token["content"] for token in added if token["normalized"]]
    if not contents:
        return
    from satchel.llm.tokenizer_sources.backend import load_backend

    normalizer = load_backend(text, "The tokenizer").normalizer
    for content in contents if normalizer is not None else ():
        if normalizer.normalize_str(content) != content:
            raise NotCompiled(f"the added token {content!r}, which normalisation changes")


def _joined(parts: Sequence[bytes]) -> tuple[Array, Array]:
    ends = np.cumsum([0, *(len(part) for part in parts)])
    return ends.astype(np.uint32), np.frombuffer(b"".join(parts), np.uint8)


def _numbers(values: Sequence[int]) -> Array:
    return np.array(list(values), np.uint32)


def _packed(arrays: Mapping[str, Array]) -> bytes:
    head = struct.calcsize("<8sIIQ") + 16 * len(ARRAYS)
    at = -(-head // ALIGNMENT) * ALIGNMENT
    table, body = b"", b"\0" * (at - head)
    for name in ARRAYS:
        data = arrays[name].tobytes() if name in arrays else b""
        table += struct.pack("<QQ", at, len(data))
        padded = -(-len(data) // ALIGNMENT) * ALIGNMENT
        body += data + b"\0" * (padded - len(data))
        at += padded
    return struct.pack("<8sIIQ", MAGIC, VERSION, len(ARRAYS), at) + table + body
