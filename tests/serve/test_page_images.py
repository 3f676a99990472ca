"""Images on the page, in a real browser: chosen, pasted, dropped, removed, kept and sent."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from serve.conftest import Running
from serve.test_page import CHROMIUM, answered, browser, limit, say, sync_api, visiting  # noqa: F401
from serve.test_serve_images import eyes, looking, png  # noqa: F401  (fixtures)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

# A file as the clipboard and a dragged file bring it.
GIVE = """([kind, data, name]) => {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const given = new DataTransfer();
  given.items.add(new File([bytes], name, { type: "image/png" }));
  const options = { bubbles: true, cancelable: true };
  const event = kind === "paste"
    ? new ClipboardEvent("paste", { ...options, clipboardData: given })
    : new DragEvent("drop", { ...options, dataTransfer: given });
  document.getElementById("text").dispatchEvent(event);
}"""


def test_images_are_sent_with_a_message(browser: Any, eyes: Running, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "cat.png").write_bytes(png(1, (3000, 1500)))
    with visiting(browser, eyes) as page:
        asked: list[Any] = []
        page.on("request", lambda r: asked.append(r.post_data) if "completions" in r.url else None)
        limit(page, 8)
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Add images").click()
        chooser.value.set_files(tmp_path / "cat.png")
        for kind, name, seed in (("paste", "bird.png", 2), ("drop", "dog.png", 3)):
            page.evaluate(GIVE, [kind, base64.b64encode(png(seed)).decode(), name])
        waiting = page.get_by_role("list", name="Images of this message")
        sync_api.expect(waiting.get_by_role("img")).to_have_count(3)
        page.get_by_role("button", name="Remove Image 2: bird.png").click()
        labels = [image.get_attribute("alt") for image in waiting.get_by_role("img").all()]
        assert labels == ["Image 1: cat.png", "Image 2: dog.png"]
        say(page, "What is it?")
        answered(page, 1)
        sync_api.expect(waiting).to_be_hidden()
        content = json.loads(asked[0])["messages"][0]["content"]
        assert [part["type"] for part in content] == ["image_url", "image_url", "text"]
        # A photo is made smaller before it is sent.
        sent = page.evaluate(
            "async (url) => { const i = new Image(); i.src = url; await i.decode();"
            " return [i.naturalWidth, i.naturalHeight]; }",
            content[0]["image_url"]["url"],
        )
        assert sent == [2048, 1024]
        # They stay in the conversation, also in the next request and after a reload.
        say(page, "And now?")
        answered(page, 2)
        assert json.loads(asked[1])["messages"][0]["content"] == content
        page.reload()
        shown = page.locator("article.user").first.get_by_role("img")
        sync_api.expect(shown).to_have_count(2)
        sync_api.expect(shown.first).to_have_js_property("naturalWidth", 2048)
        with page.expect_download() as download:
            page.get_by_role("button", name="Export all").click()
        kept = json.loads(download.value.path().read_text())
        first = kept["conversations"][0]["messages"][0]
        assert first["images"][0]["url"] == content[0]["image_url"]["url"]
        page.get_by_role("button", name="Edit message").first.click()
        page.get_by_role("textbox", name="Edit message").fill("What else?")
        page.get_by_role("button", name="Send again").click()
        answered(page, 1)
        again = json.loads(asked[-1])["messages"]
        assert len(again) == 1 and again[0]["content"][:2] == content[:2]
        page.get_by_role("button", name="Delete What is it?").click()
        page.wait_for_function(
            """async () => {
              const open = indexedDB.open("satchel");
              const db = await new Promise((found) => (open.onsuccess = () => found(open.result)));
              const asked = db.transaction("images").objectStore("images").count();
              return (await new Promise((f) => (asked.onsuccess = () => f(asked.result)))) === 0;
            }"""
        )


def test_what_is_no_image_is_told_and_text_models_take_none(
    browser: Any,  # noqa: F811
    eyes: Running,  # noqa: F811
    server: Running,
    tmp_path: Path,
) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    with visiting(browser, eyes) as page:
        page.locator("#image-file").set_input_files(tmp_path / "bad.png")
        sync_api.expect(page.get_by_role("alert")).to_contain_text("bad.png is not an image")
        assert page.get_by_role("list", name="Images of this message").is_hidden()
    with visiting(browser, server) as page:
        sync_api.expect(page.get_by_role("button", name="Add images")).to_be_hidden()
        page.evaluate(GIVE, ["paste", base64.b64encode(png()).decode(), "a.png"])
        assert page.get_by_role("list", name="Images of this message").is_hidden()
