"""What reaches the terminal, and what happens when nobody listens or odd values are given."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import satchel.cli
from satchel.cli.main import main
from satchel.errors import ExecutionError
from satchel.exporter.cached import program_for
from satchel.runtime.program import Program
from support import program_file as fm

SATCHEL = [sys.executable, "-m", "satchel"]
STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\r"


def with_metadata(program: Path, target: Path, **changes: object) -> Path:
    model = fm.read(program.read_bytes())
    model.metadata = json.dumps({**json.loads(model.metadata), **changes}).encode()
    target.write_bytes(fm.write(model))
    return target


@pytest.mark.parametrize("as_json", [False, True])
def test_control_characters_of_a_file_do_not_reach_the_terminal(
    as_json: bool, program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = with_metadata(program, tmp_path / "x.satchel", name=f"a{STEERING}b")
    assert main(["inspect", str(path), *(["--json"] if as_json else [])]) == 0
    printed = capsys.readouterr().out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", printed)
    if as_json:
        assert json.loads(printed)["metadata"]["name"] == f"a{STEERING}b"
    else:
        assert r"a\x1b]0;owned\x07" in printed


def test_control_characters_in_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["inspect", str(tmp_path / f"no{STEERING}.satchel")]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_commands_print_through_one_place() -> None:
    """``emit`` and ``say`` filter what they print; a bare ``print`` would not."""
    bare = re.compile(r"(?<![\w.])print\(|sys\.std(out|err)\.write")
    for path in Path(satchel.cli.__file__).parent.glob("*.py"):
        # The conversation writes what is shown() in a style of its own.
        if path.name not in ("output.py", "main.py", "conversation.py"):
            assert not bare.search(path.read_text("utf-8")), path


_odd = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.just(10**400), st.floats(), st.text()),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)


def _places(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, item in items:
        yield (*where, key)
        yield from _places(item, (*where, key))


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_odd_metadata_is_the_fault_of_the_file(
    data: st.DataObject, program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Any value in any place: shown, or refused in a line that does not speak of a bug."""
    model = fm.read(program.read_bytes())
    document = json.loads(model.metadata)
    *way, last = data.draw(st.sampled_from(list(_places(document))))
    holder = document
    for key in way:
        holder = holder[key]
    holder[last] = data.draw(_odd)
    model.metadata = json.dumps(document).encode()
    path = program.with_name("odd.satchel")
    path.write_bytes(fm.write(model))
    for command in (["inspect", str(path)], ["run", str(path), "--prompt=x", "--max-new-tokens=1"]):
        assert main(command) in (0, 1)
        assert "bug in Satchel" not in capfd.readouterr().err


@pytest.mark.parametrize("threads", ["99999999999", "9" * 30, "0", "-1", "two"])
def test_absurd_numbers_are_wrong_usage(
    threads: str, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", str(program), "--prompt", "x", f"--threads={threads}"])
    assert caught.value.code == 2
    assert "bug in Satchel" not in capsys.readouterr().err


def test_absurd_threads_from_python(program: Path) -> None:
    with pytest.raises(ExecutionError, match="1 to 1024 threads"):
        Program(program).instance(threads=10**11)


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-", "2>/dev/full", "2> >(true)"])
def test_an_export_is_written_though_nobody_listens(
    closed: str, checkpoint: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.satchel"
    command = f"{' '.join(SATCHEL)} export {checkpoint} -o {output} {closed}"
    subprocess.run(["bash", "-c", command], capture_output=True, timeout=120, check=False)
    Program(output, verify=True)


def test_an_answer_that_nobody_can_read_is_no_bug(program: Path) -> None:
    command = f"{' '.join(SATCHEL)} run {program} hi --max-new-tokens 2 >&-"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False
    )
    assert "bug in Satchel" not in done.stderr and "2 new tokens" in done.stderr


@pytest.mark.parametrize("command", ["chat {}", "run {} --prompt-file -"])
def test_nobody_who_asks_is_no_bug(command: str, program: Path) -> None:
    command = f"{' '.join(SATCHEL)} {command.format(program)} <&-"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False
    )
    assert "bug in Satchel" not in done.stderr and done.returncode == ("run" in command)


def test_a_damaged_program_in_the_cache_is_made_again(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    made = program_for(checkpoint)
    whole = made.read_bytes()
    for damaged in (b"", whole[:5000], whole[:200] + b"\xff" + whole[201:], b"x" * 9000):
        made.write_bytes(damaged)
        said: list[str] = []
        assert program_for(checkpoint, say=said.append) == made
        Program(made, verify=True)
        assert any("made again" in line for line in said)


def test_a_panic_of_the_tokenizers_library_is_an_error(
    program: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = fm.read(program.read_bytes())
    document = json.loads(model.tokenizer)
    document["decoder"] = {"type": "ByteLevel"}
    document["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    model.tokenizer = json.dumps(document).encode()
    model.text = b""  # without the compiled tokenizer, which would be used in its place
    path = tmp_path / "panic.satchel"
    path.write_bytes(fm.write(model))
    assert main(["run", str(path), "--prompt", "x", "--max-new-tokens", "1"]) == 1
    assert "bug in Satchel" not in capfd.readouterr().err
