"""Targets, what the chips can do, and Qualcomm's codes."""

from __future__ import annotations

import re

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


SAID = {
    "[ERROR] QnnDsp <E> Unsupported config option 2": "without a group",
    "QnnDsp <E> Context group 1 does not exist\nerror code 5010": "keep the first open",
    "<E> fastrpc memory map for fd: 156 with length: 1145044992 failed. err 1002": "num-sharding",
    "Failed to interpret QNN context binary. Error code 30010": "built? the runner|_qnn.bin",
    "exits with error 7005, tensor parameters not supported": "Shapes must be fixed",
    "Failed to add node to Qnn Graph with error: 6005": "which name the first op",
    "Failed to get context binary with err 0x138f": "num-sharding",
    "loading method failed with error 0x14": "satchel run",
}


@pytest.mark.parametrize("said", SAID)
def test_messages_that_people_met_get_advice_of_their_own(said: str) -> None:
    error = vendor_error("loading", said)
    assert re.search(SAID[said], error.advice), error.advice
    assert error.advice not in {vendor_error("loading", "strange").advice, CODES[5010].advice}


def test_an_op_on_the_cpu_is_told_as_such() -> None:
    said = "graph nodes that are assigned to the default CPU EP, but fallback is disabled"
    assert "does not take every op" in vendor_error("compiling", said).message
