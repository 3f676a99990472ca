"""Chat templates: from a conversation to the text of a prompt, in jinja2's sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from satchel.errors import TemplateError

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

# No prompt is this long; a template that builds such a text or number is broken or hostile.
_LARGEST_PRODUCT = 1 << 20


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
        from jinja2 import TemplateSyntaxError

        self.source = source
        self.special_tokens = dict(special_tokens or {})
        try:
            self._template = _environment().from_string(source)
        except TemplateSyntaxError as error:
            raise _failed("cannot be parsed", error.lineno, error) from None
        except (RecursionError, MemoryError, OverflowError, ValueError) as error:
            raise _failed("cannot be parsed", None, error) from None

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
        from jinja2 import TemplateError as JinjaError

        values = {
            **self.special_tokens,
            "documents": None,
            **variables,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._template.render(_plain(values))
        except JinjaError as error:
            raise _failed("failed", _line_of(error), error) from None
        except Exception as error:  # templates run arbitrary expressions on arbitrary messages
            raise _failed("failed", _line_of(error), error) from None


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


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    """The environment that Hugging Face's templates are written for."""
    import jinja2
    from jinja2 import nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class GenerationTag(Extension):
        """``{% generation %}`` marks what the model wrote, for training; here it is just text."""

        tags = {"generation"}  # noqa: RUF012 - jinja2's own form

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def check_name(name: object) -> None:
        if str(name).startswith("_"):
            raise SecurityError(f"a namespace cannot have the attribute {name!r}")

    class PlainNamespace(Namespace):
        """A namespace whose attributes cannot be Python's own (``__class__`` and the like)."""

        def __init__(self, *args: Any, **values: Any) -> None:
            for name in dict(*args, **values):
                check_name(name)
            super().__init__(*args, **values)

        def __setitem__(self, name: str, value: Any) -> None:
            check_name(name)
            super().__setitem__(name, value)

    def check_size(size: int) -> None:
        if size > _LARGEST_PRODUCT:
            raise SecurityError(f"a product of size {size} is too large for a prompt")

    class Environment(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "*":
                for text, times in ((left, right), (right, left)):
                    if isinstance(times, int) and isinstance(text, str | list | tuple):
                        check_size(len(text) * times)
            elif isinstance(left, int) and isinstance(right, int):
                check_size(left.bit_length() * right)
            return super().call_binop(context, operator, left, right)

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    def strftime_now(pattern: str) -> str:
        return datetime.now().strftime(pattern)

    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationTag, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=raise_exception, strftime_now=strftime_now, namespace=PlainNamespace
    )
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes for HTML, which no model was trained on.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
