"""Phones and boards: files go there, ``satchel-run`` runs there, and results come back.

>>> from satchel.devices import open_device, bench_on
>>> device = open_device("ssh:pi@raspberrypi.local")           # doctest: +SKIP
>>> bench_on(device, "model.satchel")["decode_tok_s"]           # doctest: +SKIP
"""

from __future__ import annotations

from satchel.devices.adb import AdbDevice, adb_devices
from satchel.devices.bench import bench_on
from satchel.devices.description import Condition, Description
from satchel.devices.device import Completed, Device, ShellDevice
from satchel.devices.ssh import SshDevice, ssh_hosts
from satchel.errors import ConfigError

__all__ = [
    "Completed",
    "Condition",
    "Description",
    "Device",
    "ShellDevice",
    "bench_on",
    "list_devices",
    "open_device",
]


def open_device(name: str, folder: str | None = None) -> ShellDevice:
    """The device with this name: ``ssh:[USER@]HOST[:PORT]`` or ``adb:SERIAL``.

    ``folder`` is where files go on it. Nothing is asked of the device yet.

    >>> open_device("adb:emulator-5554").folder
    '/data/local/tmp/satchel'
    """
    kind, _, place = name.partition(":")
    if kind == "ssh" and place:
        return SshDevice(place, folder)
    if kind == "adb":
        return AdbDevice(place, folder)
    raise ConfigError(
        f"there is no device {name!r}",
        "Name one as ssh:HOST, or adb:SERIAL; satchel device list shows those that are known.",
    )


def list_devices() -> list[dict[str, str]]:
    """What is connected by adb, and the hosts that ``~/.ssh/config`` names."""
    return [*adb_devices(), *ssh_hosts()]
