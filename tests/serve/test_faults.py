"""Clients that behave badly: nothing leaks, and the answers of others stay what they are."""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from openai import APIError, OpenAI

from satchel import LLM
from serve.conftest import Running
from serve.test_server import request, wait_until

Serve = Callable[..., Running]
QUIET = {"prompt": "quiet " * 20, "max_tokens": 40, "temperature": 1.0, "seed": 9}


def connect(server: Running) -> socket.socket:
    place = urlsplit(server.url)
    return socket.create_connection((place.hostname or "", place.port or 0), timeout=30)


def raw(body: bytes, path: str = "/v1/completions", length: int | None = None) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return (
        f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body
    )


def resident() -> int:
    """Bytes of memory in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextmanager
def others_unchanged(server: Running, program: Path) -> Iterator[None]:
    """While this goes on, another client gets its answers, bit for bit."""
    wanted = LLM(program).generate(
        QUIET["prompt"], raw=True, max_new_tokens=40, temperature=1.0, seed=9
    )
    text = wanted.finish().text
    done = threading.Event()
    made: list[str] = []

    def ask() -> None:
        while not done.is_set() or not made:
            made.append(request(server, "/v1/completions", QUIET)[1]["choices"][0]["text"])

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert set(made) == {text}


def settled(server: Running) -> None:
    """Nothing runs or waits; all sequences that are left are those kept for later."""
    engine = server.engine
    # Connections are accepted in their order: behind this one none is left that was not seen.
    request(server, "/health")
    wait_until(lambda: server.answering + engine.running + engine.waiting == 0)
    sessions = engine.llm.sessions
    assert sessions._busy == []
    usage = sessions.first.instance.cache_usage
    kept = {id(session) for session in (*sessions._idle, sessions.first)}
    assert usage.sequences <= len(kept) + 1
    sessions.most_idle = 0
    while sessions.drop_oldest():
        pass
    assert sessions.first.instance.cache_usage.pages == 0
    sessions.most_idle = 128


def test_a_thousand_clients_that_hang_up(serve: Serve, program: Path) -> None:
    server = serve(max_sequences=8, queue=2000)
    chance = random.Random(1)

    def hang_up(count: int) -> None:
        for number in range(count):
            body = {
                "prompt": f"{number} " * chance.choice((1, 30, 90)),
                "max_tokens": 200,
                "stream": chance.random() < 0.7,
                "n": chance.choice((1, 1, 3)),
            }
            with connect(server) as connection:
                connection.sendall(raw(json.dumps(body).encode()))
                if chance.random() < 0.3:
                    connection.recv(chance.choice((1, 400)))

    def round_of_them() -> None:
        threads = [threading.Thread(target=hang_up, args=(125,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        settled(server)
        gc.collect()

    with others_unchanged(server, program):
        pass
    round_of_them()
    before, files = resident(), len(os.listdir("/proc/self/fd"))
    with others_unchanged(server, program):
        threads = threading.Thread(target=lambda: hang_up(100))
        threads.start()
        threads.join()
    round_of_them()
    assert resident() - before < 32 << 20
    assert len(os.listdir("/proc/self/fd")) <= files + 8


def test_half_sent_and_hostile_bodies(serve: Serve, program: Path) -> None:
    server = serve(body_time_limit=0.5, max_body=1 << 20)
    good = json.dumps(QUIET).encode()
    with others_unchanged(server, program):
        halves = [connect(server) for _ in range(20)]
        for number, connection in enumerate(halves):
            connection.sendall(raw(good[: number * 3], length=len(good)))
        answers = [connection.recv(200) for connection in halves]
        assert all(b"408" in answer for answer in answers), answers[0]
        for connection in halves:
            connection.close()
        for body in (b"\x00" * 1000, b"\xff" * 1000, b'{"prompt":' * 1000, b"{}" * 9, b"nul"):
            with connect(server) as connection:
                connection.sendall(raw(body))
                assert b" 400 " in connection.recv(200)
        with connect(server) as connection:  # said to be small, and is not told twice
            connection.sendall(raw(b"", length=10 << 20))
            assert b" 413 " in connection.recv(200)
        with connect(server) as connection:
            connection.sendall(b"GARBAGE\r\n\r\n")
            assert b" 400 " in connection.recv(200)
        with connect(server) as connection:
            connection.sendall(raw(b"{}", length=-5))
            assert b" 400 " in connection.recv(200)
    settled(server)


def test_prompts_of_ten_megabytes(serve: Serve, program: Path) -> None:
    server = serve(max_body=16 << 20)
    huge = "word " * (2 << 20)
    with others_unchanged(server, program):
        for body in (
            {"prompt": huge},
            {"prompt": [7] * (2 << 20)},
            {"messages": [{"role": "user", "content": huge}]},
            {"messages": [{"role": "user", "content": "x"}] * 100_000},
        ):
            path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
            status, document, _ = request(server, path, body)
            assert status == 400, document
    settled(server)


def test_slow_readers_hold_up_nobody(serve: Serve, program: Path) -> None:
    server = serve(max_sequences=4, send_time_limit=1.0)
    body = json.dumps({"prompt": "abc", "max_tokens": 900, "stream": True, "logprobs": 20}).encode()
    with others_unchanged(server, program):
        slow = []
        for _ in range(8):
            place = urlsplit(server.url)
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect((place.hostname, place.port))
            connection.sendall(raw(body))
            slow.append(connection)
        started = time.monotonic()
        for _ in range(5):
            request(server, "/v1/completions", {"prompt": "x", "max_tokens": 2})
        assert time.monotonic() - started < 20
        wait_until(lambda: server.engine.running + server.engine.waiting <= 1, 30)
        for connection in slow:
            connection.close()
    settled(server)


def test_a_killed_server_starts_again_on_its_port(program: Path) -> None:
    """Killed in the middle of an answer, without a word; the next one answers as it did."""
    from serve.test_serve_command import process

    def ask(url: str, tokens: int) -> Any:
        client = OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)
        return client.completions.create(
            model="tiny", prompt="abc", max_tokens=tokens, stream=True, temperature=0
        )

    with process(program, "--threads", 1) as (running, url):
        text = "".join(part.choices[0].text for part in ask(url, 8))
        cut = iter(ask(url, 900))
        next(cut)
        running.kill()
        running.wait()
        with pytest.raises((APIError, httpx.HTTPError)):
            list(cut)
    with process(program, "--threads", 1, "--port", urlsplit(url).port) as (_, again):
        assert again == url
        assert "".join(part.choices[0].text for part in ask(again, 8)) == text


def test_a_step_that_breaks_does_not_end_the_server(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()

    def broken() -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(server.engine._batch, "step", broken)
    status, document, _ = request(server, "/v1/completions", {"prompt": "x", "max_tokens": 3})
    assert status == 500 and document["error"]["type"] == "server_error"
    assert request(server, "/v1/completions", {"prompt": "x", "max_tokens": 3})[0] == 200
    settled(server)
