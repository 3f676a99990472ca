"""The page in a real browser: chatting, stopping, editing, and text that tries to be more."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from serve.conftest import Running
from serve.test_server import request, wait_until

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
sync_api = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

HOSTILE = """# Title <img src=x onerror=alert(1)>

Some **bold**, *slanted* and `code <b>`; a [link](https://example.org/a)
and [bad](javascript:alert(1)).

- one
- two
  1. inner

| a | b |
|---|---|
| 1 | **2** |

> quoted

```python
print("<script>alert(1)</script>")
```
<script>alert(2)</script>
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, server: Running) -> Iterator[Any]:
    with visiting(browser, server) as made:
        yield made


@contextmanager
def visiting(browser: Any, server: Running) -> Iterator[Any]:
    """The page as a first visitor sees it; nothing may be asked of another host or go wrong."""
    context = browser.new_context()
    context.set_default_timeout(20_000)
    made = context.new_page()
    problems: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    made.on(
        "request",
        lambda r: (
            None if r.url.startswith((server.url, "blob:", "data:")) else problems.append(r.url)
        ),
    )
    made.goto(server.url)
    made.wait_for_selector("#model option", state="attached")
    yield made
    assert problems == []
    context.close()


def say(page: Any, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def limit(page: Any, tokens: int) -> None:
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Most tokens").fill(str(tokens))
    page.get_by_role("button", name="Save").click()
    # The dialog is gone a moment before its values count.
    wait_until(lambda: f'"{tokens}"' in page.evaluate("localStorage['satchel.settings'] ?? ''"))


def answered(page: Any, count: int) -> Any:
    """The answers, when so many are complete."""
    done = page.locator("article.assistant .stats")
    sync_api.expect(done).to_have_count(count)
    return page.locator("article.assistant")


def test_a_conversation_is_kept(page: Any) -> None:
    limit(page, 12)
    say(page, "Hello there")
    answered(page, 1)
    stats = page.locator("article.assistant .stats").inner_text()
    assert re.search(r"12 tokens · [\d.]+ tok/s · first after [\d.]+ s · \d+ of prompt", stats)
    say(page, "And now?")
    answered(page, 2)
    assert "of 1024 tokens" in page.locator("#context").inner_text()
    second = page.locator("article.assistant .stats").nth(1).inner_text()
    cached = re.search(r"(\d+) from the cache", second)
    assert cached and int(cached[1]) > 10
    page.reload()
    assert page.locator("article").count() == 4
    page.get_by_role("button", name="New conversation", exact=True).first.click()
    assert page.locator("article").count() == 0
    page.get_by_role("button", name="Hello there", exact=True).click()
    assert page.locator("article").count() == 4
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    kept = json.loads(download.value.path().read_text())
    assert kept["conversations"][0]["messages"][0]["content"] == "Hello there"
    page.get_by_role("button", name="Delete Hello there").click()
    assert page.locator("article").count() == 0


def test_stop_regenerate_and_edit(
    page: Any, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = server.engine._batch
    quick = batch.step
    with monkeypatch.context() as slowly:  # a tiny model is done before anyone can click
        slowly.setattr(batch, "step", lambda: (time.sleep(0.05), quick())[1])
        say(page, "Tell me everything")
        page.get_by_role("button", name="Stop").click()
        answered(page, 1)
        assert page.locator("article.assistant .stats").inner_text() == "stopped"
        wait_until(lambda: server.engine.running == 0, 5)
    limit(page, 8)
    page.get_by_role("button", name="Regenerate").click()
    answered(page, 1)
    assert "8 tokens" in page.locator("article.assistant .stats").inner_text()
    page.get_by_role("button", name="Edit message").click()
    page.get_by_role("textbox", name="Edit message").fill("Something else")
    page.get_by_role("button", name="Send again").click()
    answered(page, 1)
    assert page.locator("article.user .body").inner_text() == "Something else"


def test_an_answer_that_was_cut_goes_on(page: Any, server: Running) -> None:
    def kept() -> list[dict[str, str]]:
        messages = page.evaluate("JSON.parse(localStorage['satchel.conversations'])[0].messages")
        return [{"role": m["role"], "content": m["content"]} for m in messages]

    limit(page, 6)
    say(page, "Go on and on")
    answered(page, 1)
    assert re.fullmatch(r"\d\d:\d\d( [AP]M)?", page.locator("article time").nth(1).inner_text())
    begun = kept()
    fields = {"messages": begun, "max_tokens": 6, "continue_final_message": True}
    status, made, _ = request(server, "/v1/chat/completions", fields)
    assert status == 200, (made, begun)
    rest = made["choices"][0]["message"]["content"]
    page.get_by_role("button", name="Continue").click()
    wait_until(lambda: len(kept()[1]["content"]) > len(begun[1]["content"]))
    assert kept() == [begun[0], {"role": "assistant", "content": begun[1]["content"] + rest}]
    answered(page, 1)
    assert page.locator("article").count() == 2


def test_what_a_model_writes_stays_text(page: Any) -> None:
    page.evaluate(
        """async (text) => {
          const { markdown } = await import("./page/markdown.js");
          const box = document.createElement("div");
          box.id = "made";
          box.append(...markdown(text));
          document.body.append(box);
        }""",
        HOSTILE,
    )
    made = page.locator("#made")
    assert made.locator("script, img, iframe").count() == 0
    assert made.locator("h1").inner_text() == "Title <img src=x onerror=alert(1)>"
    assert made.locator("strong").first.inner_text() == "bold"
    assert [a.get_attribute("href") for a in made.locator("a").all()] == ["https://example.org/a"]
    assert made.locator("li li").inner_text() == "inner"
    assert made.locator("td strong").inner_text() == "2"
    assert made.locator("blockquote").inner_text() == "quoted"
    assert made.locator("pre").inner_text() == 'print("<script>alert(1)</script>")'
    made.get_by_role("button", name="Copy code").click()
    sync_api.expect(made.get_by_role("button", name="Copy code")).to_have_text("Copied")


def test_half_of_a_text_is_shown_too(page: Any) -> None:
    """Each beginning of a text can be drawn, as it is while it comes."""
    page.evaluate(
        """async (text) => {
          const { markdown } = await import("./page/markdown.js");
          for (let end = 0; end <= text.length; end++) markdown(text.slice(0, end));
        }""",
        HOSTILE,
    )


def test_a_key_is_asked_for(browser: Any, serve: Any) -> None:
    server = serve(api_keys=("secret",))
    page = browser.new_page()
    page.goto(server.url)
    page.get_by_role("heading", name="This server asks for an API key.").wait_for()
    page.get_by_role("textbox", name="API key").fill("secret")
    page.get_by_role("button", name="Save").click()
    page.wait_for_selector("#model option", state="attached")
    page.close()


def test_a_phone_shows_it_all(browser: Any, server: Running) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 780}, has_touch=True)
    page.goto(server.url)
    page.wait_for_selector("#model option", state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    sync_api.expect(page.get_by_role("button", name="Export all")).to_be_hidden()
    page.get_by_role("button", name="Show conversations").click()
    sync_api.expect(page.get_by_role("button", name="Export all")).to_be_visible()
    page.close()


def test_every_control_has_a_name(page: Any) -> None:
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea")]
          .filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length))
          .map((e) => e.outerHTML)"""
    )
    assert nameless == []


def test_headers_and_files(server: Running) -> None:
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port)
    for path, status in (("/", 200), ("/page/main.js", 200), ("/page/__init__.py", 404)):
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        assert response.status == status
        if status == 200:
            assert "default-src 'none'" in (response.getheader("Content-Security-Policy") or "")
