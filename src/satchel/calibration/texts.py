"""What a model is calibrated on: a text file, a prompt, or the texts of a task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from satchel.errors import ConfigError
from satchel.eval.texts import digest_of, leading_tokens, read_text, text_tokens
from satchel.eval.windows import split_windows
from satchel.llm.tokenizer import Tokenizer

DEFAULT_LIMIT = 16384
# Short windows: attention is cheap, and every window's first token, which all others attend to,
# is seen often.
WINDOW = 256
PROMPT, TASK = "prompt:", "task:"


@dataclass(frozen=True)
class CalibrationText:
    """The windows of tokens that the model is run on. ``digest`` stands for all of them."""

    source: str
    windows: tuple[tuple[int, ...], ...]
    digest: str

    @property
    def tokens(self) -> int:
        return sum(map(len, self.windows))


def read_calibration(
    source: str, tokenizer: Tokenizer, limit: int | None = None, longest: int = WINDOW
) -> CalibrationText:
    """The text that ``source`` names: a file, ``prompt:TEXT`` or ``task:NAME[=FILE]``.

    Its first ``limit`` tokens count.
    """
    if source.startswith(PROMPT):
        text, where = source.removeprefix(PROMPT), "the prompt"
    elif source.startswith(TASK):
        text, where = _task_text(source.removeprefix(TASK)), source
    else:
        text, where = read_text(Path(source)), source
    tokens = text_tokens(tokenizer, text, limit or DEFAULT_LIMIT, where)
    lead = leading_tokens(tokenizer)
    cut = split_windows(tokens, lead, min(WINDOW, longest))
    windows = tuple(window.tokens for window in cut)
    return CalibrationText(source, windows, digest_of(tokens, [*lead, min(WINDOW, longest)]))


def _task_text(choice: str) -> str:
    from satchel.eval.tasks import TaskChoice, Tasks

    name, _, file = choice.partition("=")
    if not name:
        raise ConfigError("task: names no task", "Write for example task:hellaswag.")
    return "\n\n".join(Tasks(TaskChoice((name,), data={name: file} if file else {})).texts())
