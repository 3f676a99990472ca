"""The load generator against a server of ours: its numbers are those that the server saw."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from satchel.benchmark.load import LoadOptions, measure_load, percentiles, prompt_of
from satchel.cli.main import main
from satchel.errors import RemoteError, SatchelError
from satchel.remote import Remote
from serve.conftest import Running
from serve.test_server import request

Capture = pytest.CaptureFixture[str]


def test_what_is_measured_is_what_happened(serve: object, server: Running) -> None:
    options = LoadOptions(clients=4, requests=3, new_tokens=10)
    before = counted(server)
    found = measure_load(Remote(server.url), options)
    after = counted(server)
    assert found["requests"] == 12 and found["errors"] == 0
    assert found["new_tokens"] == 120 == after["generated"] - before["generated"]
    assert found["prompt_tokens"] == after["prompt"] - before["prompt"]
    assert found["tok_s"] == pytest.approx(120 / found["seconds"])
    for name in ("ttft_s", "gap_s", "answer_s"):
        assert 0 <= found[name]["p50"] <= found[name]["p99"] <= found[name]["max"]
    assert found["ttft_s"]["max"] <= found["answer_s"]["max"] <= found["seconds"]


def counted(server: Running) -> dict[str, int]:
    text = request(server, "/metrics")[1]
    lines = [line for line in text.splitlines() if "_tokens_total{" in line]
    return {line.split("_")[1]: int(float(line.split()[-1])) for line in lines} or {
        "generated": 0,
        "prompt": 0,
    }


def test_shared_words_come_from_the_cache(server: Running) -> None:
    options = LoadOptions(clients=2, requests=3, new_tokens=2, shared_words=60, seed=5)
    found = measure_load(Remote(server.url), options)
    assert found["cached_tokens"] > found["prompt_tokens"] / 3
    prompts = {prompt_of(options, client, turn) for client in range(2) for turn in range(3)}
    assert len(prompts) == 6 and len({prompt[:300] for prompt in prompts}) == 1


def test_prompts_of_ones_own_are_asked_in_turn() -> None:
    options = LoadOptions(clients=2, requests=2, prompts=("a", "b", "c"))
    asked = [[prompt_of(options, client, turn) for turn in range(2)] for client in range(2)]
    assert asked == [["a", "c"], ["b", "a"]]


def test_percentiles() -> None:
    values = [number / 100 for number in range(1, 101)]
    assert percentiles(values) == {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    assert percentiles([])["p50"] is None


def test_the_command(server: Running, capsys: Capture, tmp_path: Path) -> None:
    plot = tmp_path / "load.svg"
    call = ["bench", "--url", f"{server.url}/v1", "--clients", "1,3", "--requests", "2"]
    call += ["--new-tokens", "5"]
    assert main([*call, "--plot", str(plot)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["clients", "tok/s"]
    assert [line.split()[0] for line in lines[2:4]] == ["1", "3"]
    assert len(list(ElementTree.parse(plot).iter("{http://www.w3.org/2000/svg}rect"))) == 6
    assert main([*call, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["clients"] for run in runs] == [1, 3]
    assert runs[1]["new_tokens"] == 30


def test_servers_that_are_not_there(server: Running, capsys: Capture) -> None:
    assert main(["bench"]) == 2
    assert "--url" in capsys.readouterr().err
    assert main(["bench", "--url", "http://127.0.0.1:9"]) == 1
    assert "satchel serve MODEL" in capsys.readouterr().err
    for wrong in ("ftp://x", "http://", "http://x:port"):
        with pytest.raises(RemoteError, match="not the address"):
            Remote(wrong)
    with pytest.raises(SatchelError, match="no model"):
        measure_load(Remote(server.url), LoadOptions(1, 1, model="gpt-5"))
