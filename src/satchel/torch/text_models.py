"""Encoders of transformers by folder, with their tokenizer, pooling and rules."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from satchel.errors import CheckpointError, ConfigError, UnsupportedModelError
from satchel.text.encoder import EMBEDDING, TextRules

POOLINGS = ("mean", "cls", "max", "last")
MOST_TEXTS = 8
MOST_TOKENS = 512  # of a model that says nothing of lengths
_ADVICE = "Give a folder of transformers: config.json, weights and the tokenizer's files."


class PooledEncoder(nn.Module):  # type: ignore[misc]
    """The hidden states of an encoder, and of each text one vector."""

    def __init__(
        self, model: nn.Module, pooling: str, denses: list[nn.Module], normalize: bool
    ) -> None:
        super().__init__()
        self.model, self.pooling, self.normalize = model, pooling, normalize
        self.denses = nn.ModuleList(denses)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        # [texts, tokens] -> [texts, tokens, hidden] and [texts, dimensions]
        states = self.model(input_ids=input_ids, attention_mask=attention_mask)[0]
        vector = self._pooled(states, attention_mask)
        for dense in self.denses:
            vector = dense(vector)
        if self.normalize:
            vector = nn.functional.normalize(vector, dim=-1)
        return {"last_hidden_state": states, EMBEDDING: vector}

    def _pooled(self, states: Tensor, mask: Tensor) -> Tensor:
        if self.pooling == "cls":
            return states[:, 0]
        kept = mask[:, :, None].to(states.dtype)
        if self.pooling == "max":
            return (states + (kept - 1) * 1e9).amax(1)
        if self.pooling == "last":  # padding is behind a text
            behind = (mask.cumsum(1) == mask.sum(1, keepdim=True)) & (mask > 0)
            kept = behind[:, :, None].to(states.dtype)
        return (states * kept).sum(1) / kept.sum(1).clamp(min=1e-9)


class TextModel:
    """An encoder in evaluation mode, with what belongs to it.

    ``pooling`` and what follows it are those of sentence-transformers' files where the folder has
    them, else the mean of the hidden states.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        pooling: str | None = None,
        max_length: int | None = None,
    ) -> None:
        self.folder = Path(folder)
        if not (self.folder / "config.json").is_file():
            raise CheckpointError(f"{folder} has no config.json", _ADVICE)
        if pooling is not None and pooling not in POOLINGS:
            raise ConfigError(f"there is no pooling {pooling!r}", f"Known: {', '.join(POOLINGS)}.")
        transformers = _library()
        base = self._base()
        self.tokenizer, limit, pad = _tokenizer(transformers, base)
        model = _encoder(transformers, base)
        longest = _longest(model.config, limit, self._own_limit())
        if max_length is not None and max_length > longest:
            raise ConfigError(
                f"{folder} takes {longest} tokens, and not {max_length}", "Ask for fewer."
            )
        own, denses, normalize = self._after(model)
        chosen = pooling or own
        self.module = PooledEncoder(model, chosen, denses, normalize).eval()
        self.rules = TextRules(
            pooling=chosen,
            normalize=normalize,
            max_length=max_length or longest,
            max_texts=MOST_TEXTS,
            pad_id=pad,
            prompts=_prompts(self._json("config_sentence_transformers.json")),
        )

    @property
    def architecture(self) -> str:
        return str(self.module.model.config.model_type)

    def example(self) -> tuple[Tensor, Tensor]:
        """Two texts of different length."""
        length = min(8, self.rules.max_length)
        mask = torch.ones(2, length, dtype=torch.int64)
        mask[1, length // 2 + 1 :] = 0
        return torch.full((2, length), self.rules.pad_id), mask

    def dynamic_shapes(self) -> dict[str, Any]:
        from torch.export import Dim

        texts, tokens = self.rules.max_texts, self.rules.max_length
        sizes = {0: Dim("texts", min=1, max=texts), 1: Dim("tokens", min=1, max=tokens)}
        return {"input_ids": sizes, "attention_mask": sizes}

    def _json(self, name: str) -> Any:
        path = self.folder / name
        if not path.is_file():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise CheckpointError(f"{path} is not JSON: {error}", "Fetch it again.") from None

    def _modules(self) -> list[tuple[str, Path]]:
        """(class, folder) of what sentence-transformers runs one after the other."""
        listed = self._json("modules.json")
        entries = listed if isinstance(listed, list) else []
        return [
            (str(each.get("type", "")).rsplit(".", 1)[-1], self.folder / str(each.get("path", "")))
            for each in entries
            if isinstance(each, Mapping)
        ]

    def _base(self) -> Path:
        """Where the encoder itself lies."""
        found = [path for kind, path in self._modules() if kind == "Transformer"]
        return found[0] if found and (found[0] / "config.json").is_file() else self.folder

    def _own_limit(self) -> int | None:
        said = self._json("sentence_bert_config.json")
        limit = said.get("max_seq_length") if isinstance(said, dict) else None
        return limit if isinstance(limit, int) else None

    def _after(self, model: Any) -> tuple[str, list[nn.Module], bool]:
        """Pooling, layers and whether vectors are brought to length 1."""
        pooling, denses, normalize = "mean", [], False
        for kind, path in self._modules():
            if kind == "Pooling":
                pooling = _pooling(path)
            elif kind == "Dense":
                denses.append(_dense(path))
            elif kind == "Normalize":
                normalize = True
            elif kind != "Transformer":
                raise UnsupportedModelError(
                    f"{self.folder}: sentence-transformers' {kind} has no counterpart",
                    "Pooling, Dense and Normalize have.",
                )
        return pooling, denses, normalize


def _library() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"a folder of transformers needs that package ({error})",
            "pip install 'satchel[transformers]'.",
        ) from None
    return transformers


def _encoder(transformers: Any, folder: Path) -> Any:
    """In 32 bits; code that a folder brings is not run."""
    quiet = transformers.utils.logging
    level = quiet.get_verbosity()
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        encoders = transformers.AutoModelForTextEncoding
        known = type(config) in encoders._model_mapping
        kind = encoders if known else transformers.AutoModel
        model = kind.from_pretrained(
            folder, config=config, dtype=torch.float32, local_files_only=True
        )
    except Exception as error:  # the library raises many kinds of its own
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(f"transformers cannot open {folder}: {reason}", _ADVICE) from None
    finally:
        quiet.set_verbosity(level)
    if getattr(model.config, "is_encoder_decoder", False) and not known:
        raise UnsupportedModelError(
            f"{model.config.model_type} has an encoder and a decoder",
            "Export its encoder as a module: satchel.export(model.encoder, …).",
        )
    from satchel.models import architectures

    if model.config.model_type in architectures():
        raise UnsupportedModelError(
            f"{model.config.model_type} is a decoder",
            "Export it as a language model with --pooling last (or mean), and without a task.",
        )
    return model


def _tokenizer(transformers: Any, folder: Path) -> tuple[str, int | None, int]:
    """Its JSON, the longest text that it names, and the token that fills up."""
    try:
        found = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        document = json.loads(found.backend_tokenizer.to_str())
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{folder} has no usable tokenizer: {reason}", _ADVICE) from None
    document["truncation"] = document["padding"] = None
    limit = int(found.model_max_length)
    pad = found.pad_token_id
    return json.dumps(document), limit if limit < 1 << 20 else None, 0 if pad is None else int(pad)


def _longest(config: Any, *limits: int | None) -> int:
    """The least of what model, tokenizer and sentence-transformers' file say."""
    said = [limit for limit in limits if limit]
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        # RoBERTa's kind counts positions from behind the padding token's number.
        offset = config.pad_token_id + 1 if config.model_type in _OFFSET_POSITIONS else 0
        said.append(positions - offset)
    return min(said) if said else MOST_TOKENS


_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl", "longformer"}
_OFFSET_POSITIONS |= {"roberta-prelayernorm", "data2vec-text", "xmod", "ibert", "esm", "luke"}


def _pooling(folder: Path) -> str:
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_max_tokens": "max",
        "pooling_mode_lasttoken": "last",
    }
    mode = said.get("pooling_mode")
    asked = [mode] if mode in POOLINGS else []
    asked = asked or [key for key, on in said.items() if key.startswith("pooling_mode_") and on]
    chosen = [names.get(key, key) for key in asked]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise UnsupportedModelError(
            f"{folder} pools by {', '.join(map(str, chosen)) or 'nothing'}",
            f"One of {', '.join(POOLINGS)} is possible, also by --pooling.",
        )
    return str(chosen[0])


def _dense(folder: Path) -> nn.Module:
    from satchel.torch.vision_models import read_weights

    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    layer = nn.Linear(said["in_features"], said["out_features"], bool(said.get("bias", True)))
    files = [folder / name for name in ("model.safetensors", "pytorch_model.bin")]
    path = next((file for file in files if file.is_file()), files[0])
    state = {name.removeprefix("linear."): value for name, value in read_weights(path).items()}
    layer.load_state_dict(state)
    name = str(said.get("activation_function", "torch.nn.modules.linear.Identity"))
    activation = getattr(nn, name.rsplit(".", 1)[-1], None)
    if activation not in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.Sigmoid):
        raise UnsupportedModelError(f"{folder} has the activation {name}", "It is not known here.")
    return nn.Sequential(layer, activation())


def _prompts(said: Any) -> dict[str, str]:
    found = said.get("prompts") if isinstance(said, dict) else None
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if isinstance(k, str) and isinstance(v, str) and v}
