"""Chat templates: from a conversation to the text of a prompt, in a sandbox with bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from satchel.errors import TemplateError

_PROBE = "xPROBEx"
_LONGEST_SOURCE = 1 << 17  # the longest that we know have 20,000 letters


class ChatTemplate:
    """A compiled chat template with the special tokens that it may refer to.

    >>> template = ChatTemplate("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}",
    ...                         {"eos_token": "</s>"})
    >>> template.render([{"role": "user", "content": "Hi"}])
    'Hi</s>'
    """

    def __init__(self, source: str | None, special_tokens: Mapping[str, str] | None = None) -> None:
        if not source:
            raise TemplateError(
                "The model has no chat template",
                "It is not a chat model: give it plain text with `satchel run --raw`",
            )
        # Only here: most commands need no template, and jinja2 takes its time.
        from satchel.llm.template_budget import TemplateBudget, spending
        from satchel.llm.template_environment import environment

        self.source = source
        self.special_tokens = dict(special_tokens or {})
        try:
            if len(source) > _LONGEST_SOURCE:
                raise ValueError(f"{len(source)} letters are too long")
            with spending(TemplateBudget()):
                self._template = environment().from_string(source)
        except Exception as error:  # of jinja2, and of Python, which compiles what it makes
            raise _failed("cannot be parsed", getattr(error, "lineno", None), error) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt for a conversation.

        ``variables`` are passed on, for example ``enable_thinking=False``. Encode the result with
        ``add_bos=False``: templates write BOS themselves.
        """
        variables = self.with_thinking(variables)
        return self._render(messages, add_generation_prompt, tools, variables, self.takes_parts)

    def with_thinking(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """With what Granite's and Seed-OSS's templates have for what most call enable_thinking."""
        wanted = variables.get("enable_thinking")
        if not isinstance(wanted, bool) or "enable_thinking" in self.source:
            return dict(variables)
        values: dict[str, Any] = {"thinking": wanted}
        if not wanted:
            values["thinking_budget"] = 0
        return {name: v for name, v in values.items() if name in self.source} | dict(variables)

    @cached_property
    def takes_parts(self) -> bool:
        """Whether a message's content must be a list of parts, as for many vision-language
        models: such a template goes over the parts, and would drop a plain text without a word."""
        shown = []
        for parts in (False, True):
            try:
                message = {"role": "user", "content": _PROBE}
                shown.append(_PROBE in self._render([message], True, None, {}, parts))
            except TemplateError:
                shown.append(False)
        return shown == [False, True]

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
        parts: bool,
    ) -> str:
        from satchel.llm.template_budget import TemplateBudget, spending

        values = {
            **self.special_tokens,
            "documents": None,
            **variables,
            "messages": [_in_parts(m) for m in messages] if parts else messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            plain = _plain(values)
            with spending(TemplateBudget(plain)):
                return self._template.render(plain)
        except Exception as error:  # templates run arbitrary expressions on arbitrary messages
            raise _failed("failed", _line_of(error), error) from None


def _in_parts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message.get("content")
    if not isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": content}]}


def _plain(value: Any) -> Any:
    """Only JSON's types reach a template: it is foreign code, and objects have methods."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    raise TypeError(f"a message holds a {type(value).__name__}, which JSON does not have")


def _failed(what: str, line: int | None, cause: Exception) -> TemplateError:
    where = f" at line {line}" if line else ""
    reason = str(cause) or type(cause).__name__
    return TemplateError(
        f"The chat template {what}{where}: {reason}",
        "Check the messages against what the model expects, or give the whole prompt yourself "
        "with `satchel run --raw`",
    )


def _line_of(error: BaseException) -> int | None:
    """The template's line: jinja2 rewrites tracebacks so that the last template frame has it."""
    line, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == "<template>":
            line = step.tb_lineno
        step = step.tb_next
    return line
