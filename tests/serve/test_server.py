"""What a server does beside answering: limits, turns, keys, metrics, and clients that go away."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

import satchel
from satchel import LLM
from satchel.serve import App, Settings
from satchel.serve.fair_queue import FairQueue
from satchel.serve.reasoning import ReasoningSplitter
from serve.conftest import Running, serving
from support.tiny_llm import write_tiny_llm

Serve = Callable[..., Running]


def request(
    server: Running, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any, dict[str, str]]:
    """The status, the document and the headers."""
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request("POST" if body is not None else "GET", path, data, headers or {})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    document = json.loads(text) if text.startswith("{") else text
    return response.status, document, {k.lower(): v for k, v in response.getheaders()}


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_tokens_there_and_back(server: Running, program: Path) -> None:
    wanted = LLM(program).tokenizer.encode("héllo")
    for field in ("content", "prompt"):
        _, made, _ = request(server, "/tokenize", {field: "héllo"})
        assert made["tokens"] == wanted and made["count"] == len(wanted)
    _, chat, _ = request(server, "/tokenize", {"messages": [{"role": "user", "content": "hi"}]})
    assert chat["tokens"] == LLM(program).chat_tokens([{"role": "user", "content": "hi"}])
    _, text, _ = request(server, "/detokenize", {"tokens": wanted})
    assert text["content"] == "héllo" == text["prompt"]
    _, pieces, _ = request(server, "/tokenize", {"content": "ab", "with_pieces": True})
    assert [each["piece"] for each in pieces["tokens"]] == ["a", "b"]
    _, pieces, _ = request(server, "/tokenize", {"content": "é", "with_pieces": True})
    assert [each["piece"] for each in pieces["tokens"]] == [[0xC3], [0xA9]]
    assert request(server, "/detokenize", {"tokens": [1, -5]})[0] == 400


def test_going_on_with_the_last_message(server: Running) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "He "}]
    body: Any = {"messages": messages, "continue_final_message": True}
    _, made, _ = request(server, "/apply-template", body)
    assert made == {"prompt": "<|user|>hi<|end|><|assistant|>He"}
    wrong = (
        {"add_generation_prompt": True},
        {"messages": messages[:1]},
        {"messages": [*messages, {"role": "assistant", "content": " "}]},
    )
    for change in wrong:
        status, made, _ = request(server, "/v1/chat/completions", {**body, **change})
        assert status == 400 and made["error"]["param"] == "continue_final_message"


def test_what_the_tokenizer_is_like(server: Running) -> None:
    _, told, _ = request(server, "/tokenizer_info")
    assert told["eos_token"] == "<|end|>" and told["bos_token"] == "<s>"
    assert "messages" in told["chat_template"]


def test_the_prompt_of_a_conversation(server: Running) -> None:
    messages = [{"role": "user", "content": "hi"}]
    _, made, _ = request(server, "/apply-template", {"messages": messages})
    assert made == {"prompt": "<|user|>hi<|end|><|assistant|>"}
    _, counted, _ = request(server, "/v1/chat/completions/input_tokens", {"messages": messages})
    assert counted["input_tokens"] == 5


def test_paths_without_a_version(server: Running) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    texts = [
        request(server, path, body)[1]["choices"][0]["message"]["content"]
        for path in ("/chat/completions", "/v1/chat/completions")
    ]
    assert texts[0] == texts[1]
    assert request(server, "/models")[1] == request(server, "/v1/models")[1]


def test_health_and_metrics(serve: Serve) -> None:
    server = serve()
    assert request(server, "/health")[:2] == (200, {"status": "ok"})
    server.client.completions.create(model="tiny", prompt="abc", max_tokens=5)
    _, text, headers = request(server, "/metrics")
    assert headers["content-type"].startswith("text/plain")
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert values['satchel_generated_tokens_total{model="tiny"}'] == "5"
    assert values['satchel_prompt_tokens_total{model="tiny"}'] == "3"
    assert values['satchel_token_gap_seconds_count{model="tiny"}'] == "4"
    assert values['satchel_answers_total{model="tiny",reason="max_new_tokens"}'] == "1"
    assert values['satchel_running{model="tiny"}'] == "0"
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            assert line.split()[3] in ("counter", "gauge", "histogram")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"model": "tiny", "messages": [', 400),
        (b"\xff\xfe{}", 400),
        (b"[1, 2]", 400),
        (b'{"prompt": "' + b"a" * 200_000 + b'"}', 413),
        (b"[" * 50_000, 400),
        (b'{"prompt": "\\ud800"}', 400),
        (b'{"prompt": "a", "temperature": NaN}', 400),
        (b'{"prompt": "a", "max_tokens": 1e99}', 400),
        (b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}", 400),
        (b'{"prompt": "a", "model": 7}', 400),
        (b'{"prompt": "a", "model": "gpt-5"}', 404),
    ],
)
def test_bodies_that_are_wrong(serve: Serve, body: bytes, status: int) -> None:
    server = serve(max_body=100_000)
    given, document, _ = request(server, "/v1/completions", body)
    assert given == status
    assert set(document["error"]) == {"message", "type", "param", "code"}


def test_paths_that_are_wrong(server: Running) -> None:
    status, document, _ = request(server, "/v1/nowhere")
    assert status == 404 and document["error"]["code"] == "unknown_url"
    status, _, headers = request(server, "/v1/models", {})
    assert status == 405 and "GET" in headers["allow"]


def test_bodies_as_people_send_them(serve: Serve) -> None:
    server = serve(hosts=("127.0.0.1",))
    body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
    assert request(server, "/v1/completions", b"\xef\xbb\xbf" + body)[0] == 200  # Windows' mark
    packed = {"Content-Encoding": "gzip"}
    status, document, _ = request(server, "/v1/completions", gzip.compress(body), packed)
    assert status == 415 and "gzip" in document["error"]["message"]
    for path in ("/ping", "/version"):  # as vLLM has them
        assert request(server, path)[0] == 200
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname or "", place.port or 0), 30) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")  # which needs no name
        assert b" 200 " in connection.recv(1000)


def test_limits_of_sampling_that_switch_it_off(server: Running) -> None:
    """vLLM's -1 for all tokens, and OpenAI's 0 for the likeliest one."""
    wild = {"prompt": "abc", "max_tokens": 12, "temperature": 2.0, "seed": 4}

    def text(**more: Any) -> str:
        answer = request(server, "/v1/completions", wild | more)[1]
        return str(answer["choices"][0]["text"])

    assert text(top_p=0) == text(temperature=0) != text(top_k=-1)
    assert text(top_k=-1) == text(top_k=0)


def test_keys(serve: Serve) -> None:
    server = serve(api_keys=("secret", "other"))
    assert request(server, "/health")[0] == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
        status, document, _ = request(server, "/v1/models", headers=headers)
        assert status == 401 and document["error"]["code"] == "invalid_api_key"
    assert request(server, "/metrics")[0] == 401
    for key in ("secret", "other"):
        assert request(server, "/v1/models", headers={"Authorization": f"Bearer {key}"})[0] == 200
    with pytest.raises(openai.AuthenticationError):
        server.client.models.list()


def test_pages_elsewhere_may_not_ask_unless_told(serve: Serve) -> None:
    closed = serve(hosts=("127.0.0.1", "localhost"))
    body = {"prompt": "a", "max_tokens": 1}
    assert request(closed, "/v1/completions", body)[0] == 200
    assert request(closed, "/v1/completions", body, {"Origin": "https://evil.example"})[0] == 403
    assert request(closed, "/v1/completions", body, {"Origin": closed.url})[0] == 200
    assert request(closed, "/v1/completions", body, {"Host": "evil.example"})[0] == 403
    opened = serve(origins=("https://good.example",))
    status, _, headers = request(
        opened, "/v1/completions", body, {"Origin": "https://good.example"}
    )
    assert status == 200 and headers["access-control-allow-origin"] == "https://good.example"
    assert request(opened, "/v1/completions", body, {"Origin": "https://evil.example"})[0] == 403


def hang_up_in_the_middle(server: Running, stream: bool) -> None:
    """Ask for a long answer, close the connection when it has begun, and let the server notice."""
    place = urlsplit(server.url)
    body = json.dumps({"prompt": "abc", "max_tokens": 900, "stream": stream}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {place.netloc}\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with server.paused():
        with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
            connection.sendall(head.encode() + body)
            wait_until(lambda: server.engine.running > 0)
        wait_until(lambda: server.engine._gone)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_sequence(serve: Serve, stream: bool) -> None:
    server = serve(max_sequences=1, queue=4)
    hang_up_in_the_middle(server, stream)
    wait_until(lambda: server.engine.running + server.engine.waiting == 0, 5)
    metrics = request(server, "/metrics")[1]
    assert 'satchel_answers_total{model="tiny",reason="cancelled"} 1' in metrics


def test_a_full_queue_says_when_to_come_back(serve: Serve, program: Path) -> None:
    server = serve(max_sequences=1, queue=1)
    done: list[str] = []

    def ask() -> None:
        made = server.client.completions.create(model="tiny", prompt="abc", max_tokens=900)
        done.append(made.choices[0].text)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    with server.paused():
        for thread in threads:
            thread.start()
        wait_until(lambda: server.engine.running + server.engine.waiting == 2)
        status, document, headers = request(server, "/v1/completions", {"prompt": "x"})
    assert status == 429 and document["error"]["type"] == "rate_limit_error"
    assert 1 <= int(headers["retry-after"]) <= 60
    for thread in threads:
        thread.join()
    wanted = LLM(program).generate("abc", raw=True, max_new_tokens=900).finish().text
    assert done == [wanted, wanted]


def test_clients_take_turns(serve: Serve) -> None:
    """One with many questions does not hold up another with one."""
    server = serve(max_sequences=1, queue=50)
    order: list[str] = []

    def ask(key: str) -> None:
        body = {"prompt": "abc", "max_tokens": 60}
        assert request(server, "/v1/completions", body, {"Authorization": key})[0] == 200
        order.append(key)

    busy = [threading.Thread(target=ask, args=("many",)) for _ in range(8)]
    other = threading.Thread(target=ask, args=("one",))
    with server.paused():
        for thread in busy:
            thread.start()
        wait_until(lambda: server.engine.waiting == 7)
        other.start()
        wait_until(lambda: server.engine.waiting == 8)
    for thread in [*busy, other]:
        thread.join()
    assert "one" in order[:-2], order


def test_who_waits_for_a_prompt_is_overtaken_but_not_for_ever() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(40):
        queue.put("one", number)
    taken = [queue.take(lambda number: number > 0) for _ in range(20)]
    assert taken == [*range(1, 17), None, None, None, None]
    assert queue.take() == 0
    queue.remove(17)
    assert queue.take() == 18 and len(queue) == 21


def test_an_answer_that_takes_too_long(serve: Serve) -> None:
    server = serve(time_limit=0.05)
    status, document, _ = request(
        server, "/v1/completions", {"prompt": "abc", "max_tokens": 1000, "ignore_eos": True}
    )
    assert status == 408 and document["error"]["code"] == "timeout"
    wait_until(lambda: server.engine.running == 0)


def test_memory_for_few_conversations_serves_many(program: Path) -> None:
    page = LLM(program).session.instance.cache_usage.page_bytes
    llm = LLM(program, cache_memory=6 * page)
    with serving(App({"tiny": llm}, Settings(max_sequences=6))) as server:
        texts: dict[int, str] = {}

        def ask(number: int) -> None:
            body = {"prompt": f"{number}" * 70, "max_tokens": 150}
            texts[number] = request(server, "/v1/completions", body)[1]["choices"][0]["text"]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alone = LLM(program)
        for number, text in texts.items():
            given = alone.generate(f"{number}" * 70, raw=True, max_new_tokens=150).finish()
            assert text == given.text
        status, _, headers = request(server, "/v1/completions", {"prompt": "x" * 600})
        assert status == 503 and headers["retry-after"]


def test_a_stopping_server_finishes_what_it_has_begun(serve: Serve) -> None:
    server = serve()
    made: list[int] = []

    def ask() -> None:
        body = {"prompt": "abc", "max_tokens": 500}
        made.append(request(server, "/v1/completions", body)[1]["usage"]["completion_tokens"])

    thread = threading.Thread(target=ask)
    with server.paused():
        thread.start()
        wait_until(lambda: server.engine.running == 1)
    assert server.app.drain(30)
    thread.join()
    assert made == [500]
    assert request(server, "/v1/completions", {"prompt": "x"})[0] == 503


def test_reasoning_however_it_is_cut() -> None:
    text = "<think>\nLet me see: 2 < 3.\n</think>\n\nThe answer is 4."
    for size in range(1, 12):
        splitter = ReasoningSplitter()
        parts = [splitter.push(text[at : at + size]) for at in range(0, len(text), size)]
        parts.append(splitter.finish())
        assert "".join(r for r, _ in parts).strip() == "Let me see: 2 < 3."
        assert "".join(a for _, a in parts) == "The answer is 4."
    opened = ReasoningSplitter(begun=True)
    assert opened.push("hm</think>yes") == ("hm", "yes")
    plain = ReasoningSplitter()
    assert plain.push(" <b>") == ("", " <b>")


def test_reasoning_of_a_model_comes_apart(tmp_path: Path) -> None:
    """Its template opens the reasoning; whether it ends is up to the weights, which are random."""
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1] }}<|end|>"
        "{% endfor %}<|assistant|>{% if enable_thinking is not defined or enable_thinking %}"
        "<think>{% endif %}"
    )
    checkpoint = write_tiny_llm(tmp_path / "m", template)
    program = satchel.export(checkpoint, tmp_path / "m.satchel", context=256)
    messages = [{"role": "user", "content": "hm"}]
    with serving(App(program)) as server:
        body = {"messages": messages, "max_tokens": 20}
        _, made, _ = request(server, "/v1/chat/completions", body)
        llm = LLM(program)
        wanted = llm.generate(messages, sampling=llm.chat_sampling, max_new_tokens=20).finish()
        message = made["choices"][0]["message"]
        assert message["reasoning_content"].strip() == wanted.text.strip()
        assert message["content"] == ""
        assert made["usage"]["completion_tokens_details"] == {"reasoning_tokens": 20}
        body["reasoning_effort"] = "none"
        _, made, _ = request(server, "/v1/chat/completions", body)
        message = made["choices"][0]["message"]
        assert message["content"] and "reasoning_content" not in message


def test_any_model_is_the_first_one_if_asked_for(serve: Callable[..., Running]) -> None:
    body = {"model": "gpt-4o", "prompt": "hi", "max_tokens": 3}
    assert request(serve(), "/v1/completions", body)[0] == 404
    status, made, _ = request(serve(any_model=True), "/v1/completions", body)
    assert status == 200 and made["model"] == "gpt-4o"
