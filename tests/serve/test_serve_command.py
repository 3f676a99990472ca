"""satchel serve as a process: it starts, tells where, answers, drains and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from satchel.cli.main import main
from satchel.cli.serve import size


@contextmanager
def process(*arguments: Any, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server on a free port unless one is given, and its address."""
    call = [sys.executable, "-m", "satchel", "serve", "--port", "0", "--json", *map(str, arguments)]
    with subprocess.Popen(
        call,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        assert line, running.stderr and running.stderr.read()
        try:
            yield running, json.loads(line)["url"]
        finally:
            running.kill()


def test_it_serves_and_sigterm_loses_no_answer(program: Path) -> None:
    with process(f"first={program}", f"second={program}", "--threads", 1) as (running, url):
        client = OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)
        assert [model.id for model in client.models.list()] == ["first", "second"]
        made: list[Any] = []
        begun = threading.Barrier(5, timeout=60)  # one that fails must not hold up the others

        def ask(number: int) -> None:
            stream = client.completions.create(
                model=("first", "second")[number % 2],
                prompt="abc",
                max_tokens=700,
                stream=True,
                stream_options={"include_usage": True},
            )
            pieces = iter(stream)
            next(pieces)
            begun.wait()
            *_, last = pieces
            made.append(last.usage and last.usage.completion_tokens)

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        running.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert made == [700] * 4
        assert running.wait(20) == 0
        assert running.stderr is not None
        said = running.stderr.read()
        assert "Serving first, second at http://127.0.0.1:" in said and "Stopped." in said
        assert "abc" not in said and "Traceback" not in said


def test_a_key_from_the_environment_and_tls(program: Path, tmp_path: Path) -> None:
    import ssl
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    certificate, key = write_certificate(tmp_path)
    options = ("--tls-cert", certificate, "--tls-key", key, "--threads", 1)
    with process(program, *options, SATCHEL_API_KEY="secret") as (_, url):
        assert url.startswith("https://")
        trust = ssl.create_default_context(cafile=str(certificate))
        ask = Request(f"{url}/v1/models", headers={"Authorization": "Bearer secret"})
        with urlopen(ask, context=trust) as response:
            assert json.load(response)["data"][0]["id"] == "tiny"
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{url}/v1/models", context=trust)


def test_another_chat_template(program: Path, tmp_path: Path) -> None:
    from urllib.request import Request, urlopen

    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}")
    with process(program, "--chat-template", template, "--threads", 1) as (_, url):
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
        with urlopen(Request(f"{url}/apply-template", body)) as response:
            assert json.load(response) == {"prompt": "[user] hi"}
    assert main(["serve", str(program), "--chat-template", str(tmp_path / "none")]) == 1


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, signed by itself."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tiny")])
    today = datetime.datetime.now(datetime.timezone.utc)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(here, critical=False)
        .sign(key, hashes.SHA256())
    )
    places = folder / "cert.pem", folder / "key.pem"
    places[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    places[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return places


def test_it_warns_when_anyone_could_use_it(program: Path) -> None:
    with process(program, "--host", "0.0.0.0") as (running, _):
        running.terminate()
        assert running.stderr is not None
        assert "Anyone who reaches 0.0.0.0 can use this server" in running.stderr.read()


def test_what_cannot_be_served(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(program), "--port", str(port)]) == 1
        assert "--port 0" in capsys.readouterr().err
    assert main(["serve", str(program), str(program), "--port", "0"]) == 1
    assert "NAME=MODEL" in capsys.readouterr().err
    assert main(["serve", str(program), "--tls-cert", "x", "--port", "0"]) == 1
    assert "--tls-key" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["serve", str(program), "--cache-memory", "much"])


def test_sizes() -> None:
    assert [size(text) for text in ("10", "2k", "3MB", "1GiB")] == [10, 2048, 3 << 20, 1 << 30]
