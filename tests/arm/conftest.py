"""One build for Arm serves all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from arm.kernel_program import ARM_COMPILER, EMULATOR, build, common_folder, need


@pytest.fixture(scope="session")
def arm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the test programs for 64-bit Arm are."""
    need("cmake", ARM_COMPILER, EMULATOR)
    return build(
        common_folder(tmp_path_factory, "arm"),
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_CXX_COMPILER={ARM_COMPILER}",
        targets=("kernel_check", "program_run"),
    )
