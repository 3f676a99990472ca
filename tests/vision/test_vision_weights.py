"""Torchvision's weights by name and from files; the list here is one of its form."""

from __future__ import annotations

import enum
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from satchel.errors import CheckpointError, DownloadError
from satchel.torch.vision_models import fill_zeros
from satchel.torch.vision_weights import find_weights
from satchel.vision.made_up import made_up_images
from satchel.vision.preprocess import Preprocessing


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


@pytest.fixture
def entries(place: Path) -> Any:
    """Two sets of weights on a server, which is a folder; names hold the start of their hash."""
    urls = {}
    for name in ("V1", "V2"):
        torch.save({"w": torch.zeros(3)}, place / "x.pth")
        data = (place / "x.pth").read_bytes() + name.encode()
        digest = hashlib.sha256(data).hexdigest()
        path = place / f"net-{digest[:8]}.pth"
        path.write_bytes(data)
        urls[name] = path.as_uri()

    class Weights(enum.Enum):
        IMAGENET1K_V1 = urls["V1"]
        IMAGENET1K_V2 = urls["V2"]
        DEFAULT = urls["V2"]

        @property
        def url(self) -> str:
            return str(self.value)

    return Weights


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [(None, "IMAGENET1K_V2"), ("default", "IMAGENET1K_V2"), ("IMAGENET1K_V1", "IMAGENET1K_V1")],
)
def test_weights_are_fetched_by_name_once(
    entries: Any, place: Path, tmp_path: Path, wanted: str | None, meant: str
) -> None:
    cache = tmp_path / "cache" / "checkpoints"
    told: list[tuple[str, int, int]] = []
    found = find_weights(entries, "net", wanted, cache, lambda *step: told.append(step))
    assert found.entry is entries[meant] and found.path.parent == cache
    assert found.path.read_bytes() == (place / found.path.name).read_bytes()
    assert told[-1][1:] == (found.path.stat().st_size,) * 2
    for path in place.iterdir():
        path.unlink()
    assert find_weights(entries, "net", wanted, cache) == found  # from now on without a network


def test_a_file_has_the_labels_of_its_entry(entries: Any, place: Path, tmp_path: Path) -> None:
    first = Path(entries.IMAGENET1K_V1.url.removeprefix("file://"))
    assert find_weights(entries, "net", str(first), tmp_path).entry is entries.IMAGENET1K_V1
    own = tmp_path / "my.pth"
    own.write_bytes(first.read_bytes())
    assert find_weights(entries, "net", str(own), tmp_path).entry is entries.DEFAULT


def test_what_cannot_be_had_is_explained(entries: Any, place: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no weights 'V7' of net.*IMAGENET1K_V1.*DEFAULT"):
        find_weights(entries, "net", "V7", tmp_path)
    changed = Path(entries.IMAGENET1K_V1.url.removeprefix("file://"))
    changed.write_bytes(changed.read_bytes() + b"!")
    with pytest.raises(DownloadError, match="another checksum"):
        find_weights(entries, "net", "IMAGENET1K_V1", tmp_path / "c")
    assert not list((tmp_path / "c").iterdir())
    changed.unlink()
    with pytest.raises(DownloadError, match="cannot be fetched.*weights FILE"):
        find_weights(entries, "net", "IMAGENET1K_V1", tmp_path / "c")


def test_made_up_images_are_like_photographs() -> None:
    """All of the range that bytes of an image have, and most of the power in low frequencies."""
    how = Preprocessing(256, (224, 224))
    images = made_up_images(how)
    mean, std = (np.array(x)[:, None, None] for x in (how.mean, how.std))
    for image in images:
        pixels = image[0] * std + mean
        assert pixels.min() == pytest.approx(0, abs=1e-5)
        assert pixels.max() == pytest.approx(1, abs=1e-5)
        power = np.abs(np.fft.fft2(pixels[0] - pixels[0].mean())) ** 2
        assert power[:8, :8].sum() > 20 * power[100:124, 100:124].sum()
    assert not np.array_equal(images[0], images[1])


def test_random_weights_are_nowhere_zero() -> None:
    """As ViT's last layer is when training begins: every image would have the same scores."""
    body, head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    before = body.weight.clone()
    module = torch.nn.Sequential(body, head)
    fill_zeros(module)
    assert torch.equal(body.weight, before)
    scores = module(torch.randn(2, 4))
    assert (scores[0] != scores[1]).all() and head.bias.any()
