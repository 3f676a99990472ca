"""The cache folder: where it is, and that writing to it is all or nothing."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path

import pytest

from satchel.files import PARTIAL_PREFIX
from satchel.sources import cache


def test_the_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert cache.checkpoints_folder() == tmp_path / "mine" / "checkpoints"
    assert cache.programs_folder() == tmp_path / "mine" / "programs"
    monkeypatch.delenv("SATCHEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    for platform, expected in (
        ("linux", tmp_path / "xdg" / "satchel"),
        ("darwin", tmp_path / "Library" / "Caches" / "satchel"),
        ("win32", tmp_path / "local" / "satchel"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert cache.cache_folder() == expected
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_folder() == tmp_path / ".cache" / "satchel"


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / f"{PARTIAL_PREFIX}file").touch()
    (tmp_path / f"{PARTIAL_PREFIX}folder" / "inner").mkdir(parents=True)
    (tmp_path / "kept").touch()
    cache.remove_partials(tmp_path)
    assert os.listdir(tmp_path) == ["kept"]


def _append_twice(folder: Path, name: str) -> None:
    with cache.locked(folder):
        for _ in range(2):
            with (folder / "log").open("a") as log:
                log.write(name)
            time.sleep(0.1)


def test_two_processes_take_turns(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_append_twice, args=(tmp_path, name)) for name in ("a", "b")
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert (tmp_path / "log").read_text() in ("aabb", "bbaa")
