"""The methods that a program may have, by the names that everyone calls them by."""

from __future__ import annotations

FORWARD = "forward"  # of a module
KV_METHOD = "kv_forward"  # one token
PREFILL_METHOD = "prefill_forward"  # up to AR-N tokens
LOOKAHEAD_METHOD = "lookahead_forward"  # a tree of guesses
ACCEPT_METHOD = "lookahead_accept"  # keeps the right ones
EMBED_METHOD = "embed_tokens"  # what the layers see of tokens
EMBEDDED_METHOD = "embedded_forward"  # up to AR-N tokens, images or sounds as the layers see them
SEE_METHOD = "see"  # an image as rows that embedded_forward takes
HIDDEN_METHOD = "hidden_forward"  # the last hidden states of up to AR-N tokens
CALIBRATION_METHOD = "calibrate_forward"  # for a compiler that measures ranges; never kept


def adapted(method: str, adapter: str | None) -> str:
    """A method with an adapter, or without.

    >>> adapted("kv_forward", "fr"), adapted("kv_forward", None)
    ('kv_forward@fr', 'kv_forward')
    """
    return f"{method}@{adapter}" if adapter else method


def split_name(name: str) -> tuple[str, str | None]:
    """
    >>> split_name("kv_forward@fr"), split_name("kv_forward")
    (('kv_forward', 'fr'), ('kv_forward', None))
    """
    method, at, adapter = name.partition("@")
    return method, adapter if at else None


def payload_name(target: str, file: str) -> str:
    """What a file that was compiled for a target is called among the weights.

    >>> payload_name("qnn:SM8750", "manifest.json")
    'qnn:SM8750/manifest.json'
    """
    return f"{target}/{file}"


PAGE = 64  # positions of a cache that lie together
SHORT_STEP = PAGE - 1  # tokens of a step in which each has the bits that it has alone
