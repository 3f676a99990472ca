"""Images in requests: OpenAI's and Ollama's own clients, and what is refused."""

from __future__ import annotations

import base64
import http.server
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from ollama import Client, ResponseError

import satchel
from satchel import LLM
from satchel.llm.batch import Batch
from satchel.serve import App, Settings
from serve.conftest import Running, serving
from support.tiny_llava import ROWS, tiny_llava
from vision_language.test_llava import photo

# Goes over the parts of a message, as LLaVA's and SmolVLM's own templates do.
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LIMIT = {"max_tokens": 10, "temperature": 0}


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("looking")
    _, checkpoint = tiny_llava(folder)
    settings = json.loads((checkpoint / "tokenizer_config.json").read_text())
    settings["chat_template"] = TEMPLATE
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))
    return satchel.export(checkpoint, folder / "eyes.satchel", context=512)


@pytest.fixture(scope="module")
def eyes(looking: Path) -> Iterator[Running]:
    with serving(App(looking)) as running:
        yield running


def png(seed: int = 0, size: tuple[int, int] = (40, 30)) -> bytes:
    data = io.BytesIO()
    photo(*size, seed).save(data, "PNG")
    return data.getvalue()


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def shows(*parts: str | bytes) -> Any:
    """A message of the user with texts and images."""
    content: list[Any] = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": data_url(part), "detail": "auto"}}
        for part in parts
    ]
    return {"role": "user", "content": content}


def wanted(program: Path, text: str, images: list[bytes], count: int = 10) -> Any:
    """The answer to a prompt that is written out."""
    llm = LLM(program, threads=1)
    options: Any = {"sampling": llm.chat_sampling, "max_new_tokens": count, "temperature": 0}
    return llm.generate(text, raw=True, images=images, **options).finish()


def asked(text: str) -> str:
    return f"<|user|>{text}<|end|><|assistant|>"


def test_an_image_and_several(eyes: Running, looking: Path) -> None:
    one = eyes.client.chat.completions.create(
        model="eyes", messages=[shows(png(1), "What is it?")], **LIMIT
    )
    alone = wanted(looking, asked("<image>What is it?"), [png(1)])
    assert one.choices[0].message.content == alone.text
    assert one.usage and one.usage.prompt_tokens == alone.stats.prompt_tokens > ROWS
    talk = [
        shows("First ", png(1), " then ", png(2)),
        {"role": "assistant", "content": "Yes."},
        shows("And", png(3)),
    ]
    stream = eyes.client.chat.completions.create(model="eyes", messages=talk, stream=True, **LIMIT)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    written = "<|user|>First <image> then <image><|end|><|assistant|>Yes.<|end|>" + asked(
        "And<image>"
    )
    assert text == wanted(looking, written, [png(1), png(2), png(3)]).text


def test_an_image_is_looked_at_once(looking: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM(looking, threads=1)
    seen = []
    see = llm.pictures._method.run
    monkeypatch.setattr(
        llm.pictures, "_method", type("M", (), {"run": lambda _, p: seen.append(1) or see(p)})()
    )
    long = "Look at this carefully. " * 3
    with serving(App({"eyes": llm})) as running:

        def ask(*parts: str | bytes) -> Any:
            made = running.client.chat.completions.create(
                model="eyes", messages=[shows(*parts)], **LIMIT
            )
            assert made.usage and made.usage.prompt_tokens_details
            return made.choices[0].message.content, made.usage.prompt_tokens_details.cached_tokens

        first, cached = ask(long, png(1), "What is it?")
        assert cached == 0 and len(seen) == 1
        llm.pictures._seen.clear()  # so that only the cache of keys and values can know it
        again, cached = ask(long, png(1), "What is it?")
        assert again == first and cached > len(long) + ROWS and len(seen) == 1
        other, cached = ask(long, png(2), "What is it?")
        assert cached < len(long) + ROWS and len(seen) == 2
        assert other == wanted(looking, asked(f"{long}<image>What is it?"), [png(2)]).text


def test_responses_and_ollama(eyes: Running, looking: Path) -> None:
    alone = wanted(looking, asked("<image>What is it?"), [png(1)]).text
    content = [
        {"type": "input_image", "image_url": data_url(png(1)), "detail": "auto"},
        {"type": "input_text", "text": "What is it?"},
    ]
    given: Any = [{"role": "user", "content": content}]
    made = eyes.client.responses.create(
        model="eyes", input=given, max_output_tokens=10, temperature=0
    )
    assert made.output_text == alone
    again = eyes.client.responses.create(
        model="eyes", input="And?", previous_response_id=made.id, max_output_tokens=4, temperature=0
    )
    assert again.usage and again.usage.input_tokens_details.cached_tokens > ROWS
    client, options = Client(eyes.url), {"temperature": 0, "num_predict": 10}
    message: Any = {"role": "user", "content": "What is it?", "images": [png(1)]}
    assert client.chat("eyes", [message], options=options).message.content == alone
    told = client.generate("eyes", "What is it?", images=[png(1)], options=options)
    assert told.response == alone
    assert "vision" in (client.show("eyes").capabilities or [])
    listed = eyes.client.models.retrieve("eyes").to_dict()
    assert listed["meta"]["images"] is True  # type: ignore[index]


def test_many_clients_show_images(eyes: Running, looking: Path) -> None:
    """Prompts with images between the steps of others, each with the bits that it has alone."""
    texts = [f"{'word ' * (7 * n)}what?" for n in range(6)]
    alone = [wanted(looking, asked(f"<image>{t}"), [png(n)]).text for n, t in enumerate(texts)]
    found: dict[int, str | None] = {}

    def ask(number: int) -> None:
        made = eyes.client.chat.completions.create(
            model="eyes", messages=[shows(png(number), texts[number])], **LIMIT
        )
        found[number] = made.choices[0].message.content

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(len(texts))] == alone


def test_images_are_read_again_when_memory_was_given_up(looking: Path) -> None:
    page = LLM(looking, threads=1).session.instance.cache_usage.page_bytes
    prompts = [f"<image>{letter * 60}" for letter in "abcd"]
    alone = [wanted(looking, p, [png(n)], 100).tokens for n, p in enumerate(prompts)]
    llm = LLM(looking, threads=1, cache_memory=7 * page)
    options: Any = {"sampling": llm.chat_sampling, "max_new_tokens": 100, "temperature": 0}
    options["raw"] = True
    made = Batch(llm.generate(p, images=[png(n)], **options) for n, p in enumerate(prompts))
    assert [each.tokens for each in made.finish()] == alone


def test_tokens_are_counted_with_images(eyes: Running) -> None:
    import urllib.request

    body = json.dumps({"messages": [shows(png(1), "ab")]}).encode()
    request = urllib.request.Request(f"{eyes.url}/tokenize", body, {"Content-Type": "a/json"})
    told = json.loads(urllib.request.urlopen(request).read())
    mark = eyes.engine.llm.pictures.token
    assert told["tokens"].count(mark) == ROWS and min(told["tokens"]) >= 0


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:9/a.png", "must be a data URL"),
        ("https://example.org/a.png", "must be a data URL"),
        ("file:///etc/passwd", "must be a data URL"),
        ("/etc/passwd", "must be a data URL"),
        ("data:image/png;base64,???", "is not a data URL in base64"),
        ("data:image/png,abc", "is not a data URL in base64"),
        (data_url(b""), "is not an image that can be read"),
        (data_url(b"no image"), "is not an image that can be read"),
        (data_url(png()[:200]), "is not an image that can be read"),
    ],
)
def test_what_is_no_image_is_told(eyes: Running, url: str, reason: str) -> None:
    part: Any = {"type": "image_url", "image_url": {"url": url}}
    with pytest.raises(openai.BadRequestError, match=reason) as error:
        eyes.client.chat.completions.create(
            model="eyes", messages=[{"role": "user", "content": [part]}]
        )
    assert error.value.param == "messages[0].content[0].image_url"


def test_limits(eyes: Running, server: Running) -> None:
    ask = eyes.client.chat.completions.create
    with pytest.raises(openai.BadRequestError, match="context") as error:
        ask(model="eyes", messages=[shows(*[png()] * 40)])
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="2 places for 1 image"):
        ask(model="eyes", messages=[shows(png(), "What does <image> mean?")])
    with pytest.raises(openai.BadRequestError, match="users do"):
        ask(model="eyes", messages=[{**shows(png()), "role": "system"}])
    with pytest.raises(openai.BadRequestError, match="text only"):
        server.client.chat.completions.create(model="tiny", messages=[shows(png(), "Hi")])
    with pytest.raises(ResponseError, match="raw"):
        Client(eyes.url).generate("eyes", "x", images=[png()], raw=True)


def test_files_and_addresses_where_they_are_asked_for(looking: Path, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    (folder / "a photo.png").write_bytes(png(1))
    (tmp_path / "secret.png").write_bytes(png(2))
    (folder / "link.png").symlink_to(tmp_path / "secret.png")

    class Elsewhere(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            moved = {"/moved": "/a", "/file": f"file://{tmp_path}/secret.png"}.get(self.path)
            self.send_response(302 if moved else 200)
            if moved:
                self.send_header("Location", moved)
            self.end_headers()
            if not moved:
                self.wfile.write(png(1) if self.path == "/a" else bytes(60_000))

        def log_message(self, *_: Any) -> None:
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    place = f"http://127.0.0.1:{web.server_address[1]}"
    settings = Settings(image_files=str(folder), fetch_images=True, max_body=50_000)
    alone = wanted(looking, asked("<image>What is it?"), [png(1)]).text
    with serving(App(looking, settings)) as running:

        def ask(url: str) -> str | None:
            part: Any = {"type": "image_url", "image_url": {"url": url}}
            text: Any = {"type": "text", "text": "What is it?"}
            made = running.client.chat.completions.create(
                model="eyes", messages=[{"role": "user", "content": [part, text]}], **LIMIT
            )
            return made.choices[0].message.content

        for good in (
            "file:a%20photo.png",
            f"file://{folder}/a%20photo.png",
            f"{place}/a",
            f"{place}/moved",
        ):
            assert ask(good) == alone
        for bad in ("file:../secret.png", "file:link.png", "file:none.png", f"file://{tmp_path}"):
            with pytest.raises(openai.BadRequestError, match="no file of the folder"):
                ask(bad)
        for bad in (f"{place}/file", f"{place}/large", "http://127.0.0.1:9/a"):
            with pytest.raises(openai.BadRequestError, match="cannot be fetched"):
                ask(bad)
    web.shutdown()
