"""A real ssh server on this machine's own address, with keys of its own, as a device."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import satchel
from satchel.devices import ShellDevice, open_device
from support.tiny_llm import write_tiny_llm

_SERVER = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(100):
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.skip(f"sshd does not start here: {log.read_text()[-300:]}")


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """Its port, and the ssh command that may log in."""
    if _SERVER is None or shutil.which("ssh") is None or sys.platform != "linux":
        pytest.skip("there is no sshd: apt-get install openssh-server")
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # what Debian's service does, too
    port = _free_port()
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "user.pub",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
    }
    (folder / "sshd_config").write_text("".join(f"{k} {v}\n" for k, v in settings.items()))
    known = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {known}")
    (folder / "config").write_text(
        f"Host board\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"Host *\n  IdentityFile {folder / 'user'}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder / 'known_hosts'}\n  StrictHostKeyChecking yes\n"
    )
    log = folder / "log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [_SERVER, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=output
        )
    try:
        _wait_for(port, process, log)
        yield port, f"ssh -F {folder / 'config'}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def board(
    ssh_server: tuple[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ShellDevice:
    """The machine itself as a device, with a folder whose name needs quotes."""
    monkeypatch.setenv("SATCHEL_SSH", ssh_server[1])
    monkeypatch.delenv("SATCHEL_RUNNER", raising=False)
    return open_device("ssh:board", str(tmp_path / "on the board's disk"))


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("devices")
    checkpoint = write_tiny_llm(folder / "tiny")
    return satchel.export(
        checkpoint, folder / "tiny.satchel", group_size=32, context=96, prefill_ar_len=32
    )
