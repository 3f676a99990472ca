"""A loaded program: what it reads and when, verifying it, and calling its methods."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from satchel.errors import ChecksumError, ExecutionError, ProgramFormatError, SatchelError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Graph
from satchel.graph.reference import ReferenceInterpreter
from satchel.runtime.program import Program, load
from support import program_file as fm
from support.arrays import normal
from support.compare import assert_close
from support.programs import stored_values, write_program
from support.small_program import (
    ENCODINGS,
    METADATA,
    TOKENIZER,
    WEIGHTS,
    graphs,
    small_inputs,
    write_small_program,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_small_program(tmp_path / "small.satchel")


@pytest.fixture
def program(path: Path) -> Program:
    return load(path)


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        byte = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 0x10]), at)


# --- loading and verifying ---


def test_a_good_program_verifies(path: Path) -> None:
    steps: list[tuple[int, int]] = []
    program = load(path, verify=True)
    program.verify(lambda done, total: steps.append((done, total)))
    assert program.size == path.stat().st_size
    assert steps and all(done <= total for done, total in steps)


def test_every_damaged_weight_is_found_and_named(path: Path, program: Program) -> None:
    places = []
    for w in program.weights:
        places += [(w, w["offset"]), (w, w["offset"] + w["codes_size"] - 1)]
        if w["scales_size"]:
            places.append((w, w["scales_offset"] + w["scales_size"] - 1))
    for weight, at in places:
        flip(path, at)
        damaged = load(path)  # loading does not read the weights
        with pytest.raises(ChecksumError, match=f"weight {weight['name']} are not") as caught:
            damaged.verify()
        assert caught.value.section == "weights" and caught.value.advice
        assert caught.value.offset == weight["offset"]
        with pytest.raises(ChecksumError):
            load(path, verify=True)
        flip(path, at)
    load(path, verify=True)


def test_padding_between_weights_is_verified(path: Path, program: Program) -> None:
    ends = [w["offset"] + w["codes_size"] for w in program.weights[:-1]]
    padded = [end for end in ends if end % 64]
    assert padded
    flip(path, padded[0])
    with pytest.raises(ChecksumError, match="padding") as caught:
        load(path).verify()
    assert caught.value.offset == padded[0]


@pytest.mark.parametrize("section", ["tokenizer", "metadata"])
def test_sections_are_checked_when_read(section: str, path: Path, program: Program) -> None:
    place = next(s for s in program.sections if s["name"] == section)
    flip(path, place["offset"] + 3)
    damaged = load(path)
    for read in (lambda: damaged.section(section), damaged.verify):
        with pytest.raises(ChecksumError) as caught:
            read()
        assert caught.value.section == section and caught.value.advice


def test_weights_that_are_not_those_of_the_table(path: Path) -> None:
    """The index was exchanged for another valid one: the table's checksum of weights tells."""
    data = bytearray(path.read_bytes())
    records = {s["name"]: i for i, s in enumerate(load(path).sections)}
    at = 64 + 64 * records["weights"] + 32
    data[at] ^= 1
    data[32:64] = hashlib.sha256(data[:32] + data[64 : 64 + 64 * 5]).digest()
    path.write_bytes(data)
    with pytest.raises(ChecksumError, match="the weights' checksum is wrong"):
        load(path).verify()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")
def test_loading_does_not_read_the_weights(tmp_path: Path) -> None:
    b = GraphBuilder("forward")
    b.output(b.linear(b.input("x", (1, 1024)), b.weight("w", (4096, 1024))), "y")
    path = write_program(tmp_path / "w.satchel", [b.finish()], {"w": normal(4096, 1024)})
    program = load(path)

    def resident() -> int:
        total, ours = 0, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if "-" in line.split(" ")[0]:
                ours = line.endswith(str(path))
            elif ours and line.startswith("Rss:"):
                total += int(line.split()[1]) << 10
        return total

    assert resident() < 1 << 20
    program.method("forward")(np.ones((1, 1024), np.float32))
    assert resident() > 16 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")
def test_a_program_that_is_called_often_moves_its_weights_to_huge_pages(tmp_path: Path) -> None:
    b = GraphBuilder("forward")
    b.output(b.linear(b.input("x", (1, 1024)), b.weight("w", (4096, 1024))), "y")
    path = write_program(tmp_path / "w.satchel", [b.finish()], {"w": normal(4096, 1024)})
    script = """
import sys, time
import numpy as np
from satchel.runtime.program import load

program = load(sys.argv[1])
method = program.method("forward")
x = np.random.default_rng(0).standard_normal((1, 1024)).astype(np.float32)

def mapped():
    total, ours = 0, False
    for line in open("/proc/self/smaps"):
        if "-" in line.split(" ")[0]:
            ours = line.rstrip().endswith(sys.argv[1])
        elif ours and line.startswith("Size:"):
            total += int(line.split()[1]) << 10
    return total

before, first = mapped(), method(x)
end = time.monotonic() + float(sys.argv[2])
while mapped() > before - (12 << 20) and time.monotonic() < end:
    assert np.array_equal(method(x), first)
assert np.array_equal(method(x), first)
program.verify()
print(before - mapped())
"""

    def moved(setting: str, seconds: int) -> int:
        environment = os.environ | {"SATCHEL_HUGE_PAGES": setting}
        command = [sys.executable, "-c", script, str(path), str(seconds)]
        return int(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)

    assert moved("0", 1) == 0
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text():
        assert moved("1", 1) == 0
    else:
        assert moved("1", 30) >= 12 << 20


def test_the_checksum_stands_for_the_whole_file(path: Path, program: Program) -> None:
    again = write_small_program(path.parent / "again.satchel")
    assert load(again).checksum == program.checksum
    joined = b"".join(s["digest"] for s in program.sections)
    assert program.checksum == hashlib.sha256(joined).hexdigest()
    changed = _with_metadata(path.parent, b'{"name": "other"}')
    assert load(changed).checksum != program.checksum


# --- what it holds ---


def _with_metadata(folder: Path, document: bytes) -> Path:
    path = folder / "metadata.satchel"
    path.write_bytes(fm.write(fm.Model(metadata=document)))
    return path


@pytest.mark.parametrize(
    "document", [b"", b"nonsense", b"[1]", b'{"a": ', b"\xc3", b"[" * 200_000, b"1" * 10_000]
)
def test_metadata_that_is_no_json_object(document: bytes, tmp_path: Path) -> None:
    program = load(_with_metadata(tmp_path, document))
    with pytest.raises(ProgramFormatError, match="the metadata is not") as caught:
        _ = program.metadata
    assert caught.value.section == "metadata" and caught.value.offset and caught.value.advice


def test_metadata_and_sections(program: Program) -> None:
    assert program.metadata == METADATA
    assert program.section("tokenizer") == TOKENIZER
    with pytest.raises(ExecutionError, match="no section 'tokeniser'"):
        program.section("tokeniser")


def test_weights_as_numbers(program: Program) -> None:
    np.testing.assert_array_equal(program.weight("norm"), WEIGHTS["norm"])
    np.testing.assert_array_equal(program.weight("gate"), WEIGHTS["gate"])
    half = WEIGHTS["out"].astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(program.weight("out"), half)
    for name, steps in (("embed", 127), ("q", 7)):
        step = np.abs(WEIGHTS[name]).max() / steps
        assert np.abs(program.weight(name) - WEIGHTS[name]).max() <= step
    counts = next(w["name"] for w in program.weights if w["encoding"] == "i32")
    assert program.weight(counts).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ExecutionError, match="no weight 'nothing'"):
        program.weight("nothing")


# --- calling methods ---


def test_methods_by_position_and_by_name(program: Program) -> None:
    inputs = small_inputs(3)
    method = program.method("forward")
    assert method.inputs == ["tokens", "position", "rows", "sequence"]
    by_name = method(**inputs)
    by_position = method(*inputs.values())
    mixed = method(inputs["tokens"], rows=inputs["rows"], position=inputs["position"])
    assert isinstance(by_name, dict) and list(by_name) == ["logits", "mean", "picture", "count"]
    for other in (by_position, mixed):
        assert isinstance(other, dict)
        for name, array in by_name.items():
            np.testing.assert_array_equal(other[name], array)
    outputs = method.run(**inputs)
    np.testing.assert_array_equal(outputs[0], by_name["logits"])


def test_inputs_that_need_converting(program: Program) -> None:
    method = program.method("forward")
    want = method.run(**small_inputs(3))[0]
    wide = np.arange(12, dtype=np.int64)[1:7:2] // 2 + 1  # strided, 64 bits: 1, 2, 3
    np.testing.assert_array_equal(method.run(wide, [0], [0])[0], want)
    packed = np.frombuffer(b"\0" + np.array([1, 2, 3], "<i4").tobytes(), "<i4", 3, 1)
    assert not packed.flags.aligned
    np.testing.assert_array_equal(method.run(packed, [0], [0])[0], want)
    swapped = np.array([1, 2, 3], ">i4")
    np.testing.assert_array_equal(method.run(swapped, [0], [0])[0], want)


WRONG_CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "missing": (([1], [0]), {}, "needs the input 'rows'"),
    "too many": (([1], [0], [0], [0], [0]), {}, "takes the inputs tokens, position, rows"),
    "unknown": (([1], [0]), {"row": [0]}, "takes the inputs"),
    "twice": (([1], [0], [0]), {"rows": [0]}, "takes the inputs"),
    "dtype": (([1.5], [0], [0]), {}, "must be int32, not float64"),
    "text": ((["a"], [0], [0]), {}, "must be int32"),
    "rank": (([[1]], [0], [0]), {}, "tokens of forward does not fit: it is i32\\[1, 1\\]"),
    "fixed size": (([1], [0, 0], [0]), {}, "position of forward does not fit"),
    "symbol too large": (([1] * 6, [0], [0]), {}, "tokens of forward does not fit"),
    "symbol of 0": ((np.zeros(0, np.int32), [0], [0]), {}, "tokens of forward does not fit"),
    "token too large": (([20], [0], [0]), {}, "no token 20; the vocabulary has 20"),
    "token below 0": (([-1], [0], [0]), {}, "no token -1"),
    "position below 0": (([1], [-1], [0]), {}, "tokens -1 to -1 do not fit"),
    "position at the end": (([1, 1], [11], [0]), {}, "do not fit in a context of 12"),
    "position far away": (([1], [2**31 - 1], [0]), {}, "2147483647 do not fit"),
    "row too large": (([1], [0], [1]), {}, "no row 1 among 1"),
    "row below 0": (([1], [0], [-1]), {}, "no row -1"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_calls(name: str, program: Program) -> None:
    arrays, named, message = WRONG_CALLS[name]
    method = program.method("forward")
    want = method.run(**small_inputs(2))[0]
    with pytest.raises(ExecutionError, match=message):
        method(*arrays, **named)
    np.testing.assert_array_equal(method.run(**small_inputs(2))[0], want)


def test_a_method_that_is_not_there(program: Program) -> None:
    assert program.has_method("one") and not program.has_method("two")
    with pytest.raises(ExecutionError, match=r"no method 'two'.*It has forward, one"):
        program.method("two")


@pytest.mark.parametrize("threads", [-1, 1025, 1 << 30])
def test_absurd_numbers_of_threads(threads: int, program: Program) -> None:
    with pytest.raises(ExecutionError, match="threads"):
        program.instance(threads)


def test_a_symbol_takes_every_size(program: Program) -> None:
    """Prefix by prefix, in any order of sizes: the last token's logits are those of one call."""
    method = program.instance(1).method("forward")
    tokens = np.array([3, 1, 4, 1, 5], np.int32)
    want = method.run(tokens, [0], [4])[0]
    for first in (1, 4, 2, 3):
        method.run(tokens[:first], [0], [0])
        got = method.run(tokens[first:], [first], [4 - first])[0]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_the_last_position_of_the_context(program: Program) -> None:
    method = program.method("forward")
    assert np.isfinite(method.run([1, 2], [10], [1])[0]).all()


def test_methods_of_an_instance_share_its_states(program: Program) -> None:
    instance = program.instance(1)
    forward, one = instance.method("forward"), instance.method("one")
    tokens = np.array([3, 1, 4], np.int32)
    want = forward.run(tokens, [0], [2])[0]
    for i, token in enumerate(tokens):
        got = one.run([token], [i], [0])[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_instances_have_states_of_their_own(program: Program) -> None:
    first, second = (program.instance(1).method("one") for _ in range(2))
    first.run([7], [0], [0])
    second.run([9], [0], [0])
    after_seven = first.run([3], [1], [0])[0]
    after_nine = second.run([3], [1], [0])[0]
    assert not np.array_equal(after_seven, after_nine)
    fresh = program.instance(1).method("one")
    fresh.run([7], [0], [0])
    np.testing.assert_array_equal(fresh.run([3], [1], [0])[0], after_seven)


def test_an_instance_outlives_its_program(path: Path) -> None:
    method = load(path).instance(1).method("forward")
    assert method.run(**small_inputs(2))[0].shape == (1, 20)


@pytest.mark.parametrize("shared", [True, False])
def test_calls_from_two_threads_do_not_disturb_each_other(shared: bool, program: Program) -> None:
    common = program.instance(2)

    def answers(offset: int) -> list[Any]:
        method = (common if shared else program.instance(2)).method("forward")
        return [method.run([(offset + i) % 20] * (1 + i % 5), [0], [0])[0] for i in range(60)]

    want = [answers(0), answers(7)]
    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(answers, (0, 7)))
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_one_array_may_be_several_inputs(program: Program) -> None:
    method = program.method("forward")
    zero = np.zeros(1, np.int32)
    want = method.run([0], [0], [0])[0]
    np.testing.assert_array_equal(method.run(zero, zero, zero)[0], want)
    assert zero.tolist() == [0]


def test_outputs_are_copies(program: Program) -> None:
    method = program.method("forward")
    first = method.run(**small_inputs(3))[0]
    kept = first.copy()
    method.run([9, 9, 9], [0], [0])
    np.testing.assert_array_equal(first, kept)
    first[:] = 0
    np.testing.assert_array_equal(method.run(**small_inputs(3))[0], kept)


def test_one_output_is_an_array_and_not_a_dictionary(tmp_path: Path) -> None:
    b = GraphBuilder("forward")
    b.output(b.neg(b.input("x", ())), "y")
    made: list[Graph] = [b.finish()]
    result = load(write_program(tmp_path / "a.satchel", made)).method()(3.0)
    assert isinstance(result, np.ndarray) and result.shape == () and result == -3.0


def test_the_reference_interpreter_agrees(program: Program) -> None:
    reference = ReferenceInterpreter(
        lambda w: stored_values(WEIGHTS[w.name], ENCODINGS[w.name]).astype(np.float32)
    )
    forward, one, _tree = graphs()
    for graph, inputs in ((forward, small_inputs(3, 0, 2)), (one, small_inputs(1, 3))):
        want = reference.run(graph, inputs)
        got = program.method(graph.name)(**inputs)
        assert isinstance(got, dict)
        for name, array in want.items():
            assert_close(got[name], array, 1e-3, name)


def test_what_it_runs_on_can_be_chosen(tmp_path: Path) -> None:
    b = GraphBuilder("forward")
    b.output(b.relu(b.input("x", (3,))), "y")
    path = write_program(tmp_path / "p.satchel", [b.finish()], {})
    assert load(path, target="cpu").target == "cpu"
    for target in ("qnn:SM8750", "nowhere"):
        with pytest.raises(SatchelError, match=target):
            load(path, target=target)
