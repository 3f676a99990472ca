"""A model on a server in the place of one that is loaded here: for satchel chat --url."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from satchel.errors import ConfigError, RemoteError
from satchel.llm.generation import GenerationStats
from satchel.remote import Remote

# What LLM.generate calls an option, and what servers call it.
_FIELDS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "seed": "seed",
    "max_new_tokens": "max_tokens",
    "stop": "stop",
    "template_variables": "chat_template_kwargs",
    "grammar": "grammar",
}
_REASONS = {"stop": "end_token", "length": "max_new_tokens"}


class ServerSampling:
    """How the server samples, which it does not tell, and what was chosen instead."""

    def __init__(self, **given: Any) -> None:
        self._given = {name: value for name, value in given.items() if value is not None}

    def changed(self, **given: Any) -> ServerSampling:
        return ServerSampling(**{**self._given, **given})

    def describe(self) -> str:
        """
        >>> ServerSampling(top_k=None).describe(), ServerSampling(top_k=5).describe()
        ('as the server chooses', 'top_k 5, else as the server chooses')
        """
        chosen = [f"{name} {value}" for name, value in self._given.items()]
        return ", ".join([*chosen, "else as the server chooses" if chosen else _UNKNOWN])


_UNKNOWN = "as the server chooses"


class RemoteGeneration:
    """An answer that a server makes; iterate over it for its pieces, as for a Generation."""

    def __init__(self, remote: Remote, fields: Mapping[str, Any]) -> None:
        self._remote, self._fields = remote, fields
        self.text = ""
        self.stop_reason: str | None = None
        self.stats = GenerationStats()
        self._pieces = self._run()

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def _run(self) -> Iterator[str]:
        started = time.perf_counter()
        stats = self.stats
        for event in self._remote.chat(self._fields):
            if usage := event.get("usage"):
                details = usage.get("prompt_tokens_details") or {}
                stats.prompt_tokens = usage.get("prompt_tokens", 0)
                stats.reused_tokens = details.get("cached_tokens") or 0
                stats.new_tokens = usage.get("completion_tokens", 0)
            for choice in event.get("choices", ()):
                reason = choice.get("finish_reason")
                self.stop_reason = _REASONS.get(reason, reason) if reason else self.stop_reason
                delta = choice.get("delta") or {}
                if piece := (delta.get("reasoning_content") or "") + (delta.get("content") or ""):
                    now = time.perf_counter() - started
                    stats.ttft_s = stats.ttft_s or now
                    stats.decode_s = now - stats.ttft_s
                    self.text += delta.get("content") or ""
                    yield piece


class RemoteLLM:
    """As much of an LLM as a conversation needs."""

    chat_sampling = ServerSampling()
    has_chat_template = True

    def __init__(self, remote: Remote, model: str | None = None) -> None:
        known = remote.models()
        names = [str(each["id"]) for each in known]
        self.name = model or (names[0] if names else "")
        if self.name not in names:
            raise RemoteError(
                f"{remote.url} has no model {self.name!r}", f"It has {', '.join(names) or 'none'}."
            )
        self._remote = remote
        context = known[names.index(self.name)].get("max_model_len") or 0
        self.session = SimpleNamespace(context=context)
        # As much of a program as a conversation looks at.
        about = SimpleNamespace(name=self.name, generation={})
        self.program = SimpleNamespace(
            metadata={}, about=about, language_model=about, path=Path(self.name)
        )

    def generate(self, prompt: str | Sequence[Any], **options: Any) -> RemoteGeneration:
        """An answer of the server's."""
        messages: list[Any] = []
        if system := options.pop("system", None):
            messages.append({"role": "system", "content": system})
        messages += [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        fields: dict[str, Any] = {"model": self.name, "messages": messages}
        for name, called in _FIELDS.items():
            if options.get(name) not in (None, [], {}, ()):
                fields[called] = options[name]
        if options.get("schema") is not None:
            fields["response_format"] = _json_form(options["schema"])
        if options.get("regex") is not None:
            fields["structured_outputs"] = {"regex": options["regex"]}
        return RemoteGeneration(self._remote, fields)


def _json_form(schema: str) -> dict[str, Any]:
    from satchel.llm.grammar import schema_of

    form = {"name": "answer", "schema": schema_of(schema), "strict": True}
    return {"type": "json_schema", "json_schema": form}


def open_remote(arguments: argparse.Namespace) -> RemoteLLM:
    """The model on the server that --url names."""
    if arguments.session or arguments.adapter:
        raise ConfigError(
            "--session and --adapter are for models that run here",
            "On a server, an adapter is a model: satchel chat NAME:ADAPTER --url URL.",
        )
    key = arguments.api_key or os.environ.get("SATCHEL_API_KEY")
    return RemoteLLM(Remote(arguments.url, key), arguments.model)
