"""What phones and boards say of themselves, as their shells print it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from satchel.devices import list_devices, open_device
from satchel.devices.description import SCRIPT, parse_description
from satchel.devices.ssh import ssh_hosts
from satchel.errors import ConfigError

PHONE = """machine\taarch64
system\tLinux 5.15.148-android13
android\t14
model\tsamsung SM-S928B
model\t
soc\tSM8650
soc\tpineapple
cores\t8
governor\tschedutil
governor\twalt
MemTotal:\t11534336
MemAvailable:\t5242880
temperature\t41500 cpu-0-0
temperature\t-273000 absent
temperature\t0 off
temperature\t38 skin
degrees\t44.25 CPU1
battery\t87 Discharging
battery\t87
"""


def test_a_phone() -> None:
    found = parse_description("adb:R5CX", PHONE)
    assert (found.model, found.soc, found.cores) == ("samsung SM-S928B", "SM8650", 8)
    assert found.system == "Android 14, Linux 5.15.148-android13"
    assert found.governor == "schedutil, walt"
    assert found.memory_bytes == 11 << 30
    assert found.condition.temperatures_c == {"cpu-0-0": 41.5, "skin": 38.0, "CPU1": 44.25}
    assert found.condition.temperature_c == 44.25
    assert (found.condition.battery_percent, found.condition.battery_status) == (87, "Discharging")
    assert "condition" not in found.to_dict()


def test_a_device_that_says_little() -> None:
    found = parse_description("ssh:x", "machine\tarmv7l\nsystem\tLinux 4\nmodel\t \nnoise\n")
    assert found.model is None and found.soc is None and found.condition.temperature_c is None


def test_the_script_reads_a_boards_files(tmp_path: Path) -> None:
    """The same script with the files of a Raspberry Pi in place of the system's."""
    files = {
        "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
        "proc/device-tree/compatible": "raspberrypi,5-model-b\0brcm,bcm2712\0",
        "proc/cpuinfo": "processor\t: 0\nFeatures\t: asimddp\n",
        "proc/meminfo": "MemTotal:  8245104 kB\nMemAvailable:  7012345 kB\n",
        "sys/class/thermal/thermal_zone0/temp": "52300\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "ondemand\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "ondemand\n",
        "sys/class/power_supply/BAT0/type": "Battery\n",
        "sys/class/power_supply/BAT0/capacity": "55\n",
        "sys/class/power_supply/BAT0/status": "Not charging\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    script = SCRIPT.replace("/proc/", f"{tmp_path}/proc/").replace("/sys/", f"{tmp_path}/sys/")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    found = parse_description("ssh:pi", done.stdout)
    assert found.model == "Raspberry Pi 5 Model B Rev 1.0"
    assert found.soc == "brcm,bcm2712"
    assert found.governor == "ondemand"
    assert found.memory_bytes == 8245104 * 1024
    assert found.condition.temperatures_c == {"cpu-thermal": 52.3}
    assert found.condition.battery_status == "Not charging"


def test_names() -> None:
    assert open_device("ssh:pi@raspberrypi.local:2222").name == "ssh:pi@raspberrypi.local:2222"
    for wrong in ("usb:1", "ssh:", "ssh:-oProxyCommand=x", "ssh:host:x", "adb:-s", "phone"):
        with pytest.raises(ConfigError):
            open_device(wrong)


def test_hosts_of_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text("Host pi jetson\n  User a\nHost *.local !x\nhost = orin\n# Host no\n")
    names = ["ssh:pi", "ssh:jetson", "ssh:orin"]
    assert [host["name"] for host in ssh_hosts(config)] == names
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SATCHEL_ADB", "no-such-adb")
    assert [host["name"] for host in list_devices()] == names
