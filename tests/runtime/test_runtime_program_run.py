"""The op table through ``program_run``, built with a sanitizer: ``.ci/sanitize`` runs this.

SATCHEL_PROGRAM_RUN names the program, and SATCHEL_PROGRAM_TABLES the kernels that it has, where
they are not this machine's. A race or a wrong access ends it with a report.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ops.op_table import CASES
from satchel import _native
from support.compare import assert_close
from support.program_jobs import Job, run_jobs

PROGRAM = os.environ.get("SATCHEL_PROGRAM_RUN")
NAMED = os.environ.get("SATCHEL_PROGRAM_TABLES")
TABLES = NAMED.split(",") if NAMED else _native.kernels.available()


@pytest.mark.skipif(PROGRAM is None, reason="SATCHEL_PROGRAM_RUN names no program")
@pytest.mark.parametrize("number", range(len(TABLES)))
def test_op_table(number: int, tmp_path: Path) -> None:
    assert PROGRAM
    cases = CASES[number :: len(TABLES)]  # each row once, with one of the tables
    jobs = [
        Job(case.write(tmp_path / f"{i}.satchel"), [("forward", c) for c in case.calls])
        for i, case in enumerate(cases)
    ]
    answers = run_jobs([PROGRAM], jobs, tmp_path, TABLES[number])
    for case, answer in zip(cases, answers, strict=True):
        for got, want in zip(answer.calls, case.run_reference(), strict=True):
            assert not isinstance(got, str), f"{case.id}: {got}"
            assert_close(got[0], want, case.tolerance, case.id)
