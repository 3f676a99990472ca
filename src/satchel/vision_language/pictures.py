"""Prompts with images in them: rows in place of a token, in the cache before the text goes on."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ConfigError, InputError
from satchel.llm.session import Session, number_of
from satchel.program.names import SEE_METHOD
from satchel.vision.images import open_image
from satchel.vision_language.preprocess import ClipPreprocessing

if TYPE_CHECKING:
    from satchel.llm.llm import LLM

Rows = NDArray[np.float32]
Picture = str | os.PathLike[str] | bytes | Any  # a path, a file's bytes, or a Pillow image
_KEPT = 16  # images whose rows are remembered


class Pictures:
    """What a program sees; the latest images are seen once, by their content."""

    def __init__(self, llm: LLM) -> None:
        about = llm.program.metadata.get("images")
        if not isinstance(about, dict) or not llm.program.has_method(SEE_METHOD):
            raise ConfigError(
                f"{llm.program.path} does not look at images", "Export a model that does: LLaVA."
            )
        self._llm, self.token = llm, int(about["token"])
        self.preprocessing = ClipPreprocessing.from_dict(about["preprocessing"])
        self._method = llm.sessions.first.instance.method(SEE_METHOD)
        self._seen: OrderedDict[bytes, Rows] = OrderedDict()

    @property
    def mark(self) -> str:
        """What stands for an image in a text."""
        token = self._llm.tokenizer.visible_token(self.token, special=True)
        if token is None:
            raise ConfigError(f"the tokenizer has no token {self.token} for images")
        return token

    def rows(self, picture: Picture) -> Rows:
        """What stands for an image in the prompt, [rows, hidden]."""
        pixels = self.preprocessing.prepare(read_picture(picture))
        digest = hashlib.sha256(pixels.tobytes()).digest()
        if digest not in self._seen:
            (self._seen[digest],) = self._method.run(pixels)
        self._seen.move_to_end(digest)
        while len(self._seen) > _KEPT:
            self._seen.popitem(last=False)
        return self._seen[digest]

    def message(self, text: str, count: int) -> str | list[dict[str, str]]:
        """A message's content with images before its text, as the model's template takes it."""
        if self.mark in text:
            return text
        template = self._llm.tokenizer.spec.chat_template or ""
        if "'image'" in template or '"image"' in template:
            return [*[{"type": "image"}] * count, {"type": "text", "text": text}]
        return f"{self.mark}\n" * count + text

    def look(self, tokens: Sequence[int], pictures: Sequence[Picture]) -> list[int]:
        """The prompt with a number for each row of its images, which are in a cache then."""
        places = [at for at, token in enumerate(tokens) if token == self.token]
        if len(places) != len(pictures):
            raise ConfigError(
                f"the prompt has {len(places)} places for {len(pictures)} images",
                f"Write {self.mark} once for each, or not at all.",
            )
        parts: list[list[int] | Rows] = []
        numbers: list[int] = []
        start = 0
        for at, picture in zip(places, pictures, strict=True):
            rows = self.rows(picture)
            parts += [list(tokens[start:at]), rows]
            numbers += [*tokens[start:at], *map(number_of, rows)]
            start = at + 1
        sessions = self._llm.sessions
        session = sessions.take(numbers, sessions.adapter)
        try:
            _feed(session, parts)
        finally:
            sessions.give_back(session)
        return [*numbers, *tokens[start:]]


def _feed(session: Session, parts: Sequence[list[int] | Rows]) -> None:
    """What the cache does not hold yet."""
    start = 0
    for part in parts:
        known = min(max(0, session.position - start), len(part))
        start += len(part)
        if known == len(part):
            continue
        if isinstance(part, list):
            session.feed(part[known:])
        else:
            session.feed_embeddings(part[known:])


def read_picture(picture: Picture) -> Any:
    """A Pillow image of a path, of a file's bytes, or as it is."""
    if isinstance(picture, bytes):
        return open_image(picture, "the image")
    if isinstance(picture, (str, os.PathLike)):
        path = Path(picture).expanduser()
        if not path.is_file():
            raise InputError(f"{path} is not there", "Give the path of an image.")
        return open_image(path, str(path))
    if not hasattr(picture, "convert"):
        raise InputError(f"{type(picture).__name__} is no image", "Give a path, or Pillow's image.")
    return picture


def with_pictures(
    pictures: Pictures, messages: Sequence[Mapping[str, Any]], count: int
) -> list[dict[str, Any]]:
    """Messages of which the last one of the user shows images."""
    made = [dict(message) for message in messages]
    for message in reversed(made):
        if message.get("role") == "user" and isinstance(message.get("content"), str):
            message["content"] = pictures.message(message["content"], count)
            break
    return made
