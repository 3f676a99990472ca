"""What a tokenizer is once it has been read: the part that travels in a program file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from satchel.errors import TokenizerError

_IDS = ("bos_id", "pad_id", "unk_id")
_ID_LISTS = ("eos_ids", "prefix_ids", "suffix_ids")
_TEXTS = ("bos_token", "chat_template")


@dataclass(frozen=True)
class TokenizerSpec:
    """A tokenizer, its special tokens and its chat templates, whatever they were read from.

    >>> spec = TokenizerSpec(json="{}", eos_ids=(2,), add_bos=True, bos_id=1, bos_token="<s>")
    >>> TokenizerSpec.from_dict(spec.to_dict(), json="{}") == spec
    True
    """

    json: str  # of Hugging Face's `tokenizers`
    bos_token: str | None = None
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()  # any of them ends a text; the first is the tokenizer's own
    pad_id: int | None = None
    unk_id: int | None = None
    add_bos: bool = False  # what plain text gets; a chat template writes its own
    add_eos: bool = False
    prefix_ids: tuple[int, ...] = ()  # what plain text gets instead of BOS, in some families
    suffix_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    named_templates: dict[str, str] = field(default_factory=dict)  # "tool_use", "rag", …
    special_tokens: dict[str, str] = field(default_factory=dict)  # what a template may refer to

    def to_dict(self) -> dict[str, Any]:
        """All but the large ``json``, in types that JSON has."""
        parts = asdict(self)
        del parts["json"]
        for name in _ID_LISTS:
            parts[name] = list(parts[name])
        return parts

    @classmethod
    def from_dict(cls, parts: Mapping[str, Any], json: str) -> TokenizerSpec:
        """The reverse of :meth:`to_dict`; every field is checked, as files are not trusted."""
        known = {f.name for f in fields(cls)} - {"json"}
        for name in parts:
            if name not in known:
                raise _damaged(name, "is not a field")
        for name in _IDS:
            value = parts.get(name)
            if value is not None and not _is_id(value):
                raise _damaged(name, f"is {value!r}, not a token id")
        for name in _TEXTS:
            if not isinstance(parts.get(name, None), str | None):
                raise _damaged(name, "is not text")
        for name in ("add_bos", "add_eos"):
            if not isinstance(parts.get(name, False), bool):
                raise _damaged(name, "is neither true nor false")
        for name in ("named_templates", "special_tokens"):
            table = parts.get(name, {})
            if not isinstance(table, dict) or not all(
                isinstance(text, str) for pair in table.items() for text in pair
            ):
                raise _damaged(name, "is not a table of texts")
        lists = {name: parts.get(name, []) for name in _ID_LISTS}
        for name, ids in lists.items():
            if not isinstance(ids, list | tuple) or not all(_is_id(one) for one in ids):
                raise _damaged(name, "is not a list of token ids")
        return cls(json=json, **{**parts, **{name: tuple(ids) for name, ids in lists.items()}})


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _damaged(name: str, why: str) -> TokenizerError:
    return TokenizerError(
        f"The tokenizer's field {name!r} {why}", "Export the model again, the file is damaged"
    )
