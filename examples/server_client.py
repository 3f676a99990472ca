"""Ask a running server many questions at once, with nothing but Python's own library.

    satchel serve smollm2-135m &
    python examples/server_client.py questions.txt

Every line of the file is a question. The server computes all of them together, and each answer is
the one that the question would get alone. Clients of OpenAI's API work as well (docs/serving.md).
"""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def ask(url: str, question: str, max_tokens: int) -> str:
    """The answer to one question."""
    body = {
        "messages": [{"role": "user", "content": question}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as reply:
            return str(json.load(reply)["choices"][0]["message"]["content"])
    except urllib.error.HTTPError as error:  # the server says what is wrong
        raise SystemExit(json.load(error)["error"]["message"]) from None
    except urllib.error.URLError as error:
        raise SystemExit(f"no server at {url}: {error.reason}. Start one: satchel serve") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("questions", type=Path, help="a file with one question in every line")
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--max-tokens", type=int, default=64)
    arguments = parser.parse_args()
    lines = arguments.questions.read_text(encoding="utf-8").splitlines()
    questions = [line.strip() for line in lines if line.strip()]
    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = pool.map(lambda one: ask(arguments.url, one, arguments.max_tokens), questions)
        for question, answer in zip(questions, answers, strict=True):
            print(f"{question}\n    {' '.join(answer.split())}")


if __name__ == "__main__":
    main()
