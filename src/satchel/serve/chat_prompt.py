"""From the messages of a request to the prompt that its model reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from satchel.errors import InputError
from satchel.serve.fields import Fields
from satchel.serve.images import ImageReader, SentImage
from satchel.serve.messages import content_length, read_messages
from satchel.serve.models import ServedModel
from satchel.serve.settings import Settings
from satchel.serve.tools import Tools, with_tools
from satchel.serve.wanted import check_length, check_prompt
from satchel.vision_language.pictures import Pictures
from satchel.vision_language.preprocess import Frames
from satchel.vision_language.shown import Shown


@dataclass(frozen=True)
class ChatPrompt:
    """Tokens, and what gives the rows of images where some stand for these."""

    tokens: list[int]
    shown: Shown | None = None

    def visible(self, model: ServedModel) -> list[int]:
        """With the image's token for each row of an image, as clients know it."""
        if self.shown is None:
            return self.tokens
        mark = model.llm.pictures.token
        return [mark if token < 0 else token for token in self.tokens]


def chat_text(
    model: ServedModel, fields: Fields, settings: Settings, tools: Tools
) -> tuple[str, list[SentImage]]:
    """The prompt as the model's template writes it, and the images that it has marks for."""
    images = ImageReader(settings) if model.llm.takes_images else None
    messages, given = with_tools(model, read_messages(fields, images), tools)
    check_length(sum(content_length(m) for m in messages), model, "messages")
    if images is not None:
        messages = [_with_marks(model.llm.pictures, message) for message in messages]
    variables = {**template_variables(fields), **given}
    if fields.switch("continue_final_message"):
        text = _continued(model, fields, messages, variables)
    else:
        text = model.llm.template.render(messages, **variables)
    return text, images.found if images else []


def _with_marks(pictures: Pictures, message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    return {**message, "content": pictures.content(content)} if _is_list(content) else message


def _is_list(content: object) -> bool:
    return isinstance(content, list)


def _continued(
    model: ServedModel, fields: Fields, messages: list[dict[str, Any]], variables: dict[str, Any]
) -> str:
    """The prompt up to the end of the last message, which the model goes on with (as in vLLM)."""
    last = messages[-1]["content"]
    last = last.strip() if isinstance(last, str) else ""
    if messages[-1]["role"] != "assistant" or not last:
        raise fields.wrong("continue_final_message", "needs a last message of the assistant")
    if fields.switch("add_generation_prompt"):
        raise fields.wrong("continue_final_message", "goes without add_generation_prompt")
    text = model.llm.template.render(messages, add_generation_prompt=False, **variables)
    return text[: text.rindex(last) + len(last)] if last in text else text


def chat_prompt(model: ServedModel, fields: Fields, settings: Settings, tools: Tools) -> ChatPrompt:
    """The tokens of a conversation, up to where the answer begins."""
    text, images = chat_text(model, fields, settings, tools)
    if not images:
        prompt = ChatPrompt(model.llm.tokenizer.encode(text, add_bos=False))  # a template writes it
    else:
        pictures = model.llm.pictures
        frames = _frames(pictures, images)
        prompt = ChatPrompt(*pictures.prompt(text, frames, len(images), add_bos=False))
    check_prompt(prompt.visible(model), model, settings, "messages")
    return prompt


def _frames(pictures: Pictures, images: Sequence[SentImage]) -> Iterator[Frames]:
    for image in images:
        try:
            frames = pictures.frames(image.data, len(images))
        except InputError as error:
            raise image.wrong(str(error)) from None
        yield frames


def template_variables(fields: Fields) -> dict[str, Any]:
    """What a request gives to the template besides its messages."""
    given = fields.part("chat_template_kwargs")
    variables = dict(given.document) if given else {}
    if fields.text("reasoning_effort") in ("none", "minimal"):
        variables.setdefault("enable_thinking", False)
    for name in ("messages", "tools", "add_generation_prompt"):
        variables.pop(name, None)
    return variables
