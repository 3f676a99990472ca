"""Whose turn it is on a machine, and how long it rests."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from satchel.sweeps.experiment import CoolDown
from satchel.sweeps.machines import cool_down, temperature, turn


def test_temperature_is_that_of_the_warmest_sensor(tmp_path: Path) -> None:
    assert temperature(tmp_path) is None
    for number, degrees in enumerate((41000, 57500, -3000)):
        zone = tmp_path / f"thermal_zone{number}"
        zone.mkdir()
        (zone / "temp").write_text(f"{degrees}\n")
    assert temperature(tmp_path) == 57.5


def test_it_rests_until_the_temperature_is_back() -> None:
    warmth, slept = iter([60.0, 50.0, 42.1, 41.9]), []
    rested = cool_down(CoolDown(1, temperature=2), 40.0, lambda: next(warmth), slept.append)
    assert rested == sum(slept) == 7 and slept[0] == 1
    slept.clear()
    assert cool_down(CoolDown(0, 2, at_most=5), 40.0, lambda: 90.0, slept.append) == 5
    assert cool_down(CoolDown(3), 40.0, lambda: 90.0, slept.append) == 3
    assert cool_down(CoolDown(0, 2), None, lambda: 90.0, slept.append) == 0  # no sensor


def test_measurements_are_alone_and_other_work_is_not() -> None:
    inside: list[str] = []

    def work(name: str, alone: bool) -> None:
        with turn(alone, "test"):
            inside.append(name)

    with turn(False, "test"), turn(False, "test"):  # exports go together
        waiting = threading.Thread(target=work, args=("measurement", True))
        waiting.start()
        time.sleep(0.1)
        assert inside == []
        with turn(True, "another machine"):
            pass
    waiting.join(5)
    assert inside == ["measurement"]


def test_a_turn_lasts_as_long_as_the_process_it_was_given_to() -> None:
    with turn(True, "orphan") as lock:
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(0.6)"], pass_fds=(lock,)
        )
        began = time.monotonic()
    with turn(True, "orphan"):  # the parent has let go of it, the child has not
        assert child.poll() is not None or time.monotonic() - began > 0.4
    child.wait()
