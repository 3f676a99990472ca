"""Attention to windows and to some tokens everywhere (Longformer, LED), whatever their number.

transformers' own asks whether there are such tokens, and how many a text has at most.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.functional import dropout

_CLASSES = {
    "transformers.models.longformer.modeling_longformer": "LongformerSelfAttention",
    "transformers.models.led.modeling_led": "LEDEncoderSelfAttention",
}


def global_attention_forms() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """(class, name, what to do instead), of what has been imported."""
    for module, name in _CLASSES.items():
        owner = getattr(sys.modules.get(module), name, None)
        if owner is not None:
            yield owner, "forward", _form_of(owner.forward)


def _form_of(own: Callable[..., Any]) -> Callable[..., Any]:
    def forward(
        self: Any,
        hidden_states: torch.Tensor,
        attention_mask: Any = None,
        is_index_masked: Any = None,
        is_index_global_attn: Any = None,
        is_global_attn: Any = None,
        output_attentions: bool = False,
    ) -> Any:
        given = (attention_mask, is_index_masked, is_index_global_attn)
        if output_attentions:  # whose shape is the answer to the question
            return own(self, hidden_states, *given, is_global_attn, output_attentions)
        return (attend(self, hidden_states, *given),)

    return forward


def attend(
    layer: Any,
    x: torch.Tensor,
    mask: torch.Tensor,
    is_padding: torch.Tensor,
    is_global: torch.Tensor,
) -> torch.Tensor:
    """Every token sees its window and the global tokens; these see all of their text.

    Each global token of the batch is a column of the scores, hidden from other texts than its own.
    """
    texts, places = places_of(is_global).unbind(1)
    queries, keys, values = (
        _by_head(layer, made) for made in (layer.query(x), layer.key(x), layer.value(x))
    )
    queries = queries / math.sqrt(layer.head_dim)
    least = torch.finfo(x.dtype).min
    window = layer.one_sided_attn_window_size
    hidden = (mask != 0)[:, :, None, None].to(x.dtype) * least
    near = layer._sliding_chunks_query_key_matmul(queries, keys, window)
    near = near + layer._sliding_chunks_query_key_matmul(torch.ones_like(hidden), hidden, window)
    far = queries.transpose(1, 2) @ keys[texts, places].permute(1, 2, 0)
    apart = torch.arange(x.shape[0])[:, None] != texts
    far = far.masked_fill(apart[:, None, None], least).transpose(1, 2)
    shares = torch.cat([near, far], -1).softmax(-1, dtype=torch.float32)
    shares = shares.masked_fill(is_padding[:, :, None, None], 0.0).to(x.dtype)
    shares = dropout(shares, layer.dropout, layer.training)
    near, far = shares[..., : 2 * window + 1], shares[..., 2 * window + 1 :]
    made = layer._sliding_chunks_matmul_attn_probs_value(near, values, window)
    made = made + (far.transpose(1, 2) @ values[texts, places].transpose(0, 1)).transpose(1, 2)
    made = made.reshape(x.shape)
    made[texts, places] = _of_global_tokens(layer, x, is_padding, texts, places)
    return made


def _of_global_tokens(
    layer: Any, x: torch.Tensor, is_padding: torch.Tensor, texts: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    """What the global tokens see, [tokens, width]."""
    queries = layer.query_global(x[texts, places]) / math.sqrt(layer.head_dim)
    queries = queries.unflatten(1, (layer.num_heads, layer.head_dim)).transpose(0, 1)
    keys, values = (
        _by_head(layer, made).flatten(0, 1).transpose(0, 1)
        for made in (layer.key_global(x), layer.value_global(x))
    )
    whose = torch.arange(x.shape[0])[:, None].expand(is_padding.shape).flatten()
    hidden = is_padding.flatten() | (whose != texts[:, None])
    scores = (queries @ keys.transpose(1, 2)).masked_fill(hidden, torch.finfo(x.dtype).min)
    shares = dropout(
        scores.softmax(-1, dtype=torch.float32).to(x.dtype), layer.dropout, layer.training
    )
    return (shares @ values).transpose(0, 1).flatten(1)


def _by_head(layer: Any, x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(2, (layer.num_heads, layer.head_dim))


@torch.library.custom_op("satchel::places_of", mutates_args=())  # type: ignore[untyped-decorator]
def places_of(mask: torch.Tensor) -> torch.Tensor:
    """``nonzero``, of which no layer asks whether it has one row or none."""
    return mask.nonzero()


@places_of.register_fake  # type: ignore[untyped-decorator]
def _two_or_more(mask: torch.Tensor) -> torch.Tensor:
    count = torch.library.get_ctx().new_dynamic_size(min=2)
    return mask.new_empty(count, mask.dim(), dtype=torch.int64)
