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
from satchel.vision_language.preprocess import Frames
from satchel.vision_language.towers import read_preprocessing

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
        self.preprocessing = read_preprocessing(about)
        self._method = llm.sessions.first.instance.method(SEE_METHOD)
        self._seen: OrderedDict[bytes, Rows] = OrderedDict()

    @property
    def mark(self) -> str:
        """What stands for an image in a text."""
        token = self._llm.tokenizer.visible_token(self.token, special=True)
        if token is None:
            raise ConfigError(f"the tokenizer has no token {self.token} for images")
        return token

    def frames(self, picture: Picture) -> Frames:
        """What the model sees of an image: the whole, and tiles of it in some families."""
        return self.preprocessing.frames(read_picture(picture))

    def rows(self, pixels: Rows) -> Rows:
        """What stands for a frame in the prompt, [rows, hidden]."""
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
        return self.plain(text, count)

    def plain(self, text: str, count: int) -> str:
        """A text with images before it, unless it says where they are."""
        return text if self.mark in text else f"{self.mark}\n" * count + text

    def tokens(self, text: str, pictures: Sequence[Picture], add_bos: bool | None) -> list[int]:
        """The tokens of a prompt with its images, whose rows are in a cache then."""
        parts = text.split(self.mark)
        if len(parts) != len(pictures) + 1:
            raise ConfigError(
                f"the prompt has {len(parts) - 1} places for {len(pictures)} images",
                f"Write {self.mark} once for each, or not at all.",
            )
        seen = [self.frames(picture) for picture in pictures]
        marks = [self.preprocessing.text_of(frames, self.mark) for frames in seen]
        whole = "".join(part + mark for part, mark in zip(parts, [*marks, ""], strict=True))
        tokens = self._llm.tokenizer.encode(whole, add_bos)
        return self._read(tokens, [pixels for frames in seen for pixels in frames.pixels])

    def _read(self, tokens: Sequence[int], frames: Sequence[Rows]) -> list[int]:
        """The prompt with a number for each row of its frames, which are in a cache then."""
        places = [at for at, token in enumerate(tokens) if token == self.token]
        parts: list[list[int] | Rows] = []
        numbers: list[int] = []
        start = 0
        for at, pixels in zip(places, frames, strict=True):
            rows = self.rows(pixels)
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


def _marks(content: Any, mark: str) -> int:
    """How many images a message's content has a place for."""
    if isinstance(content, str):
        return content.count(mark)
    parts = content if isinstance(content, list) else []
    return sum(isinstance(part, dict) and part.get("type") == "image" for part in parts)


def with_pictures(
    pictures: Pictures, messages: Sequence[Mapping[str, Any]], count: int
) -> list[dict[str, Any]]:
    """Messages of which the last one of the user shows images, unless they say where these are."""
    made = [dict(message) for message in messages]
    if sum(_marks(message.get("content"), pictures.mark) for message in made) == count:
        return made
    for message in reversed(made):
        if message.get("role") == "user" and isinstance(message.get("content"), str):
            message["content"] = pictures.message(message["content"], count)
            break
    return made
