"""Targets, what the chips can do, and Qualcomm's codes."""

from __future__ import annotations

import pytest

from satchel.backends import find_target
from satchel.backends.qnn.chips import CHIPS, find_chip
from satchel.backends.qnn.codes import CODES, find_code, vendor_error
from satchel.errors import ConfigError


def test_targets_by_chip_and_by_version() -> None:
    chip = find_chip("qnn:sm8750")
    assert (chip.name, chip.hexagon, chip.soc_model) == ("SM8750", 79, 69)
    assert chip.options() == {"htp_arch": "79", "soc_model": "69"}
    assert find_chip("qnn:v79").options() == {"htp_arch": "79"}
    assert find_target("qnn:sm8750").name == "qnn:SM8750"


def test_what_chips_can_do() -> None:
    by_version = {chip.hexagon: chip for chip in CHIPS}
    blocks = [v for v, chip in by_version.items() if chip.has_block_weights]
    shared = [v for v, chip in by_version.items() if chip.shares_weights]
    assert sorted(blocks) == [69, 73, 75, 79, 81] and sorted(shared) == [73, 75, 79, 81]


def test_an_unknown_chip_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no target 'qnn:SM8751'.*Did you mean qnn:SM8750"):
        find_chip("qnn:SM8751")


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_says_what_to_do(code: int) -> None:
    error = vendor_error("loading", f"QNN graph execute error. Error code: {code}")
    assert error.code == code and CODES[code].meaning in error.message
    assert error.advice and str(code) in error.message


def test_codes_in_messages() -> None:
    assert find_code("Failed to get context binary size with err 0x138b") == 5003
    assert find_code("Failed to create device. QNN_DEVICE_INVALID_CONFIG: bad") == 14001
    assert find_code("all is well") is None
    assert vendor_error("loading", "strange things").message.endswith("no code: strange things")


def test_an_op_on_the_cpu_is_told_as_such() -> None:
    said = "graph nodes that are assigned to the default CPU EP, but fallback is disabled"
    assert "does not take every op" in vendor_error("compiling", said).message
