"""HellaSwag from a plain text file: which of four endings does the model find likeliest?

The file has six lines for each item: the context, the number of the right ending (0 to 3), and
the four endings. It may be compressed with bzip2.
"""

from __future__ import annotations

import bz2
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satchel.errors import EvaluationError
from satchel.eval.likelihood import score_continuation
from satchel.eval.record import Entry, Record
from satchel.eval.texts import encode_pair
from satchel.files import lines_of
from satchel.llm.session import Session
from satchel.llm.tokenizer import Tokenizer

ENDINGS = 4
_LINES = ENDINGS + 2


@dataclass(frozen=True)
class Item:
    context: str
    endings: tuple[str, ...]
    right: int


def read_hellaswag(path: Path, limit: int | None = None) -> list[Item]:
    """The first items of a file."""
    try:
        data = path.read_bytes()
        text = (bz2.decompress(data) if data[:3] == b"BZh" else data).decode("utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise EvaluationError(f"{path} cannot be read: {reason}", "Check the path.") from None
    except (ValueError, EOFError) as error:
        raise EvaluationError(f"{path} is not UTF-8 text: {error}", "Fetch it again.") from None
    lines = lines_of(text)
    if not lines or len(lines) % _LINES:
        raise EvaluationError(
            f"{path} has {len(lines)} lines, and HellaSwag has {_LINES} for each item",
            "They are the context, the number of the right ending, and four endings.",
        )
    items = []
    for start in range(0, len(lines), _LINES)[:limit]:
        context, number, *endings = (line.strip() for line in lines[start : start + _LINES])
        if number not in ("0", "1", "2", "3") or not context or not all(endings):
            raise EvaluationError(
                f"{path} has no item at line {start + 1}",
                "An item is a context, a number from 0 to 3, and four endings.",
            )
        items.append(Item(context, tuple(endings), int(number)))
    return items


def digest_of_items(items: Sequence[Item]) -> str:
    return hashlib.sha256(repr(list(items)).encode()).hexdigest()


def score_item(session: Session, tokenizer: Tokenizer, item: Item) -> Entry:
    """Whether the right ending is the likeliest, as a whole and per character."""
    sums = []
    for ending in item.endings:
        context, continuation = encode_pair(tokenizer, item.context, f" {ending}")
        sums.append(score_continuation(session, context, continuation)[0])
    mean = [total / len(ending) for total, ending in zip(sums, item.endings, strict=True)]
    return [int(scores.index(max(scores)) == item.right) for scores in (sums, mean)]


def measure_hellaswag(
    session: Session,
    tokenizer: Tokenizer,
    items: Sequence[Item],
    record: Record,
    told: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[str, Any]:
    """``acc`` and ``acc_norm`` as lm-eval defines them, on the file's own texts."""
    entries = record.complete(
        items,
        lambda item: score_item(session, tokenizer, item),
        lambda count: told(count, len(items)),
    )
    result: dict[str, Any] = {}
    for place, name in enumerate(("acc", "acc_norm")):
        share = sum(entry[place] for entry in entries) / len(items)
        result[name] = share
        result[f"{name}_stderr"] = math.sqrt(share * (1 - share) / max(len(items) - 1, 1))
    return result | {"items": len(items), "seconds": record.seconds}
