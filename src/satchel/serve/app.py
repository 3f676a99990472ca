"""The server as an ASGI application: its paths, and what they all have in common."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from satchel import __version__
from satchel.errors import ConfigError
from satchel.llm.llm import LLM
from satchel.serve import chat, completions, embeddings, llamacpp, ollama
from satchel.serve.audio import BODY_TIMES, AudioEndpoints
from satchel.serve.chat_prompt import chat_prompt, chat_text
from satchel.serve.encoders import Encoders, encoder_vectors, read_encoder_texts
from satchel.serve.errors import ApiError
from satchel.serve.fields import Fields
from satchel.serve.guard import check, client_of
from satchel.serve.http import EventStream, Json, failed, read_body, unless_gone, while_there
from satchel.serve.jobs import Job
from satchel.serve.metrics import Metrics
from satchel.serve.models import Models, ServedModel, Source
from satchel.serve.page import page_file
from satchel.serve.responses import Responses
from satchel.serve.settings import Settings
from satchel.serve.tools import read_tools
from satchel.speech.transcriber import Transcriber
from satchel.text.encoder import TextEncoder

_log = logging.getLogger("satchel.serve")
Endpoint = Callable[[Request], Awaitable[Response]]


class App:
    """Serves models with OpenAI's API; mount it, or give it to an ASGI server such as uvicorn.

    >>> app = App("model.satchel")
    >>> app.models.names
    ['model']
    >>> app.close()
    """

    def __init__(
        self,
        models: Source | Mapping[str, Source],
        settings: Settings | None = None,
        speech: Mapping[str, Transcriber] | None = None,
        encoders: Mapping[str, TextEncoder] | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.metrics = Metrics()
        self._responses = Responses(self.settings.kept_responses)
        self.audio = AudioEndpoints(speech or {}, self.settings)
        self.encoders = Encoders(encoders or {})
        if not models and not speech and not encoders:
            raise ConfigError("there is no model to serve", "Give at least one.")
        named = models if isinstance(models, Mapping) else {model_name(models): models}
        self.models = Models(named, self.settings, self.metrics)
        self._limits = self.settings
        if any(engine.llm.takes_images for engine in self.models.engines):  # larger than text
            most = BODY_TIMES * self.settings.max_body
            self._limits = replace(self.settings, max_body=most)
        self._asgi = Starlette(
            routes=self._routes(),
            exception_handlers={HTTPException: _no_such_path, 500: _broken},
            middleware=self._cors(),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._asgi(scope, receive, send)

    def close(self) -> None:
        """Stop at once."""
        for engine in self.models.engines:
            engine.close()

    def drain(self, seconds: float = 60.0) -> bool:
        """Take nothing new and wait until all answers have ended; False if they did not."""
        return all([engine.drain(seconds) for engine in self.models.engines])

    def _routes(self) -> list[Route]:
        post: dict[str, Endpoint] = {
            "/v1/chat/completions": partial(self._answer, chat),
            "/v1/completions": partial(self._answer, completions),
            "/v1/responses": partial(self._answer, self._responses),
            "/v1/chat/completions/input_tokens": self._input_tokens,
            "/v1/embeddings": partial(self._embeddings, embeddings.openai_answer),
            "/api/embed": partial(self._embeddings, embeddings.ollama_answer),
            "/api/embeddings": partial(self._embeddings, embeddings.ollama_vector, name="prompt"),
            "/completion": partial(self._answer, llamacpp),
            "/api/chat": partial(self._answer, ollama.CHAT),
            "/api/generate": partial(self._answer, ollama.GENERATE),
            "/api/show": self._show,
            "/v1/audio/transcriptions": self.audio.transcribe,
            "/v1/audio/translations": self.audio.translate,
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
            "/apply-template": self._apply_template,
        }
        get: dict[str, Endpoint] = {
            "/v1/models": self._list_models,
            "/v1/models/{name:path}": self._describe_model,
            "/v1/responses/{name}": self._kept_response,
            "/v1/responses/{name}/input_items": self._kept_input,
            "/tokenizer_info": partial(self._tell, completions.tokenizer_info),
            "/props": partial(self._tell, llamacpp.props),
            "/slots": partial(self._tell, llamacpp.slots),
            "/api/tags": self._tags,
            "/api/ps": self._tags,
            "/api/version": self._version,
            "/version": self._own_version,
            "/health": self._health,
            "/ping": self._health,
            "/metrics": self._metrics_text,
        }
        delete: dict[str, Endpoint] = {"/v1/responses/{name}": self._delete_response}
        if self.settings.page:
            get |= {"/": page_file, "/page/{name}": page_file}
        return [
            Route(path, self._guarded(path, endpoint), methods=[method])
            for method, endpoints in (("POST", post), ("GET", get), ("DELETE", delete))
            for name, endpoint in endpoints.items()
            for path in dict.fromkeys((name, name.removeprefix("/v1")))  # some leave it out
        ]

    def _cors(self) -> list[Middleware]:
        if not self.settings.origins:
            return []
        return [
            Middleware(
                CORSMiddleware,
                allow_origins=self.settings.origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
            )
        ]

    def _guarded(self, path: str, endpoint: Endpoint) -> Endpoint:
        """The checks before every endpoint, and errors in OpenAI's form after it."""

        async def answer(request: Request) -> Response:
            try:
                check(request, self.settings)
                response = await endpoint(request)
            except ClientDisconnect:
                response = Response(status_code=499)
            except Exception as error:
                response = failed(error, plain=path.startswith("/api/"))
                if response.status_code == 500:
                    _log.exception("%s failed", path)
            status = str(response.status_code)
            self.metrics.count("satchel_requests_total", path=path, status=status)
            return response

        return answer

    async def _fields(self, request: Request) -> Fields:
        fields = Fields(await read_body(request, self._limits))
        if self.settings.log_prompts:
            _log.info("%s %s", request.url.path, fields.document)
        return fields

    async def _read(self, request: Request) -> tuple[ServedModel, Fields]:
        fields = await self._fields(request)
        return self.models.find(fields.get("model")), fields

    async def _answer(self, endpoint: Any, request: Request) -> Response:
        """An endpoint's module prepares a request, and tells its answers whole or as a stream."""
        model, fields = await self._read(request)
        ask = await run_in_threadpool(endpoint.prepare, model, fields, self.settings)
        job: Job = model.engine.submit(ask.generations, client_of(request))
        if ask.wanted.stream:
            events = partial(endpoint.stream, job, ask)
            return EventStream(job, events, self.settings, endpoint.FRAMING)
        return Json(await while_there(request.receive, job, endpoint.whole(job, ask)))

    async def _embeddings(
        self, answer: Callable[..., Any], request: Request, name: str = "input"
    ) -> Response:
        fields = await self._fields(request)
        encoder = self.encoders.find(fields.get("model"), alone=not self.models.names)
        if encoder is not None:
            most = embeddings.MOST_TEXTS
            read = await run_in_threadpool(read_encoder_texts, encoder, fields, name, most)
            made = run_in_threadpool(encoder_vectors, encoder, read)
            found = await unless_gone(request.receive, asyncio.ensure_future(made))
            return Json(answer(encoder, fields, read, found))
        model = self.models.find(fields.get("model"))
        texts = await run_in_threadpool(embeddings.read_texts, model, fields, self.settings, name)
        working = asyncio.ensure_future(embeddings.embed(model, texts))
        found = await unless_gone(request.receive, working)
        return Json(answer(model, fields, texts, found))

    async def _tokenize(self, request: Request) -> Response:
        model, fields = await self._read(request)

        def work() -> dict[str, Any]:
            prompt = None
            if "messages" in fields.document:
                tools = read_tools(fields)
                prompt = chat_prompt(model, fields, self.settings, tools).visible(model)
            return completions.tokenize(model, fields, prompt)

        return Json(await run_in_threadpool(work))

    async def _input_tokens(self, request: Request) -> Response:
        """How many tokens a conversation has, before it is asked."""
        model, fields = await self._read(request)
        tools = read_tools(fields)
        prompt = await run_in_threadpool(chat_prompt, model, fields, self.settings, tools)
        return Json({"object": "response.input_tokens", "input_tokens": len(prompt.tokens)})

    async def _apply_template(self, request: Request) -> Response:
        model, fields = await self._read(request)
        tools = read_tools(fields)
        text, _ = await run_in_threadpool(chat_text, model, fields, self.settings, tools)
        return Json({"prompt": text})

    async def _detokenize(self, request: Request) -> Response:
        model, fields = await self._read(request)
        return Json(await run_in_threadpool(completions.detokenize, model, fields))

    async def _kept_response(self, request: Request) -> Response:
        return Json(self._responses.store.find(request.path_params["name"]).response)

    async def _kept_input(self, request: Request) -> Response:
        kept = self._responses.store.find(request.path_params["name"])
        return Json({"object": "list", "data": kept.input[::-1], "has_more": False})

    async def _delete_response(self, request: Request) -> Response:
        name = request.path_params["name"]
        self._responses.store.delete(name)
        return Json({"id": name, "object": "response", "deleted": True})

    async def _list_models(self, _request: Request) -> Response:
        listed = [self.models.describe(name) for name in self.models.names]
        return Json({"object": "list", "data": [*listed, *self._without_text()]})

    async def _describe_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        other = next((one for one in self._without_text() if one["id"] == name), None)
        return Json(other or self.models.describe(name))

    def _without_text(self) -> list[dict[str, Any]]:
        """The models that do not write: those that hear, and those that make vectors."""
        return [*self.audio.describe(), *self.encoders.describe()]

    async def _tell(
        self, about: Callable[[ServedModel, Settings], Any], request: Request
    ) -> Response:
        model = self.models.find(request.query_params.get("model"))
        return Json(about(model, self.settings))

    async def _tags(self, _request: Request) -> Response:
        return Json(ollama.tags(self.models))

    async def _version(self, _request: Request) -> Response:
        return Json({"version": ollama.VERSION})

    async def _own_version(self, _request: Request) -> Response:
        return Json({"version": __version__})

    async def _show(self, request: Request) -> Response:
        model, _ = await self._read(request)
        return Json(ollama.show(model))

    async def _health(self, _request: Request) -> Response:
        return Json({"status": "ok"})

    async def _metrics_text(self, _request: Request) -> Response:
        text = self.metrics.text(self.models.gauges())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def model_name(source: Source) -> str:
    """What a model is called unless a name is given: as its file, without the suffix.

    >>> model_name("models/llama.satchel"), model_name("smollm2-135m")
    ('llama', 'smollm2-135m')
    """
    if isinstance(source, LLM):
        return source.program.path.stem
    return os.path.basename(os.fspath(source).rstrip("/")).removesuffix(".satchel")


async def _no_such_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = "is not there" if error.status_code == 404 else "does not take " + request.method
    path = request.url.path
    told = ApiError(error.status_code, f"{path} {what}", code="unknown_url", headers=error.headers)
    return failed(told, plain=path.startswith("/api/"))


async def _broken(_request: Request, error: Exception) -> Response:
    return failed(error)
