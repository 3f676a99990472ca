"""Whisper's encoder and decoder on the NPU, with static shapes: modules against torch's floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import satchel  # noqa: E402
from satchel.backends.qnn.payload import read_manifest  # noqa: E402
from satchel.runtime.program import Program  # noqa: E402

TOKENS = 6
SIZES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 64}
SIZES |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_mel_bins": 16}
SIZES |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 24}
SIZES |= {"max_target_positions": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES |= {"decoder_start_token_id": 1}


class Encoder(torch.nn.Module):  # type: ignore[misc,name-defined]
    """mel [1, mels, frames] -> audio [1, positions, width]"""

    def __init__(self, whisper: Any) -> None:
        super().__init__()
        self.encoder = whisper.model.encoder

    def forward(self, mel: Any) -> Any:
        return self.encoder(mel).last_hidden_state


class Decoder(torch.nn.Module):  # type: ignore[misc,name-defined]
    """tokens [1, n], audio -> logits [1, n, vocabulary], behind each token"""

    def __init__(self, whisper: Any) -> None:
        super().__init__()
        self.decoder, self.head = whisper.model.decoder, whisper.proj_out

    def forward(self, tokens: Any, audio: Any) -> Any:
        made = self.decoder(tokens, encoder_hidden_states=audio, use_cache=False)
        return self.head(made.last_hidden_state)


@pytest.fixture(scope="module")
def whisper() -> Any:
    torch.manual_seed(3)
    config = transformers.WhisperConfig(**SIZES, attn_implementation="eager")
    return transformers.WhisperForConditionalGeneration(config).eval()


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a.ravel() @ b.ravel() / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["16a8w", "fp16"])
def test_encoder_and_decoder(whisper: Any, recipe: str, tmp_path: Path) -> None:
    """What one makes the other listens to: logits are torch's, and so are their largest ones."""
    encoder, decoder = Encoder(whisper).eval(), Decoder(whisper).eval()
    generator = torch.Generator().manual_seed(5)
    sounds = [torch.randn(1, 16, 48, generator=generator) for _ in range(4)]
    texts = [torch.randint(3, 64, (1, TOKENS), generator=generator) for _ in range(4)]
    with torch.no_grad():
        heard = [encoder(sound) for sound in sounds]
        wanted = decoder(texts[-1], heard[-1]).numpy()
    options = {"recipe": recipe, "target": "qnn:SM8750"}
    calibration = [(sound,) for sound in sounds[:-1]] if recipe != "fp16" else None
    listens = satchel.export(
        encoder, (sounds[0],), tmp_path / "encoder.satchel", calibration=calibration, **options
    )
    if calibration is not None:
        calibration = list(zip(texts[:-1], heard[:-1], strict=True))
    writes = satchel.export(
        decoder,
        (texts[0], heard[0]),
        tmp_path / "decoder.satchel",
        calibration=calibration,
        **options,
    )
    audio = np.asarray(Program(listens).method().run(sounds[-1].numpy())[0])
    assert _cosine(audio, heard[-1].numpy()) > 0.999
    logits = np.asarray(Program(writes).method().run(texts[-1].numpy(), audio)[0])
    assert _cosine(logits, wanted) > 0.998
    assert (logits.argmax(-1) == wanted.argmax(-1)).mean() >= 5 / 6
    for path in (listens, writes):
        (method,) = read_manifest(Program(path)).methods.values()
        assert method.tokens == 0 and method.after is None, "all but tokens' rows is the NPU's"
