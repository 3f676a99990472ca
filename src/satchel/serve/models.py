"""The models that a server has, by the names that requests call them by."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from satchel.llm.llm import LLM
from satchel.serve.engine import Engine
from satchel.serve.errors import ApiError
from satchel.serve.listing import listed
from satchel.serve.metrics import Metrics
from satchel.serve.settings import Settings

Source = LLM | str | os.PathLike[str]


@dataclass(frozen=True)
class ServedModel:
    """A model, or one of its adapters (``NAME:ADAPTER``)."""

    name: str
    engine: Engine
    adapter: str | None = None

    @property
    def llm(self) -> LLM:
        return self.engine.llm

    @property
    def context(self) -> int:
        return self.llm.sessions.context


class Models:
    """All models of a server; the first one answers requests that name none."""

    def __init__(self, given: Mapping[str, Source], settings: Settings, metrics: Metrics) -> None:
        self.created = int(time.time())
        self._any_name = settings.any_model
        self.engines: list[Engine] = []
        self._by_name: dict[str, ServedModel] = {}
        for name, source in given.items():
            llm = source if isinstance(source, LLM) else _open(source, settings)
            engine = Engine(name, llm, settings, metrics)
            self.engines.append(engine)
            self._by_name[name] = ServedModel(name, engine)
            for adapter in llm.adapters:
                self._by_name[f"{name}:{adapter}"] = ServedModel(name, engine, adapter)

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def find(self, name: object) -> ServedModel:
        if not self._by_name:
            raise ApiError(404, "this server has no model that writes", code="model_not_found")
        if name is None:
            return next(iter(self._by_name.values()))
        if not isinstance(name, str):
            raise ApiError(400, "model must be a text", param="model")
        name = name.removesuffix(":latest")  # which Ollama's clients may add
        if name not in self._by_name and self._any_name:
            return next(iter(self._by_name.values()))
        if name not in self._by_name:
            raise ApiError(
                404,
                f"there is no model {name!r}; this server has {', '.join(self._by_name)}",
                param="model",
                code="model_not_found",
            )
        return self._by_name[name]

    def describe(self, name: str) -> dict[str, Any]:
        served = self.find(name)
        program = served.llm.program
        return listed(
            name,
            self.created,
            program.about,
            program.size,
            served.context,
            root=served.name,
            parent=served.name if served.adapter else None,
            chat=served.llm.has_chat_template,
            images=served.llm.takes_images,
            adapter=served.adapter,
        )

    def gauges(self) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        for engine in self.engines:
            values: dict[str, float] = {"running": engine.running, "waiting": engine.waiting}
            if engine.cache is not None:
                values["cache_pages"] = engine.cache.pages
                values["cache_pages_limit"] = engine.cache.most_pages
                values["sequences"] = engine.cache.sequences
            found |= {(f"satchel_{each}", engine.name): v for each, v in values.items()}
        return found


def _open(source: str | os.PathLike[str], settings: Settings) -> LLM:
    return LLM(source, cache_memory=settings.cache_memory)
