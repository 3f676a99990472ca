"""The same over a real adbd, in a network of its own: it would listen on all interfaces.

Debian's trixie has one: SATCHEL_ADBD=$(tools/fetch_adbd /tmp/adbd) pytest tests/devices/test_adb.py
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import satchel
from satchel.cli.main import main
from satchel.devices import ShellDevice, bench_on, list_devices, open_device
from satchel.errors import DeviceError

ADBD = os.environ.get("SATCHEL_ADBD") or shutil.which("adbd")
TOOLS = ("adb", "unshare", "nsenter", "ip")


@pytest.fixture(scope="module")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The adb command that reaches the server, which is `emulator-5554` to it."""
    if ADBD is None or not all(map(shutil.which, TOOLS)) or os.geteuid() != 0:
        pytest.skip("this needs root, adb and adbd: tools/fetch_adbd fetches one")
    home = tmp_path_factory.mktemp("adb")
    environment = {**os.environ, "HOME": str(home)}
    server = subprocess.Popen(
        ["unshare", "-n", "sh", "-c", f"ip link set lo up && exec {ADBD}"],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    command = f"nsenter -t {server.pid} -n env HOME={home} adb"
    try:
        time.sleep(0.5)
        for _ in range(20):
            listed = [*command.split(), "devices"]
            done = subprocess.run(listed, capture_output=True, text=True, check=False)
            if "emulator-5554\tdevice" in done.stdout:
                break
            time.sleep(0.3)
        else:
            pytest.skip(f"adbd does not start here: {done.stdout} {done.stderr}")
        yield command
    finally:
        subprocess.run([*command.split(), "kill-server"], check=False, timeout=30)
        server.terminate()
        server.wait(10)


@pytest.fixture
def phone(adb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShellDevice:
    monkeypatch.setenv("SATCHEL_ADB", adb)
    return open_device("adb:emulator-5554", str(tmp_path / "the phone's"))


def test_it_is_listed(phone: ShellDevice) -> None:
    found = next(d for d in list_devices() if d["name"] == phone.name)
    assert found["state"] == "device"
    assert phone.describe().machine == platform.machine()


def test_files_and_ends(phone: ShellDevice, tmp_path: Path) -> None:
    file = tmp_path / "a file.bin"
    file.write_bytes(os.urandom((5 << 20) + 3))
    part = Path(phone.folder) / f"{file.name}.part"
    part.parent.mkdir()
    part.write_bytes(file.read_bytes()[: 2 << 20])
    amounts: list[int] = []
    place = phone.push(file, lambda label, done, total: amounts.append(done))
    assert amounts[0] == 3 << 20  # it goes on behind what was there
    assert Path(place).read_bytes() == file.read_bytes()
    back = phone.pull(place, tmp_path / "back.bin")
    assert back.read_bytes() == file.read_bytes()
    done = phone.run(["sh", "-c", "echo why >&2; exit 7"])
    assert (done.status, done.errors) == (7, "why")
    phone.folder = "/proc/satchel"
    with pytest.raises(DeviceError, match="cannot write into /proc/satchel"):
        phone.push(file)


def test_a_phone_that_is_not_there(adb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SATCHEL_ADB", adb)
    with pytest.raises(DeviceError, match=r"not reached.*device list"):
        open_device("adb:nobody").describe()


def test_a_program_is_measured_there(
    phone: ShellDevice, program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = bench_on(phone, program, ["--prompt-tokens", "20", "--new-tokens", "3", "--runs", "1"])
    assert found["checksum"] == satchel.load(program).checksum
    assert found["device"]["name"] == "adb:emulator-5554"
    wanted = satchel.LLM(program).generate("Hello", max_new_tokens=5).finish().text
    run = ["device", "run", phone.name, str(program), "Hello", "--max-new-tokens", "5"]
    assert main([*run, "--folder", phone.folder]) == 0
    assert wanted in capfd.readouterr().out
