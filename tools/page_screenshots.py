"""The pictures of the server's page in docs/images: python tools/page_screenshots.py docs/images

Needs playwright and chromium; fetches and serves the default model.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

QUESTIONS = (
    "What is the capital of France?",
    "Write a short Python function that adds two numbers, and a list of three things to know "
    "about it.",
)
WIDE = {"width": 1100, "height": 760}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": WIDE},
    "dark": {"color_scheme": "dark", "viewport": WIDE},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 780}},
}


def main(folder: Path) -> None:
    call = [sys.executable, "-m", "satchel", "serve", "smollm2-135m", "--port", "0", "--json"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        with sync_playwright() as playwright:
            path = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            for name, look in LOOKS.items():
                page = browser.new_context(**look).new_page()
                page.goto(url)
                page.wait_for_selector("#model option", state="attached")
                for number, question in enumerate(QUESTIONS):
                    page.get_by_label("Message", exact=True).fill(question)
                    page.get_by_role("button", name="Send").click()
                    done = page.locator("article.assistant .stats")
                    expect(done).to_have_count(number + 1, timeout=120_000)
                page.screenshot(path=folder / f"page-{name}.png")
            browser.close()
        server.terminate()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
