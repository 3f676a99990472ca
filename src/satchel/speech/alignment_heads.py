"""The heads of the cross-attention that follow the audio, by model: LAYER.HEAD.

They are a property of the trained weights that openai-whisper publishes beside them. Hugging Face's
checkpoints have them in generation_config.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By the decoder's layers, the encoder's, and the size of the vocabulary.
_HEADS = {
    (4, 4, 51864): "1.0 2.0 2.5 3.0 3.1 3.2 3.3 3.4",
    (4, 4, 51865): "2.2 3.0 3.2 3.3 3.4 3.5",
    (6, 6, 51864): "3.3 4.7 5.1 5.5 5.7",
    (6, 6, 51865): "3.1 4.2 4.3 4.7 5.1 5.2 5.4 5.6",
    (12, 12, 51864): "6.6 7.0 7.3 7.8 8.2 8.5 8.7 9.0 9.4 9.8 9.10 10.0 10.1 10.2 10.3 10.6 10.11 "
    "11.2 11.4",
    (12, 12, 51865): "5.3 5.9 8.0 8.4 8.7 8.8 9.0 9.7 9.9 10.5",
    (24, 24, 51864): "11.4 14.1 14.12 14.14 15.4 16.0 16.4 16.9 17.12 17.14 18.7 18.10 18.15 20.0 "
    "20.3 20.9 20.14 21.12",
    (24, 24, 51865): "13.15 15.4 15.15 16.1 20.0 23.4",
    (32, 32, 51865): "10.12 13.17 16.11 16.12 16.13 17.15 17.16 18.4 18.11 18.19 19.11 21.2 21.3 "
    "22.3 22.9 22.12 23.5 23.7 23.13 25.5 26.1 26.12 27.15",
    (32, 32, 51866): "7.0 10.17 12.18 13.12 16.1 17.14 19.11 21.4 24.1 25.6",
    (4, 32, 51866): "2.4 2.11 3.3 3.6 3.11 3.14",
}
# The first large model has the sizes of the second.
_LARGE_V1 = "9.19 11.2 11.4 11.17 22.7 22.11 22.17 23.2 23.15"


def alignment_heads(
    config: Mapping[str, Any], generation: Mapping[str, Any], name: str
) -> list[tuple[int, int]]:
    """(layer, head) of a model; all heads of the last half of the layers, if it is not known."""
    layers, heads = config["decoder_layers"], config["decoder_attention_heads"]
    own = generation.get("alignment_heads")
    if isinstance(own, list):
        pairs = [tuple(pair) for pair in own if isinstance(pair, list) and len(pair) == 2]
        found = [(int(layer), int(head)) for layer, head in pairs]
    else:
        known = _HEADS.get((layers, config["encoder_layers"], config["vocab_size"]), "")
        known = _LARGE_V1 if layers == 32 and "v1" in name else known
        numbers = (pair.split(".") for pair in known.split())
        found = [(int(layer), int(head)) for layer, head in numbers]
    inside = [pair for pair in found if 0 <= pair[0] < layers and 0 <= pair[1] < heads]
    return inside or [
        (layer, head) for layer in range(layers // 2, layers) for head in range(heads)
    ]
