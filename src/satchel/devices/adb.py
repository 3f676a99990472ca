"""Android devices, reached by adb."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from shutil import which

from satchel.devices.device import ShellDevice
from satchel.errors import ConfigError

_FOLDER = "/data/local/tmp/satchel"  # where Android's shell may write and run programs
# What adb says itself; a command on the device can end with the same status 1.
_NOT_REACHED = re.compile(r"^(adb: |error: |\* )", re.M)


class AdbDevice(ShellDevice):
    """An Android device by its serial number; ``adb:`` alone is the only one that is connected.

    ``SATCHEL_ADB`` has another command to use, such as ``adb -P 5038``.
    """

    def __init__(self, serial: str, folder: str | None = None) -> None:
        if serial.startswith("-"):
            raise ConfigError(f"adb:{serial} is no device", "Name it as adb:SERIAL.")
        super().__init__(f"adb:{serial}", folder or _FOLDER)
        self._serial = ["-s", serial] if serial else []

    def command(self, script: str) -> list[str]:
        # -T: without a terminal, so that bytes stay as they are and the exit status comes back.
        return [*_adb(), *self._serial, "shell", "-T", script]

    def lost(self, status: int, errors: str) -> str | None:
        if status == 0 or not _NOT_REACHED.search(errors):
            return None
        return "satchel device list shows what is connected; on the phone, allow USB debugging."


def adb_devices() -> list[dict[str, str]]:
    """What ``adb devices`` lists; nothing where there is no adb."""
    if which(_adb()[0]) is None:
        return []
    done = subprocess.run(
        [*_adb(), "devices", "-l"], capture_output=True, text=True, check=False, timeout=30
    )
    devices = []
    for line in done.stdout.splitlines():
        found = re.match(r"(\S+)\s+(device|offline|unauthorized|no permissions)\b(.*)", line)
        if found:
            model = re.search(r"model:(\S+)", found[3])
            named = {"name": f"adb:{found[1]}", "state": found[2]}
            devices.append({**named, "model": model[1].replace("_", " ") if model else ""})
    return devices


def _adb() -> list[str]:
    return shlex.split(os.environ.get("SATCHEL_ADB", "adb"))
