"""From a draft to a .pte file: what it will take, and writing it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from satchel.backends.executorch.file import PteFile
from satchel.backends.executorch.language_model import LanguageModelMethod
from satchel.backends.executorch.method import Constants, told_method
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
_MEMORY = 64 << 20  # blocks of weights on their way, and the scales of the largest


class PteLanguageModel:
    """A language model's .pte file, with its tokenizer beside it."""

    graphs: tuple[Graph, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(self, draft: Draft, all_logits: bool) -> None:
        self._draft, self._all_logits = draft, all_logits
        self._file  # noqa: B018  (what has no form there is told now)

    @cached_property
    def _file(self) -> PteFile:
        draft = self._draft
        by_name = {graph.name: graph for graph in draft.graphs}
        graph = by_name.get(PREFILL_METHOD, by_name[KV_METHOD])
        constants, named = Constants(), dict[str, Bytes]()
        written = LanguageModelMethod(
            graph, draft.context, draft.encodings, constants, named, self._all_logits
        ).write()
        told = [told_method(name, numbers) for name, numbers in self._told(graph).items()]
        return PteFile([written], told, constants, named)

    def _told(self, graph: Graph) -> dict[str, list[int | bool]]:
        """What runners ask of a model."""
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
        return CompilePlan(self._file.size, _MEMORY, document, (line,))

    def compile(self, program: Program, folder: Path, progress: Progress) -> Compiled:
        label, total = f"Writing {self._draft.recipe_name} as .pte", self._file.size
        path, tokenizer = folder / "model.pte", folder / "tokenizer.json"
        self._file.write(path, program, lambda done: progress(label, done, total))
        text = program.section("tokenizer").decode()
        tokenizer.write_text(tokenizer_for_runners(text), encoding="utf-8")
        wrong = misread(str(tokenizer), text)
        if wrong:
            remark(
                "ExecuTorch's reader of tokenizers does not read this one as it is meant "
                f"({wrong}): give its runner a tokenizer file of the model's makers."
            )
        return Compiled({PTE: path, TOKENIZER: tokenizer}, self.plan().document)
