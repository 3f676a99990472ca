"""A folder of transformers with a tiny BERT, as people have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS)]
WORDS += ["river", "the", "in", "italy"]
LENGTH = 40


def write_tiny_bert(folder: Path, **settings: Any) -> Path:
    """Random weights, a WordPiece tokenizer, and no files of sentence-transformers."""
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        **settings,
    )
    transformers.BertModel(config).eval().save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    return folder


def add_sentence_files(folder: Path, pooling: str, dense: int = 0, prompts: Any = None) -> None:
    """What sentence-transformers puts beside a model."""
    import torch
    from safetensors.torch import save_file

    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")]
    kinds += [("Dense", "2_Dense")] if dense else []
    kinds.append(("Normalize", "3_Normalize"))
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    modes = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "last": "lasttoken"}
    said = {f"pooling_mode_{name}": key == pooling for key, name in modes.items()}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps(said))
    if dense:
        (folder / "2_Dense").mkdir()
        settings = {"in_features": 32, "out_features": dense, "bias": True}
        settings["activation_function"] = "torch.nn.modules.activation.Tanh"
        (folder / "2_Dense/config.json").write_text(json.dumps(settings))
        weights = {"linear.weight": torch.randn(dense, 32), "linear.bias": torch.randn(dense)}
        save_file(weights, folder / "2_Dense/model.safetensors")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 24}))
    document = {"prompts": prompts or {}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(document))
