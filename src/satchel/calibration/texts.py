"""What a model is calibrated on: a text file, a prompt, the texts of a task, or our own."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from satchel.calibration.built_in import BUILT_IN, TEXT
from satchel.errors import ConfigError
from satchel.eval.texts import digest_of, leading_tokens, read_text, text_tokens
from satchel.eval.windows import split_windows
from satchel.llm.tokenizer import Tokenizer
from satchel.remarks import remark

DEFAULT_LIMIT = 16384
# Short windows: attention is cheap, and every window's first token, which all others attend to,
# is seen often.
WINDOW = 256
PROMPT, TASK = "prompt:", "task:"
_PARAGRAPHS = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class CalibrationText:
    """The windows of tokens that the model is run on. ``digest`` stands for all of them."""

    source: str
    windows: tuple[tuple[int, ...], ...]
    digest: str
    apart: bool = False  # each window is a sample, and not the next part of one text

    @property
    def tokens(self) -> int:
        return sum(map(len, self.windows))


def read_calibration(
    source: str,
    tokenizer: Tokenizer,
    limit: int | None = None,
    longest: int = WINDOW,
    samples: int | None = None,
    length: int | None = None,
) -> CalibrationText:
    """The text that ``source`` names: a file, ``prompt:TEXT``, ``task:NAME[=FILE]``, ``built-in``.

    Its first ``limit`` tokens count; or, of its first ``samples`` samples, the first ``length``
    tokens of each. A sample is an item of a task, or a paragraph of a text.
    """
    if source.startswith(PROMPT):
        texts, where = [source.removeprefix(PROMPT)], "the prompt"
    elif source.startswith(TASK):
        texts, where = _task_texts(source.removeprefix(TASK)), source
    elif source == BUILT_IN:
        texts, where = [TEXT], "the built-in text"
    else:
        texts, where = [read_text(Path(source))], source
    lead = leading_tokens(tokenizer)
    if samples is not None or length is not None:
        return _by_samples(
            source, texts, tokenizer, where, limit, samples, min(length or WINDOW, longest)
        )
    tokens = text_tokens(tokenizer, "\n\n".join(texts), limit or DEFAULT_LIMIT, where)
    cut = split_windows(tokens, lead, min(WINDOW, longest))
    windows = tuple(window.tokens for window in cut)
    return CalibrationText(source, windows, digest_of(tokens, [*lead, min(WINDOW, longest)]))


def _by_samples(
    source: str,
    texts: Sequence[str],
    tokenizer: Tokenizer,
    where: str,
    limit: int | None,
    samples: int | None,
    length: int,
) -> CalibrationText:
    """A window for each sample; ``limit`` is of all their tokens together."""
    if not source.startswith(TASK):
        texts = [part for text in texts for part in _PARAGRAPHS.split(text) if part.strip()]
    lead = leading_tokens(tokenizer)
    if length - len(lead) < 2:
        raise ConfigError(
            f"samples of {length} tokens are too short", f"Use {len(lead) + 2} or more."
        )
    most = limit or (sys.maxsize if samples else DEFAULT_LIMIT)
    windows: list[tuple[int, ...]] = []
    for text in texts:
        if len(windows) == samples or most < 2:
            break
        tokens = tokenizer.encode(text, add_bos=False, parse_special=False)
        tokens = tokens[: min(length - len(lead), most)]
        if len(tokens) >= 2:
            windows.append((*lead, *tokens))
            most -= len(tokens)
    if not windows:
        raise ConfigError(f"{where} has no sample of two tokens", "Give a longer text.")
    if samples and len(windows) < samples:
        remark(f"{where} has {len(windows)} samples to calibrate on, and not {samples}.")
    flat = [token for window in windows for token in (len(window), *window)]
    return CalibrationText(source, tuple(windows), digest_of(flat, [-1]), apart=True)


def _task_texts(choice: str) -> list[str]:
    from satchel.eval.tasks import TaskChoice, Tasks

    name, _, file = choice.partition("=")
    if not name:
        raise ConfigError("task: names no task", "Write for example task:hellaswag.")
    return Tasks(TaskChoice((name,), data={name: file} if file else {})).texts()
