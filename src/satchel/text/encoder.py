"""``satchel.TextEncoder``: one vector for each text, by BERT and its kind."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ConfigError, InputError, ProgramFormatError
from satchel.llm.tokenizer_sources.backend import panics, shared_backend
from satchel.runtime.program import Program

Vectors = NDArray[np.float32]

EMBEDDING = "embedding"  # the output with a vector for each text
TASK = "feature-extraction"


@dataclass(frozen=True)
class TextRules:
    """How texts become inputs, as the program's metadata say it.

    >>> TextRules.from_dict(TextRules(max_length=8).to_dict()).max_length
    8
    """

    task: str = TASK
    pooling: str = "mean"
    normalize: bool = False
    max_length: int = 512  # tokens of a text, special ones included
    max_texts: int = 8  # that are computed together
    pad_id: int = 0
    prompts: Mapping[str, str] = field(default_factory=dict)  # what texts begin with, by use

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, parts: Mapping[str, Any]) -> TextRules:
        """Every field is checked, as files are not trusted."""
        given = {each.name: parts[each.name] for each in fields(cls) if each.name in parts}
        usual = cls()
        for name, value in given.items():
            wanted = type(getattr(usual, name))
            if type(value) is not wanted:
                raise ProgramFormatError(
                    f"text.{name} is {value!r} and not {wanted.__name__}", "Export it again."
                )
        rules = cls(**given)
        texts = all(isinstance(v, str) for pair in rules.prompts.items() for v in pair)
        if min(rules.max_length, rules.max_texts) < 1 or rules.pad_id < 0 or not texts:
            raise ProgramFormatError("the program's rules for texts are damaged", "Export it again")
        return rules


class TextEncoder:
    """A program that ``satchel export FOLDER --task feature-extraction`` made.

    >>> encoder = satchel.TextEncoder("minilm-cpu-fp32.satchel")  # doctest: +SKIP
    >>> a, b = encoder.embed(["a river in Italy", "the Po"])  # doctest: +SKIP
    >>> float(a @ b)  # doctest: +SKIP
    0.48
    """

    def __init__(self, program: str | os.PathLike[str] | Program, threads: int = 0) -> None:
        self.program = program if isinstance(program, Program) else Program(program)
        parts = self.program.metadata.get("text")
        if not isinstance(parts, dict):
            raise ConfigError(
                f"{self.program.path} does not make vectors of texts",
                f"Export a folder of transformers with --task {TASK}.",
            )
        self.rules = TextRules.from_dict(parts)
        try:
            text = self.program.section("tokenizer").decode()
        except UnicodeDecodeError:
            raise ProgramFormatError("the tokenizer is not UTF-8", "", "tokenizer") from None
        self._tokenizer, self._tokenizer_lock = shared_backend(text)
        instance = self.program.instance(threads)
        self.threads, self.kernels = instance.threads, instance.kernels
        self.emulated = instance.emulated
        self._method = instance.method("forward")
        if EMBEDDING not in self._method.outputs:
            raise ProgramFormatError(f"the program has no output {EMBEDDING}", "Export it again.")
        self._lock = threading.Lock()

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        outputs = self._method.info["outputs"]
        return int(outputs[self._method.outputs.index(EMBEDDING)]["shape"][-1])

    def tokens(self, text: str, truncate: bool = False) -> list[int]:
        """A text's tokens with the special ones around them.

        One that is too long is an error, or is cut as the tokenizer cuts it.
        """
        tokenizer, most = self._tokenizer, self.rules.max_length
        advice = "Check that it is valid Unicode"
        with self._tokenizer_lock, panics("The text cannot be encoded", advice):
            tokenizer.encode_special_tokens = False
            bare = tokenizer.encode(text, add_special_tokens=False)
            room = most - tokenizer.num_special_tokens_to_add(False)
            count = len(bare.ids)
            if truncate:
                bare.truncate(max(room, 0))
            ids: list[int] = tokenizer.post_process(bare).ids
        if count > room and not truncate:
            raise InputError(
                f"a text has {len(ids)} tokens, and the model takes {most}",
                "Shorten it, or let it be cut.",
            )
        return ids

    def embed(
        self, texts: str | Sequence[str], *, prompt: str | None = None, truncate: bool = True
    ) -> Vectors:
        """The vectors of texts, [texts, dimensions]; of one text, [dimensions].

        ``prompt`` names what all begin with, where the model has such names (``query``).
        """
        listed = [texts] if isinstance(texts, str) else list(texts)
        before = self._prompt(prompt)
        vectors = self.embed_tokens([self.tokens(before + text, truncate) for text in listed])
        return vectors[0] if isinstance(texts, str) else vectors

    def embed_tokens(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """The same of tokens, which have their special ones already."""
        found = np.zeros((len(texts), self.dimensions), np.float32)
        for tokens in texts:
            if not 1 <= len(tokens) <= self.rules.max_length:
                raise InputError(
                    f"a text has {len(tokens)} tokens, and the model takes 1 to "
                    f"{self.rules.max_length}"
                )
        # Texts of similar length together: least of it is padding.
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        for start in range(0, len(order), self.rules.max_texts):
            places = order[start : start + self.rules.max_texts]
            found[places] = self._run([texts[place] for place in places])
        return found

    def _run(self, texts: Sequence[Sequence[int]]) -> Vectors:
        longest = max(map(len, texts))
        ids = np.full((len(texts), longest), self.rules.pad_id, np.int64)
        mask = np.zeros((len(texts), longest), np.int64)
        for row, tokens in enumerate(texts):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        with self._lock:
            results = self._method.run(input_ids=ids, attention_mask=mask)
        vectors: Vectors = results[self._method.outputs.index(EMBEDDING)]
        return vectors

    def _prompt(self, name: str | None) -> str:
        if name is None:
            return ""
        if name not in self.rules.prompts:
            known = ", ".join(self.rules.prompts) or "none"
            raise ConfigError(f"there is no prompt {name!r} in this model", f"It has: {known}.")
        return self.rules.prompts[name]
