"""Prompts with images in them: numbers below zero in place of a mark, one for each row."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.errors import ConfigError, ContextFullError, InputError
from satchel.program.names import SEE_METHOD
from satchel.vision.images import open_image
from satchel.vision_language.preprocess import Frames
from satchel.vision_language.shown import Rows, Shown, View
from satchel.vision_language.towers import read_preprocessing

if TYPE_CHECKING:
    from satchel.llm.llm import LLM

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
        self._llm, self.token, self._rows = llm, int(about["token"]), int(about["rows"])
        self.preprocessing = read_preprocessing(about)
        self._method = llm.sessions.first.instance.method(SEE_METHOD)
        self._seen: OrderedDict[bytes, Rows] = OrderedDict()
        self._one_at_a_time = threading.Lock()  # large images take memory while they are prepared

    @property
    def mark(self) -> str:
        """What stands for an image in a text."""
        token = self._llm.tokenizer.name_of(self.token)
        if token is None:
            raise ConfigError(f"the tokenizer has no token {self.token} for images")
        return token

    def frames(self, picture: Picture, among: int = 1) -> Frames:
        """What the model sees of one ``among`` a prompt's images: the whole, and tiles of it in
        some families."""
        with self._one_at_a_time:
            return self.preprocessing.frames(read_picture(picture), among)

    def rows(self, pixels: Rows) -> Rows:
        """What stands for a frame in the prompt, [rows, hidden]."""
        digest = hashlib.sha256(pixels.tobytes()).digest()
        if digest not in self._seen:
            (self._seen[digest],) = self._method.run(pixels)
        self._seen.move_to_end(digest)
        while len(self._seen) > _KEPT:
            self._seen.popitem(last=False)
        return self._seen[digest]

    @property
    def in_template(self) -> bool:
        """Whether the chat template writes the marks of images itself."""
        template = self._llm.tokenizer.spec.chat_template or ""
        return "'image'" in template or '"image"' in template

    def message(self, text: str, count: int) -> str | list[dict[str, str]]:
        """A message's content with images before its text, as the model's template takes it."""
        if self.mark in text:
            return text
        return self.content([*[{"type": "image"}] * count, {"type": "text", "text": text}])

    def content(self, parts: Sequence[Mapping[str, str]]) -> str | list[dict[str, str]]:
        """A message of texts and images in their order, as the model's template takes it."""
        if self.in_template:
            return [dict(part) for part in parts]
        return "\n".join(part.get("text", self.mark) for part in parts)

    def plain(self, text: str, count: int) -> str:
        """A text with images before it, unless it says where they are."""
        return text if self.mark in text else f"{self.mark}\n" * count + text

    def tokens(
        self, text: str, pictures: Sequence[Picture], add_bos: bool | None
    ) -> tuple[list[int], Shown]:
        """The tokens of a prompt with its images, and what gives the rows of these."""
        count = len(pictures)
        seen = (self.frames(picture, count) for picture in pictures)
        return self.prompt(text, seen, count, add_bos)

    def prompt(
        self, text: str, pictures: Iterable[Frames], count: int, add_bos: bool | None
    ) -> tuple[list[int], Shown]:
        """The same of images that become frames one after the other."""
        parts = text.split(self.mark)
        if len(parts) != count + 1:
            raise ConfigError(
                f"the prompt has {len(parts) - 1} places for {count} images",
                f"Write {self.mark} once for each, or not at all.",
            )
        self._require_room(count * self._rows)
        views: list[View] = []
        marks: list[str] = []
        for frames in pictures:
            views += self.preprocessing.views(frames, self._rows)
            marks.append(self.preprocessing.text_of(frames, self.mark))
            self._require_room(sum(view.count for view in views))
        whole = "".join(part + mark for part, mark in zip(parts, [*marks, ""], strict=True))
        shown = Shown(views, self.rows)
        numbers = iter(shown.numbers)
        tokens: list[int] = []
        for token in self._llm.tokenizer.encode(whole, add_bos):
            tokens += next(numbers) if token == self.token else [token]
        return tokens, shown

    def _require_room(self, rows: int) -> None:
        context = self._llm.sessions.context
        if rows >= context:
            raise ContextFullError(
                f"the images take {rows} tokens, and the context has {context}",
                "Show fewer or smaller ones, or export with a larger --context.",
            )


def pictures_in(given: Sequence[Picture] | Picture) -> Sequence[Picture]:
    """One picture is a list of it."""
    if isinstance(given, (str, bytes, os.PathLike)) or hasattr(given, "convert"):
        return [given]
    listed: Sequence[Picture] = given or ()
    return listed


def read_picture(picture: Picture) -> Any:
    """A Pillow image of a path, of a file's bytes, or as it is."""
    if isinstance(picture, bytes):
        return open_image(picture, "the image")
    if isinstance(picture, (str, os.PathLike)):
        path = Path(picture).expanduser()
        try:
            there, why = path.is_file(), "is a folder" if path.is_dir() else "is not there"
        except OSError as error:  # such as a name that is too long
            there, why = False, f"cannot be opened ({error.strerror})"
        if not there:
            raise InputError(f"{str(path)[:80]} {why}", "Give the path of an image.")
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
