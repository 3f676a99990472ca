"""Questions about images with their answers, from a JSON-lines file: how many are right."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from satchel.errors import InputError
from satchel.eval.texts import BYTE_ORDER_MARK, read_text
from satchel.files import lines_of
from satchel.llm.llm import LLM
from satchel.progress import Progress
from satchel.speech.numbers import digits

_MOST_TOKENS = 32
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def plain_answer(text: str) -> str:
    """An answer as answers are compared: without case, articles and marks, numbers in digits.

    >>> plain_answer("The two Cats."), plain_answer("2 cats")
    ('2 cats', '2 cats')
    """
    words = re.sub(r"[^\w\s.]|\.(?!\d)", " ", text.lower())
    words = re.sub(r"\bone\b", "1", digits(_ARTICLES.sub(" ", words)))
    return " ".join(words.split())


def read_questions(path: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """Lines with ``image`` (a path beside the file), ``question`` and ``answer`` or ``answers``."""
    found: list[dict[str, Any]] = []
    lines = lines_of(read_text(path).removeprefix(BYTE_ORDER_MARK))
    for number, line in enumerate(lines, start=1):
        if limit is not None and len(found) == limit:
            break
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            answers = row["answers"] if "answers" in row else [row["answer"]]
            answers = [_as_text(each) for each in answers]
            good = isinstance(row["image"], str) and bool(row["question"].strip())
            good = good and bool(answers) and all(isinstance(each, str) for each in answers)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            good = False
        if not good:
            raise InputError(
                f"{path}, line {number} is not a question",
                'Write {"image": "a.jpg", "question": "…", "answer": "…"}.',
            )
        image = path.parent / row["image"]
        if not image.is_file():  # known before the work, which may take hours
            raise InputError(f"{path}, line {number}: {image} is no file", "Images lie beside it.")
        found.append({"image": image, "question": row["question"], "answers": answers})
    if not found:
        raise InputError(f"{path} has no questions in it", "Write one on each line.")
    return found


def _as_text(answer: object) -> object:
    """Counts are often written as numbers."""
    number = isinstance(answer, (int, float)) and not isinstance(answer, bool)
    return str(answer) if number else answer


def is_right(answer: str, wanted: Sequence[str]) -> bool:
    """Whether an answer is one of those that count."""
    return plain_answer(answer) in {plain_answer(each) for each in wanted}


def evaluate_vqa(
    llm: LLM, path: Path, *, limit: int | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """The document of ``satchel eval --vqa --json``; answers are greedy and short."""
    questions = read_questions(path, limit)
    items, started = [], time.perf_counter()
    for number, one in enumerate(questions):
        if progress:
            progress("Looking, questions", number, len(questions))
        text = llm.generate(
            one["question"],
            raw=not llm.has_chat_template,
            images=[one["image"]],
            max_new_tokens=_MOST_TOKENS,
            temperature=0,
        )
        said = text.finish().text.strip()
        items.append(
            {
                "image": str(one["image"]),
                "question": one["question"],
                "answer": said,
                "wanted": one["answers"],
                "right": is_right(said, one["answers"]),
            }
        )
    if progress:
        progress("Looking, questions", len(questions), len(questions))
    right = sum(item["right"] for item in items)
    return {
        "program": str(llm.program.path),
        "checksum": llm.program.checksum,
        "recipe": llm.program.about.recipe_description,
        "file": str(path),
        "right": right,
        "questions": len(items),
        "exact_match": right / len(items),
        "items": items,
        "seconds": time.perf_counter() - started,
    }
