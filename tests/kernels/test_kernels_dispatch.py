"""Choosing an instruction set, what the CPU tells, and wrong arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import satchel
from satchel._native import kernels
from satchel.encodings import packing

PACKAGE_PARENT = Path(satchel.__file__).parent.parent
SHOW = "from satchel._native import kernels; print(kernels.selected())"


# A row's products in every encoding and in odd sizes, as one number for all their bits.
ONE_ROW = """
import hashlib, sys
import numpy as np
from satchel._native import kernels
from satchel.encodings import packing

rng, digest = np.random.default_rng(0), hashlib.sha256()
for encoding in ("q4", "q8"):
    for rows, cols, group in ((16, 32, 32), (200, 1056, 32), (77, 384, 128)):
        w = rng.standard_normal((rows, cols), dtype=np.float32)
        x = rng.standard_normal((1, cols), dtype=np.float32)
        packed = packing.pack_matrix(encoding, w, group)
        digest.update(kernels.linear(sys.argv[1], x, *packed, encoding, rows, group))
print(digest.hexdigest())
"""


def run_python(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables, "PYTHONPATH": str(PACKAGE_PARENT)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def run_with_isa(name: str) -> subprocess.CompletedProcess[str]:
    return run_python(SHOW, SATCHEL_ISA=name)


def test_portable_is_first_and_always_there() -> None:
    assert kernels.available()[0] == "portable"


def test_the_best_table_is_the_default() -> None:
    assert run_with_isa("").stdout.strip() == kernels.available()[-1]


def test_environment_selects_a_table(table: str) -> None:
    assert run_with_isa(table).stdout.strip() == table


def test_environment_names_an_unknown_table() -> None:
    result = run_with_isa("abacus")
    assert result.returncode != 0
    assert "no kernels named 'abacus', only portable" in result.stderr


def test_asking_for_codes_ahead_changes_no_bits(table: str) -> None:
    without, ahead = (run_python(ONE_ROW, table, SATCHEL_READ_AHEAD=on).stdout for on in "01")
    assert len(without.strip()) == 64
    assert without == ahead


def test_amx_status_agrees_with_the_tables() -> None:
    status = kernels.amx_status()
    assert ("amx" in kernels.available()) == (status == "available")
    assert status == "available" or status.startswith("not used: ")


def test_tables_need_their_features() -> None:
    features, tables = kernels.cpu_features(), kernels.available()
    assert "avx2" not in tables or {"avx2", "fma", "f16c"} <= set(features)
    assert "avx512" not in tables or {"avx512f", "avx512_vnni"} <= set(features)
    assert "amx" not in tables or {"amx_tile", "amx_int8"} <= set(features)


def test_bandwidth_is_plausible() -> None:
    for threads in (1, 2):
        rate = kernels.measure_read_bandwidth(threads, 32 << 20, 2)
        assert 1e8 < rate < 1e13


@pytest.mark.parametrize("arguments", [(0, 1024, 1), (1, 0, 1), (1, 1024, 0)])
def test_bandwidth_arguments(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        kernels.measure_read_bandwidth(*arguments)


def test_unknown_table_is_named() -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="no kernels named 'abacus'"):
        kernels.add("abacus", x, x)


def test_wrong_shapes_are_refused() -> None:
    x = np.zeros((2, 64), np.float32)
    codes, scales = packing.pack_matrix("q4", np.zeros((16, 64)), 32)
    arguments = (codes, scales, "q4", 16, 32)
    with pytest.raises(ValueError, match="codes have the wrong size"):
        kernels.linear("portable", x[:, :32].copy(), *arguments)
    with pytest.raises(ValueError, match="scales have the wrong size"):
        kernels.linear("portable", x, codes, scales[1:], "q4", 16, 32)
    with pytest.raises(ValueError, match="needs scales"):
        kernels.linear("portable", x, codes, None, "q4", 16, 32)
    with pytest.raises(ValueError, match="bias"):
        kernels.linear("portable", x, *arguments, np.zeros(15, np.float32))
    with pytest.raises(ValueError, match="no such tiles"):
        kernels.linear("portable", x, *arguments, tile_begin=0, tile_end=2)
    with pytest.raises(ValueError, match="same size"):
        kernels.add("portable", x[0], x[0, 1:])
    with pytest.raises(ValueError, match="no such row"):
        kernels.unpack_row("portable", codes, scales, "q4", 16, 64, 32, 16)


def test_wrong_attention_arguments_are_refused() -> None:
    q = np.zeros((2, 4, 8), np.float32)
    cache = np.zeros((2, 10, 8), np.float32)
    with pytest.raises(ValueError, match="too short"):
        kernels.attention("portable", q, cache, cache, 9, 1.0)
    with pytest.raises(ValueError, match="divide the heads"):
        kernels.attention("portable", q[:, :3].copy(), cache, cache, 0, 1.0)
    with pytest.raises(ValueError, match="differ in shape"):
        kernels.attention("portable", q, cache, cache[:1].copy(), 0, 1.0)
    with pytest.raises(TypeError):
        kernels.attention("portable", q, cache.astype(float), cache.astype(float), 0, 1.0)


def test_wrong_dtype_is_refused() -> None:
    with pytest.raises(TypeError):
        kernels.linear("portable", np.zeros((2, 64), complex), None, None, "q4", 16, 32)


@pytest.mark.parametrize("table", [t for t in kernels.available() if t != "portable"])
def test_the_int8_rate_of_a_table_is_measured(table: str) -> None:
    rate = kernels.measure_int8_rate(1, table, repeats=1)
    assert rate > 1e9  # any such instruction does more than one product a cycle


@pytest.mark.parametrize("table", ["portable", "mmx"])
def test_a_table_without_such_instructions_has_no_rate(table: str) -> None:
    with pytest.raises(ValueError, match=table):
        kernels.measure_int8_rate(1, table)
