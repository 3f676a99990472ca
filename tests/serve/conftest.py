"""A server of tiny models on a port of its own, for all tests of this folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from openai import OpenAI

import satchel
from satchel.serve import App, Settings
from support.tiny_llm import write_tiny_llm


@dataclass
class Running:
    """A server that runs in a thread of this process."""

    app: App
    url: str
    server: uvicorn.Server

    @property
    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    @property
    def engine(self) -> Any:
        return self.app.models.engines[0]

    @property
    def answering(self) -> int:
        """Requests that have been read and are not answered yet."""
        return len(self.server.server_state.tasks)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """In it no step is made: a tiny model is done before anything could be seen of it."""
        batch, go_on = self.engine._batch, threading.Event()
        step = batch.step
        batch.step = lambda: (go_on.wait(60), step())[1]
        try:
            yield
        finally:
            batch.step = step
            go_on.set()


@contextmanager
def serving(app: App) -> Iterator[Running]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Running(app, f"http://127.0.0.1:{port}", server)
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        app.close()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve")
    checkpoint = write_tiny_llm(folder / "tiny", max_position_embeddings=2048)
    return satchel.export(checkpoint, folder / "tiny.satchel", context=1024, prefill_ar_len=128)


@pytest.fixture(scope="module")
def server(program: Path) -> Iterator[Running]:
    with serving(App(program, Settings(max_sequences=8))) as running:
        yield running


@pytest.fixture
def serve(program: Path) -> Iterator[Callable[..., Running]]:
    """Starts servers with settings of their own."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(serving(App(program, Settings(**settings))))
