"""Devices that are reached by ssh, with the user's own keys and ~/.ssh/config."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from satchel.devices.device import ShellDevice
from satchel.errors import ConfigError

_FOLDER = ".cache/satchel-device"  # under the home folder there, where a login begins
_NOT_REACHED = 255  # ssh's own status; all others are the command's


class SshDevice(ShellDevice):
    """A machine with an ssh server: ``[USER@]HOST[:PORT]``, or a name of ``~/.ssh/config``.

    ``SATCHEL_SSH`` has another command to use, such as ``ssh -F FILE``.
    """

    def __init__(self, place: str, folder: str | None = None) -> None:
        host, colon, port = place.rpartition(":")
        if not colon:
            host, port = place, ""
        # A host that begins with a dash would be an option of ssh.
        if not host or host.startswith("-") or (colon and not port.isdigit()):
            raise ConfigError(f"ssh:{place} is no device", "Name it as ssh:[USER@]HOST[:PORT].")
        super().__init__(f"ssh:{place}", folder or _FOLDER)
        self._host = host
        self._port = ["-p", port] if port else []

    def command(self, script: str) -> list[str]:
        ssh = shlex.split(os.environ.get("SATCHEL_SSH", "ssh"))
        # Nobody is there to type a password; a device that went away is noticed within a minute.
        options = ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=15"]
        given = [part for option in options for part in ("-o", option)]
        return [*ssh, *given, *self._port, "--", self._host, script]

    def lost(self, status: int, errors: str) -> str | None:
        if status != _NOT_REACHED:
            return None
        return f"Does `ssh {self._host} true` work without a password? ssh-copy-id gives it a key."


def ssh_hosts(config: Path | None = None) -> list[dict[str, str]]:
    """The hosts that a configuration of ssh names, without those that are patterns."""
    path = config or Path.home() / ".ssh" / "config"
    if not path.is_file():
        return []
    hosts = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        named = re.match(r"\s*Host[\s=]+(.*)", line, re.I)
        for host in named[1].split() if named else ():
            if not re.search(r"[*?!]", host):
                hosts.append({"name": f"ssh:{host}", "state": "in ~/.ssh/config", "model": ""})
    return hosts
