"""Calls the compiled methods of a model that hears: one window, and any number of texts over it.

What the encoder makes for the cross-attention stays here as codes, and goes into every step of the
decoder as it is. Each text has a KV cache of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.manifest import CompiledMethod
from satchel.backends.qnn.runner import Arrays, Execute, Host, Runner
from satchel.errors import ExecutionError
from satchel.program.about import AboutSpeech
from satchel.runtime.program import Instance, Program
from satchel.speech.whisper import DECODE, ENCODE

Array = NDArray[Any]
# Beside the methods: a text that begins as another one does, and the end of one.
FORK, CLOSE = "fork", "close"


def make_runner(
    program: Program, methods: Mapping[str, CompiledMethod], execute: Execute
) -> Runner:
    """What calls a program's compiled methods."""
    kind = SpeechRunner if isinstance(program.about, AboutSpeech) else Runner
    return kind(methods, Host(Instance(program)), execute)


class SpeechRunner(Runner):
    """``sequence`` tells whose each token is; those of one text come in order, one at a time."""

    def __init__(self, methods: Mapping[str, CompiledMethod], host: Host, execute: Execute) -> None:
        super().__init__(methods, host, execute)
        self._empty, self._texts, self._heard = self.caches, dict[int, Arrays](), dict[str, Array]()

    def run(self, name: str, inputs: Mapping[str, Array]) -> Arrays:
        if name == FORK:
            source, made = map(int, inputs["sequence"])
            kept = self._texts.get(source, self._empty)
            self._texts[made] = {key: array.copy() for key, array in kept.items()}
            return {}
        if name == CLOSE:
            self._texts.pop(int(inputs["sequence"][0]), None)
            return {}
        return self._encode(inputs) if name == ENCODE else self._decode(inputs)

    def _encode(self, inputs: Mapping[str, Array]) -> Arrays:
        method = self.methods[ENCODE]
        codes = self._chain(method, self.codes(method, inputs))
        self._heard = {name: codes[name] for name in method.held}
        return {"audio": method.tensors["audio"].encoding.dequantize(codes["audio"])}

    def _decode(self, inputs: Mapping[str, Array]) -> Arrays:
        method = self.methods[DECODE]
        if not self._heard:
            raise ExecutionError("there is no window that was heard", "Call encode first.")
        wanted = set(inputs["rows"].tolist())
        rows: dict[int, Array] = {}
        for number, sequence in enumerate(inputs["sequence"].tolist()):
            if sequence not in self._texts:
                self._texts[sequence] = {k: array.copy() for k, array in self._empty.items()}
            self.caches = self._texts[sequence]
            one = {name: inputs[name][number : number + 1] for name in ("tokens", "position")}
            made = self._step(method, one | {"sequence": np.zeros(1, np.int32)})
            if number in wanted:
                rows[number] = made["logits"][0]
        return {"logits": np.stack([rows[row] for row in inputs["rows"].tolist()])}

    def _chain(self, method: CompiledMethod, codes: Arrays) -> Arrays:
        return super()._chain(method, codes | self._heard)
