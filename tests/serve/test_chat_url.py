"""satchel chat --url: the same conversation with a model on a server."""

from __future__ import annotations

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from satchel.cli.main import main
from serve.conftest import Running
from serve.test_openai_client import alone

Capture = pytest.CaptureFixture[str]


def test_one_answer(server: Running, program: Path, capsys: Capture) -> None:
    call = ["chat", "--url", server.url, "--prompt", "Hi", "--max-new-tokens", "12"]
    wanted = alone(program, [{"role": "user", "content": "Hi"}], max_new_tokens=12).text
    assert main(call) == 0
    heard = capsys.readouterr()
    assert heard.out == wanted + "\n"
    assert "12 new tokens" in heard.err and "--max-new-tokens" in heard.err
    assert main([*call, "--json", "--system", "Be brief."]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["new_tokens"] == 12 and made["model"] == "tiny" and made["ttft_s"] > 0
    assert main(["chat", "tiny", *call[1:], "--regex", "[ab]{3}"]) == 0
    assert len(capsys.readouterr().out.strip()) == 3
    assert main([*call, "--schema", '{"type": "boolean"}']) == 0
    assert capsys.readouterr().out.strip() in ("true", "false")


def test_a_conversation(
    server: Running, program: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path))
    lines = ["Hello", "And?", "/stats", "/set temperature 0.5", "/set", "/undo", "/regen", "/exit"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
    assert main(["chat", "--url", f"{server.url}/v1/", "--max-new-tokens", "6"]) == 0
    heard = capsys.readouterr()
    first = alone(program, [{"role": "user", "content": "Hello"}], max_new_tokens=6).text
    assert heard.out.startswith(first)
    assert "tiny: 1024 tokens of context; as the server chooses" in heard.err
    assert "2 answers, 12 tokens" in heard.err and "from the cache" in heard.err
    assert "sampling: temperature 0.5, else as the server chooses" in heard.err


def test_what_cannot_be(server: Running, capsys: Capture) -> None:
    for call, said in (
        (["chat"], "--url"),
        (["chat", "--url", server.url, "gpt-5", "-p", "x"], "It has tiny."),
        (["chat", "--url", server.url, "-p", "x", "--adapter", "fr"], "NAME:ADAPTER"),
        (["chat", "--url", "127.0.0.1:9", "-p", "x"], "does not answer"),
    ):
        assert main(call) in (1, 2)
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["chat", "--url", server.url, "-p", "x", "--temperature", "-1"])
    assert caught.value.code == 2 and "temperature" in capsys.readouterr().err


def test_a_server_with_a_key(
    serve: object, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(api_keys=("secret",))  # type: ignore[operator]
    call = ["chat", "--url", server.url, "--prompt", "Hi", "--max-new-tokens", "2"]
    assert main(call) == 1
    assert "SATCHEL_API_KEY" in capsys.readouterr().err
    assert main([*call, "--api-key", "secret"]) == 0
    monkeypatch.setenv("SATCHEL_API_KEY", "secret")
    assert main(call) == 0


@pytest.mark.parametrize(
    "models", ["no json", "[]", '{"data": 5}', '{"data": [5]}', "[" * 100_000, '{"data": [{}]}']
)
def test_a_server_of_another_kind(models: str, capsys: Capture) -> None:
    class Stranger(BaseHTTPRequestHandler):
        def _answer(self, body: str) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def do_GET(self) -> None:
            self._answer(models)

        def do_POST(self) -> None:
            self._answer("data: 5\n\n")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert main(["chat", "--url", url, "-p", "x"]) == 1
        told = capsys.readouterr().err
        server.shutdown()
    assert url in told and "bug in Satchel" not in told, told
