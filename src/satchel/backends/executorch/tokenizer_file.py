"""The tokenizer beside a .pte file, in the words that ExecuTorch's own reader understands."""

from __future__ import annotations

import json
from typing import Any

_EACH_DIGIT = {"Regex": r"\p{N}"}
_SAMPLE = "What is 12 x 3?  Hello,\n\nworld: it's café, 東京 & Москва!"


def tokenizer_for_runners(text: str) -> str:
    """A tokenizer.json that means the same.

    ExecuTorch's reader takes a split for all that there is, and drops what lies between matches:
    digits that are split off are said in another way.

    >>> split = {"type": "Split", "pattern": {"Regex": "\\\\p{N}"}, "behavior": "Isolated"}
    >>> tokenizer_for_runners(json.dumps({"pre_tokenizer": split}))
    '{"pre_tokenizer": {"type": "Digits", "individual_digits": true}}'
    """
    document = json.loads(text)
    if document.get("pre_tokenizer"):
        document["pre_tokenizer"] = _reworded(document["pre_tokenizer"])
    return json.dumps(document, ensure_ascii=False)


def _reworded(step: dict[str, Any]) -> dict[str, Any]:
    if step.get("type") == "Sequence":
        return {**step, "pretokenizers": [_reworded(each) for each in step["pretokenizers"]]}
    if step.get("pattern") == _EACH_DIGIT and step.get("behavior") == "Isolated":
        return {"type": "Digits", "individual_digits": True}
    return step


def misread(path: str, text: str) -> str | None:
    """What ExecuTorch's reader makes wrong of a sample; None if nothing, or if it is not there."""
    try:
        from pytorch_tokenizers import pytorch_tokenizers_cpp as native
    except ImportError:
        return None
    from tokenizers import Tokenizer

    wanted = Tokenizer.from_str(text).encode(_SAMPLE, add_special_tokens=False).ids
    reader = native.HFTokenizer()
    try:
        reader.load(path)
        found = list(reader.encode(_SAMPLE, 0, 0))
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None if found == wanted else f"{found[:8]} for {wanted[:8]}"
