"""What a .pte file cannot hold is told before any weight is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from satchel.backends import find_target, find_targets
from satchel.backends.executorch import rules
from satchel.backends.executorch.tokenizer_file import tokenizer_for_runners
from satchel.errors import ConfigError, OutputExistsError, SatchelError
from satchel.exporter import ExportOptions, prepare_export
from satchel.quantize.rounding import Rounder
from satchel.quantize.scale_form import BRAIN
from support.tiny_llm import write_tiny_llm


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("pte") / "tiny")


def test_the_format_of_cpu_is_a_target() -> None:
    assert find_target("cpu", format="pte") == find_target("executorch")
    assert find_target("cpu", format="satchel").name == "cpu"
    [chosen] = find_targets("cpu", format="pte", all_logits=True)
    assert chosen == find_target("executorch", all_logits=True)
    with pytest.raises(ConfigError, match="all_logits is for executorch, and the target is cpu"):
        find_targets("cpu", all_logits=True)
    with pytest.raises(ConfigError, match="format is for cpu"):
        find_target("vulkan", format="pte")


def test_without_the_package_that_is_told(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'satchel\[executorch\]'"):
        satchel.export(checkpoint, target="executorch")


def test_it_is_alone_in_its_file(checkpoint: Path) -> None:
    options = ExportOptions(target=find_targets("cpu,executorch"))
    with pytest.raises(ConfigError, match="Export a file for each"):
        prepare_export(checkpoint, options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "fp16"}, "in 32 bits, not 16"),
        ({"recipe": "16a8w"}, "rounds what .* to 8 bits"),
        ({"recipe": "16a4w"}, "rounds what .* to 8 bits"),
        ({"recipe": "8da4w", "head_bits": 8}, "one scale a row"),
        ({"kv_bits": 16}, "caches have 32 bits"),
        ({"mode": "lookahead"}, "does not guess ahead"),
        ({"pooling": "last"}, "gives no vectors"),
        ({"embeddings": True}, "takes no embeddings"),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else "",
)
def test_refusals(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(
        type(find_target("executorch")), "place", type(find_target("cpu")).place
    )  # so that ExecuTorch need not be there
    monkeypatch.setattr(type(find_target("executorch")), "portable", True)
    monkeypatch.setattr(type(find_target("executorch")), "supports", lambda *_: None)
    with pytest.raises(SatchelError, match=message):
        prepare_export(checkpoint, ExportOptions(target="executorch", **options))


def test_names_end_in_pte(checkpoint: Path, tmp_path: Path) -> None:
    pytest.importorskip("executorch.exir")
    job = prepare_export(checkpoint, ExportOptions(target="executorch"))
    assert job.default_output.suffix == ".pte"
    with pytest.raises(ConfigError, match="is not the name of a .pte file"):
        job.output(tmp_path / "m.satchel")
    (tmp_path / "m.pte").write_text("mine")
    with pytest.raises(OutputExistsError):
        job.run(tmp_path / "m.pte")


def test_scales_are_above_zero_and_exact_in_bfloat16() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((16, 256)).astype(np.float32)
    rows[3] = 0
    rows[4] *= 1e-7
    from satchel.encodings.encoding import Encoding

    encoding = Encoding("matrix_q4", 32)
    errors = {}
    for name in ("plain", "search"):
        rounder = Rounder(name, lambda _: None, 1, BRAIN)
        assert rounder.applies(encoding)
        rounded = rounder.round("w", "linear", rows, encoding)
        scales = rounded.scales.astype(np.float32)
        assert (scales >= 0).all()
        assert not (scales.view(np.uint32) & 0xFFFF).any()
        assert (scales.astype(np.float16) == rounded.scales).all()
        errors[name] = float(((rounded.floats() - rows) ** 2).mean())
    free = Rounder("search", lambda _: None, 1).round("w", "linear", rows, encoding)
    free_error = float(((free.floats() - rows) ** 2).mean())
    assert errors["search"] < errors["plain"]
    assert errors["search"] < 1.15 * free_error


def test_recipes_of_eight_bits_are_left_to_the_native_core() -> None:
    from satchel.encodings.encoding import Encoding

    assert not Rounder("plain", lambda _: None, 1, BRAIN).applies(Encoding("matrix_q8", 64))


def test_split_digits_are_said_so_that_the_reader_keeps_the_rest() -> None:
    text = (
        '{"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": '
        '{"Regex": "\\\\p{N}"}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel"}]}}'
    )
    assert "Digits" in tokenizer_for_runners(text)
    assert tokenizer_for_runners('{"model": {}}') == '{"model": {}}'
