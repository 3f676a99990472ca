"""A Vulkan device, if this machine has one; Debian's mesa-vulkan-drivers has one in software."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from satchel.backends.vulkan import list_devices


@pytest.fixture(scope="session")
def device() -> dict[str, Any]:
    devices, missing = list_devices()
    if not devices:
        pytest.skip(missing or "no Vulkan driver has a device: apt-get install mesa-vulkan-drivers")
    return devices[0]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pipelines are kept from one test to the next, and apart from the user's."""
    folder = tmp_path_factory.getbasetemp() / "vulkan_cache"
    monkeypatch.setenv("SATCHEL_CACHE", str(folder))
    return folder


@pytest.fixture
def weak() -> Path:
    """Chromium's driver in software: no halves, no bytes, workgroups of 256, subgroups of 4."""
    manifest = Path(
        os.environ.get("SATCHEL_TEST_SWIFTSHADER", "/usr/lib/chromium/vk_swiftshader_icd.json")
    )
    if not manifest.is_file():
        pytest.skip("there is no SwiftShader: apt-get install chromium-common")
    return manifest
