"""From a draft to a .pte file: what it will take, and writing it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any

from satchel.backends.executorch.file import PteFile
from satchel.backends.executorch.language_model import LanguageModelMethod
from satchel.backends.executorch.method import Constants, MethodWriter, told_method
from satchel.backends.executorch.module import module_method
from satchel.backends.executorch.tokenizer_file import misread, tokenizer_for_runners
from satchel.backends.target import Compiled, CompilePlan, Draft
from satchel.backends.weight_rows import Bytes
from satchel.graph.ir import Graph, Sym
from satchel.program.names import KV_METHOD, PREFILL_METHOD
from satchel.remarks import remark
from satchel.runtime.program import Program
from satchel.sources.progress import Progress
from satchel.units import megabytes

PTE, TOKENIZER = ".pte", ".tokenizer.json"
CLASSES, PREPROCESSING = ".classes.txt", ".preprocessing.json"
_MEMORY = 64 << 20  # blocks of weights on their way, and the scales of the largest


class _PteExport(ABC):
    """What language models and modules have in common."""

    graphs: tuple[Graph, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._file  # noqa: B018  (what has no form there is told now)

    @cached_property
    def _file(self) -> PteFile:
        constants, named = Constants(), dict[str, Bytes]()
        written = self._method(constants, named)
        told = [told_method(name, numbers) for name, numbers in self._told().items()]
        return PteFile([written], told, constants, named)

    @abstractmethod
    def _method(self, constants: Constants, named: dict[str, Bytes]) -> MethodWriter: ...

    def _told(self) -> dict[str, list[int | bool]]:
        """What runners ask of a model."""
        return {}

    def plan(self) -> CompilePlan:
        document: dict[str, Any] = {
            "file_size_bytes": self._file.size,
            "runtime_bytes": self._file.runtime_bytes,
            "delegates": len(self._file.methods[0].delegates),
        }
        line = (
            f"runner       {document['delegates']} parts by XNNPACK, kernels between them; "
            f"{megabytes(document['runtime_bytes'])} for caches and values beside the weights"
        )
        return CompilePlan(self._file.size, _MEMORY, document, (line,), (PTE, *self._others))

    def compile(self, program: Program, folder: Path, progress: Progress) -> Compiled:
        label, total = f"Writing {self._draft.recipe_name} as .pte", self._file.size
        path = folder / "model.pte"
        self._file.write(path, program, lambda done: progress(label, done, total))
        files = {PTE: path, **self._beside(program, folder)}
        return Compiled(files, self.plan().document)

    @property
    @abstractmethod
    def _others(self) -> tuple[str, ...]:
        """What further files have behind the output's stem."""

    @abstractmethod
    def _beside(self, program: Program, folder: Path) -> dict[str, Path]:
        """Further files, by what follows the output's stem."""


class PteLanguageModel(_PteExport):
    """A language model's .pte file, with its tokenizer beside it."""

    def __init__(self, draft: Draft, all_logits: bool) -> None:
        by_name = {graph.name: graph for graph in draft.graphs}
        self._graph = by_name.get(PREFILL_METHOD, by_name[KV_METHOD])
        self._all_logits = all_logits
        super().__init__(draft)

    def _method(self, constants: Constants, named: dict[str, Bytes]) -> MethodWriter:
        draft = self._draft
        return LanguageModelMethod(
            self._graph, draft.context, draft.encodings, constants, named, self._all_logits
        ).write()

    def _told(self) -> dict[str, list[int | bool]]:
        graph = self._graph
        tokens, tokenizer = graph.inputs[0].shape[0], self._draft.samples.tokenizer
        assert tokenizer is not None
        vocabulary = graph.outputs[0].shape[1]
        assert isinstance(vocabulary, int)
        layers = len(graph.caches) // 2
        told: dict[str, list[int | bool]] = {
            "get_vocab_size": [vocabulary],
            "get_eos_ids": list(tokenizer.eos_ids),
            "get_max_seq_len": [tokens.maximum if isinstance(tokens, Sym) else tokens],
            "get_max_context_len": [self._draft.context],
            "get_n_layers": [layers],
            "use_kv_cache": [True],
            "use_sdpa_with_kv_cache": [True],
            "enable_dynamic_shape": [isinstance(tokens, Sym)],
        }
        if tokenizer.bos_id is not None:
            told["get_bos_id"] = [tokenizer.bos_id]
        return told

    @property
    def _others(self) -> tuple[str, ...]:
        return (TOKENIZER,)

    def _beside(self, program: Program, folder: Path) -> dict[str, Path]:
        path, text = folder / "tokenizer.json", program.section("tokenizer").decode()
        path.write_text(tokenizer_for_runners(text), encoding="utf-8")
        wrong = misread(str(path), text)
        if wrong:
            remark(
                "ExecuTorch's reader of tokenizers does not read this one as it is meant "
                f"({wrong}): give its runner a tokenizer file of the model's makers."
            )
        return {TOKENIZER: path}


class PteModule(_PteExport):
    """A module's .pte file; of a classifier, with its classes and how images are prepared."""

    def _method(self, constants: Constants, named: dict[str, Bytes]) -> MethodWriter:
        (graph,) = self._draft.graphs
        return module_method(graph, self._draft.encodings, constants, named)

    @property
    def _others(self) -> tuple[str, ...]:
        return (CLASSES, PREPROCESSING) if self._draft.about.get("vision") else ()

    def _beside(self, program: Program, folder: Path) -> dict[str, Path]:
        vision = program.metadata.get("vision")
        if not vision:
            return {}
        classes, how = folder / "classes.txt", folder / "preprocessing.json"
        classes.write_text("\n".join(vision["classes"]) + "\n", encoding="utf-8")
        how.write_text(json.dumps(vision["preprocessing"], indent=1), encoding="utf-8")
        return {CLASSES: classes, PREPROCESSING: how}
