"""The NEON tables on emulated Arm CPUs, against the references of ``tests/kernels``.

``kernel_check`` compares and this file judges; the same program built for this machine shows that
it finds what is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arm.check_cases import CheckCase, all_cases, write_cases
from arm.image_cases import image_cases
from arm.kernel_program import KernelProgram, build, need

TABLES = {
    "max": ["portable", "neon", "dotprod", "i8mm"],
    "cortex-a76": ["portable", "neon", "dotprod"],
    "cortex-a57": ["portable", "neon"],
}


@pytest.fixture(scope="module")
def checks() -> list[CheckCase]:
    checks = [*all_cases(), *image_cases(np.random.default_rng(8))]
    assert len({check.name for check in checks}) == len(checks)
    return checks


@pytest.fixture(scope="module")
def case_file(checks: list[CheckCase], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cases(tmp_path_factory.mktemp("cases") / "cases", checks)


@pytest.fixture(scope="module")
def arm(arm_folder: Path) -> KernelProgram:
    return KernelProgram(arm_folder / "kernel_check")


@pytest.fixture(scope="module")
def checker(arm: KernelProgram) -> KernelProgram:
    return arm.on_cpu("max")


def assert_right(results: list[dict[str, Any]], tables: list[str], checks: list[CheckCase]) -> None:
    ran = [(result["table"], result["case"]) for result in results]
    assert ran == [(table, check.name) for table in tables for check in checks]
    sizes = {check.name: sum(np.size(v) for v in check.expected.values()) for check in checks}
    assert all(result["values"] == sizes[result["case"]] for result in results)
    assert [r for r in results if r["wrong"] or r["changed_bits"]] == []


def test_arm_tables_give_the_reference(
    arm: KernelProgram, case_file: Path, checks: list[CheckCase]
) -> None:
    assert_right(arm.on_cpu("max").check(case_file), TABLES["max"], checks)


def test_old_arm_cpu_runs_the_neon_table(
    arm: KernelProgram, case_file: Path, checks: list[CheckCase]
) -> None:
    """A CPU that would stop at an instruction it does not have."""
    assert_right(arm.on_cpu("cortex-a57").check(case_file, "neon"), ["neon"], checks)


@pytest.mark.parametrize("cpu", TABLES)
def test_arm_tables_are_those_that_the_cpu_has(arm: KernelProgram, cpu: str) -> None:
    tables = TABLES[cpu]
    machine = arm.on_cpu(cpu).machine()
    assert machine == {
        "available": tables,
        "selected": tables[-1],
        "features": tables[1:],
    }
    for table in tables:
        assert arm.on_cpu(cpu).machine(isa=table)["selected"] == table


def test_arm_table_that_the_cpu_does_not_have(arm: KernelProgram) -> None:
    done = arm.on_cpu("cortex-a57").run(isa="i8mm")
    assert done.returncode == 2
    assert done.stderr == "this CPU has no kernels named 'i8mm', only portable, neon\n"
    assert done.stdout == ""


@pytest.mark.slow
def test_this_machine_gives_the_reference(
    tmp_path: Path, case_file: Path, checks: list[CheckCase]
) -> None:
    """Its kernels have tests of their own through Python: here, what Arm's tests stand on."""
    need("cmake", "c++")
    native = KernelProgram(build(tmp_path) / "kernel_check")
    assert_right(native.check(case_file), native.machine()["available"], checks)


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("linear-q4-40x64-group32-tokens8", "y"),
        ("linear-f16-33x77-tokens3", "y"),
        ("quantize-80-group40", "codes"),
        ("rms-norm-33", "y"),
        ("linear-i8-33x20-rows3-relu-codes", "y"),
        ("depthwise-i8-6x9x16x3x3-stride1-dilation1", "y"),
        ("winograd-7x9x33-to37", "y"),
        ("attention-f16-5x8x64-at0-window0-softcap0.0", "y"),
    ],
)
def test_checker_finds_one_wrong_value(
    checker: KernelProgram, checks: list[CheckCase], name: str, output: str, tmp_path: Path
) -> None:
    check = next(check for check in checks if check.name == name)
    values = np.array(check.expected[output], np.float64)
    largest = np.abs(values).argmax()
    values.flat[largest] *= 1.001
    spoiled = CheckCase(
        check.op,
        name,
        check.tolerance,
        check.inputs,
        {**check.expected, output: values},
        check.numbers,
    )
    for result in checker.check(write_cases(tmp_path / "cases", [spoiled])):
        assert result["wrong"] == 1
        assert result["first_wrong"].startswith(f"{output}[{largest}] is ")


def test_checker_finds_a_nan(checker: KernelProgram, tmp_path: Path) -> None:
    check = next(check for check in all_cases() if check.name == "add-16")
    check.expected["y"][3] = np.nan
    for result in checker.check(write_cases(tmp_path / "cases", [check])):
        assert result["wrong"] == 1


def test_checker_finds_a_read_past_the_end(checker: KernelProgram, tmp_path: Path) -> None:
    """A bias that is one value short: reading the last one touches the page behind it."""
    check = next(c for c in all_cases() if c.name == "linear-q4-16x32-group32-tokens3")
    check.inputs["bias"] = check.inputs["bias"][:-1]
    done = checker.run(str(write_cases(tmp_path / "cases", [check])), "portable")
    assert done.returncode == 3
    assert done.stderr.startswith("a kernel reads or writes past a buffer: table portable, case")


def test_checker_refuses_a_file_that_is_cut_off(
    checker: KernelProgram, case_file: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cases"
    whole = case_file.read_bytes()
    cut.write_bytes(whole[: whole.index(b"array codes") + 40])
    done = checker.run(str(cut))
    assert (done.returncode, done.stderr) == (2, "an array is cut off\n")
