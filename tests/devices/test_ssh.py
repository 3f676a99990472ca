"""Files to and from a machine behind a real ssh server, and programs measured there."""

from __future__ import annotations

import json
import os
import platform
import shlex
from pathlib import Path

import pytest

import satchel
from satchel.backends.vulkan import list_devices
from satchel.cli.main import main
from satchel.devices import ShellDevice, bench_on, open_device
from satchel.errors import DeviceError

MEGABYTE = 1 << 20


class Sent:
    """How far a transfer was at each of its reports."""

    def __init__(self) -> None:
        self.amounts: list[int] = []

    def __call__(self, label: str, done: int, total: int | None) -> None:
        assert label and total is not None and done <= total
        self.amounts.append(done)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "it's a file.bin"
    path.write_bytes(os.urandom(5 * MEGABYTE + 17))
    return path


def test_a_file_is_sent_once(board: ShellDevice, file: Path) -> None:
    sent = Sent()
    place = board.push(file, sent)
    assert Path(place).read_bytes() == file.read_bytes()
    assert sent.amounts[-1] == file.stat().st_size
    again = Sent()
    assert board.push(file, again) == place and again.amounts == []
    file.write_bytes(b"another")
    board.push(file)
    assert Path(place).read_bytes() == b"another"


def cut_off(board: ShellDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int) -> None:
    """From now on the connection breaks when so many bytes went through it, either way."""
    script = tmp_path / "cut.sh"
    ssh = os.environ["SATCHEL_SSH"]
    script.write_text(
        f'#!/bin/sh\ncase "$*" in\n*"cat >"*) head -c {size} | {ssh} "$@"; exit 255 ;;\n'
        f'*"tail -c"*) {ssh} "$@" | head -c {size}; exit 255 ;;\n*) exec {ssh} "$@" ;;\nesac\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("SATCHEL_SSH", shlex.quote(str(script)))


def test_what_was_cut_off_goes_on(
    board: ShellDevice, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        cut_off(board, patch, tmp_path, 3 * MEGABYTE)
        with pytest.raises(DeviceError, match="not reached"):
            board.push(file)
    place = Path(board.folder) / file.name
    assert not place.exists() and place.with_name(place.name + ".part").stat().st_size > 0
    arrived = place.with_name(place.name + ".part").stat().st_size
    sent = Sent()
    board.push(file, sent)
    assert place.read_bytes() == file.read_bytes()
    assert sent.amounts[0] == min(arrived + MEGABYTE, file.stat().st_size)

    back = tmp_path / "back.bin"
    with monkeypatch.context() as patch:
        cut_off(board, patch, tmp_path, 2 * MEGABYTE)
        with pytest.raises(DeviceError, match="not reached"):
            board.pull(str(place), back)
    assert not back.exists()
    received = Sent()
    board.pull(str(place), back, received)
    assert back.read_bytes() == file.read_bytes()
    assert received.amounts[0] > 2 * MEGABYTE


def test_a_part_of_another_file_is_not_used(board: ShellDevice, file: Path, tmp_path: Path) -> None:
    part = Path(board.folder) / f"{file.name}.part"
    part.parent.mkdir()
    part.write_bytes(b"x" * MEGABYTE)
    place = board.push(file)
    assert Path(place).read_bytes() == file.read_bytes()
    back = tmp_path / "back.bin"
    (tmp_path / "back.bin.part").write_bytes(b"x" * MEGABYTE)
    board.pull(place, back)
    assert back.read_bytes() == file.read_bytes()


def test_too_little_room_is_told_before(board: ShellDevice, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    large.touch()
    free = os.statvfs(tmp_path)
    os.truncate(large, free.f_bavail * free.f_frsize + (1 << 30))  # a hole: it takes no room here
    with pytest.raises(DeviceError, match=r"free in .*large.bin has"):
        board.push(large)
    assert not (Path(board.folder) / "large.bin.part").exists()


def test_a_folder_that_cannot_be_written_is_told_before(board: ShellDevice, file: Path) -> None:
    board.folder = "/proc/satchel"
    with pytest.raises(DeviceError, match="cannot write into /proc/satchel"):
        board.push(file)


def test_a_machine_that_is_not_reached(ssh_server: tuple[int, str], file: Path) -> None:
    nobody = open_device("ssh:nobody@127.0.0.1:9")
    with pytest.raises(DeviceError, match=r"not reached.*ssh-copy-id"):
        nobody.push(file)


def test_commands_and_their_ends(board: ShellDevice) -> None:
    words = ["sh", "-c", 'printf "%s" "$1"; echo why >&2; exit 7', "sh", "a 'b' $c\n"]
    done = board.run(words)
    assert (done.status, done.output, done.errors) == (7, b"a 'b' $c\n", "why")
    with pytest.raises(DeviceError, match=r"not finished within 0\.2 s"):
        board.run(["sleep", "5"], timeout=0.2)


def test_what_it_is(board: ShellDevice) -> None:
    found = board.describe()
    assert found.machine == platform.machine() and found.system.startswith("Linux ")
    assert found.cores and found.cores >= 1 and found.soc
    assert found.memory_bytes and found.memory_bytes > MEGABYTE
    available = found.condition.memory_available_bytes
    assert available and available < found.memory_bytes


def test_a_program_is_measured_there(board: ShellDevice, program: Path) -> None:
    flags = ["--prompt-tokens", "40", "--new-tokens", "4", "--runs", "2", "--warmup", "1"]
    found = bench_on(board, program, flags)
    assert found["checksum"] == satchel.load(program).checksum
    assert (found["prompt_tokens"], found["runs"]) == (40, 2)
    assert found["decode_tok_s"] > 0 and found["ttft_kv_s"] > 0
    here = satchel.bench(program, prompt_tokens=40, new_tokens=4, runs=1)
    assert set(found) == {*here, "device"}
    assert found["bytes_per_token"] == here["bytes_per_token"]
    device = found["device"]
    assert device["machine"] == platform.machine() and device["name"] == "ssh:board"
    assert set(device["before"]) == set(device["after"]) >= {"temperature_c", "battery_percent"}


def test_a_runner_for_another_machine(
    board: ShellDevice, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "satchel-run"
    wrong.write_bytes(b"\x7fELF" + bytes(100))
    wrong.chmod(0o755)
    with pytest.raises(DeviceError, match=r"does not run on ssh:board"):
        bench_on(board, program, runner=wrong)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(DeviceError, match=r"no runner for it is here.*--preset runner"):
        bench_on(board, program)


def test_commands(
    board: ShellDevice, program: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = ["--folder", board.folder]
    sizes = ["--prompt-tokens", "20", "--new-tokens", "3", "--runs", "1"]
    assert main(["bench", str(program), "--device", "ssh:board", *folder, *sizes]) == 0
    out = capfd.readouterr().out
    assert "decode" in out and "ssh:board (" in out and "temperature" in out
    assert main(["device", "bench", "ssh:board", str(program), *folder, *sizes]) == 0
    assert "decode tok/s" in capfd.readouterr().out
    assert main(["device", "bench", "ssh:board", str(program), *folder, *sizes, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["failures"] == [] and document["results"][0]["device"]["name"] == "ssh:board"

    wanted = satchel.LLM(program).generate("Hello", max_new_tokens=5).finish()
    run = ["device", "run", "ssh:board", str(program), "Hello", "--json", *folder]
    assert main([*run, "--max-new-tokens", "5"]) == 0
    assert json.loads(capfd.readouterr().out)["tokens"] == wanted.tokens

    assert main(["device", "push", "ssh:board", str(program), *folder]) == 0
    place = capfd.readouterr().out.strip()
    assert main(["device", "pull", "ssh:board", place, str(tmp_path / "copy.satchel")]) == 0
    assert (tmp_path / "copy.satchel").read_bytes() == program.read_bytes()
    capfd.readouterr()
    assert main(["device", "list", "ssh:board", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["devices"][0]["machine"] == platform.machine()
    assert main(["bench", str(program), "--device", "ssh:board", "--profile"]) == 2
    assert main(["bench", str(program), "--device", "ssh:board", "--gpu-layers", "1"]) == 2
    assert main(["bench", str(program), "--device", "telnet:board"]) == 1


@pytest.mark.skipif(not list_devices()[0], reason="no Vulkan device")
def test_a_gpu_is_measured_there(
    board: ShellDevice, program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["device", "bench", "ssh:board", str(program), "--folder", board.folder, "--json"]
    words += ["--prompt-tokens", "8", "--new-tokens", "3", "--runs", "1", "--warmup", "0"]
    assert main([*words, "--target", "vulkan"]) == 0
    (result,) = json.loads(capfd.readouterr().out)["results"]
    assert result["kernels"].startswith("vulkan on ") and result["decode_tok_s"] > 0
    assert main([*words, "--target", "vulkan:99"]) == 1
    assert "there is no Vulkan device 99" in capfd.readouterr().err
