"""Attacks on the methods section, with right checksums: each lie is found and named."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacks import good_bytes, good_model, not_by_checksum, refused

from satchel.errors import ExecutionError
from satchel.runtime.program import Program
from support import program_file as fm
from support.program_file import ABSENT, ARENA, INPUT, STATE, WEIGHT, Method, Model, Node, Value

Change = Callable[[Model, Method], object]


def _set(thing: Any, **fields: Any) -> None:
    for name, value in fields.items():
        assert hasattr(thing, name)
        setattr(thing, name, value)


def _id(m: Method, name: str) -> int:
    return next(i for i, v in enumerate(m.values) if v.name.split(".")[0] == name)


def _rename_attribute(node: Node, name: str) -> None:
    node.attributes[0] = (name, *node.attributes[0][1:])


def _swap(m: Method, first: int, second: int) -> None:
    m.nodes[first], m.nodes[second] = m.nodes[second], m.nodes[first]


def _overwrite_later(m: Method) -> None:
    """A node in the middle writes into a value that is read after it."""
    embedded = m.values[m.node("embedding").outputs[0]]
    assert m.nodes[2].op == "rope_table"
    m.values[m.nodes[2].outputs[0]].location = embedded.location


def _alias(m: Method, dtype: int, shape: list[int]) -> None:
    """An output that claims the memory of another value under another type."""
    logits = m.value("logits")
    m.values.append(Value("alias", ARENA, logits.location, dtype, shape))
    m.outputs.append(len(m.values) - 1)


def _resize_state(f: Model, number: int, shape: list[int], dtype: int = 5) -> None:
    """A state, and every value that is it, of another type."""
    values = [v for m in f.methods for v in m.values if v.storage == STATE]
    for thing in [f.states[number], *(v for v in values if v.location == number)]:
        _set(thing, shape=shape, dtype=dtype)


def _many_symbols(m: Method) -> None:
    m.symbols += [(f"T{i}", 2) for i in range(1024)]


def _computed(name: str, maximum: int = 1 << 20) -> Change:
    """A size that is computed from another one."""
    return lambda f, m: m.symbols.append((name, maximum))


# What is changed, and what the loader says about it.
LIES: dict[str, tuple[Change, str]] = {
    # names
    "method repeated": (lambda f, m: _set(f.methods[1], name=m.name), "method forward is repeated"),
    "method without a name": (lambda f, m: _set(m, name=""), "has no name"),
    "state repeated": (lambda f, m: _set(f.states[1], name="keys"), "state keys is repeated"),
    "symbol repeated": (lambda f, m: m.symbols.append(("S", 2)), "symbol S is repeated"),
    "inputs of one name": (lambda f, m: _set(m.value("position"), name="rows"), "named rows"),
    "outputs of one name": (lambda f, m: _set(m.value("mean"), name="logits"), "named logits"),
    "one output twice": (lambda f, m: m.outputs.append(m.outputs[0]), "named logits"),
    "name not UTF-8": (lambda f, m: _set(m, name=b"\xff\xfe"), "not UTF-8"),
    "name half a character": (lambda f, m: _set(m, name=b"ab\xe2\x82"), "not UTF-8"),
    "name overlong": (lambda f, m: _set(m.values[0], name=b"\xc0\xaf"), "not UTF-8"),
    "name a surrogate": (lambda f, m: _set(m.values[0], name=b"\xed\xa0\x80"), "not UTF-8"),
    "name that moves the cursor": (lambda f, m: _set(m, name="\x1b[2J"), "control characters"),
    # sizes
    "arena": (lambda f, m: _set(m, arena=1 << 47), "absurdly large"),
    "bound of 0": (lambda f, m: _set(m, symbols=[("S", 0)]), "bad bound"),
    "bound below 0": (lambda f, m: _set(m, symbols=[("S", -5)]), "bad bound"),
    "bound too large": (lambda f, m: _set(m, symbols=[("S", 1 << 41)]), "bad bound"),
    **{
        f"size computed by {text!r}": (_computed(text), "cannot be computed")
        for text in ("T +1", "S ", "S +", "S +0", "S 2", "S +1/2", "S +-1", "S +1 ", "S /0", "S x3")
    },
    "size computed above its maximum": (_computed("S +1", 3), "above its maximum"),
    "too many symbols": (lambda f, m: _many_symbols(m), "too many symbols"),
    "dimension of 0": (lambda f, m: _set(m.values[0], shape=[0]), "bad dimension 0"),
    "dimension too large": (lambda f, m: _set(m.values[0], shape=[1 << 41]), "bad dimension"),
    "symbol not there": (lambda f, m: _set(m.values[0], shape=[-2]), "bad dimension -2"),
    "smallest integer": (lambda f, m: _set(m.values[0], shape=[-(1 << 63)]), "bad dimension"),
    "product overflows": (lambda f, m: _set(m.values[0], shape=[1 << 40] * 8), "absurdly large"),
    "product wraps to 0": (lambda f, m: _set(m.values[0], shape=[1 << 32] * 2), "absurdly large"),
    "rank": (lambda f, m: _set(m.values[0], shape=[1] * 9), "rank of 9"),
    "dtype": (lambda f, m: _set(m.values[0], dtype=7), "unknown dtype 7"),
    "symbol in a state": (lambda f, m: _set(f.states[0], shape=[-1]), "bad dimension -1"),
    "state too large": (lambda f, m: _set(f.states[0], shape=[1 << 40, 1 << 20]), "absurdly large"),
    # places
    "storage": (lambda f, m: _set(m.values[0], storage=4), "unknown storage 4"),
    "outside the arena": (lambda f, m: _set(m.value("logits"), location=m.arena), "outside"),
    "place overflows": (lambda f, m: _set(m.value("logits"), location=-64 % (1 << 64)), "outside"),
    "misaligned": (lambda f, m: _set(m.value("logits"), location=4), "outside the arena"),
    "arena too small": (lambda f, m: _set(m, arena=64), "outside the arena"),
    "weight not there": (
        lambda f, m: _set(m.value("norm"), location=99),
        "weight that is not there",
    ),
    "weight of another shape": (
        lambda f, m: _set(m.value("norm"), location=0),
        "not of its weight's type",
    ),
    "weight of another dtype": (
        lambda f, m: _set(m.value("norm"), dtype=2),
        "not of its weight's type",
    ),
    "state not there": (lambda f, m: _set(m.value("keys"), location=4), "state that is not there"),
    "state of another shape": (lambda f, m: _set(f.states[0], shape=[2, 2, 2]), "its state's type"),
    "state of another dtype": (lambda f, m: _set(f.states[0], dtype=0), "its state's type"),
    # inputs and outputs
    "input left out": (lambda f, m: m.inputs.pop(), "do not match its values"),
    "input that is none": (
        lambda f, m: m.inputs.__setitem__(0, _id(m, "logits")),
        "not an input of forward",
    ),
    "inputs swapped": (lambda f, m: m.inputs.reverse(), "not an input of forward"),
    "input number": (lambda f, m: _set(m.values[0], location=7), "not an input of forward"),
    "input undeclared": (
        lambda f, m: _set(m.value("logits"), storage=INPUT),
        "do not match its values",
    ),
    "input id": (lambda f, m: m.inputs.__setitem__(0, 10_000), "no value 10000"),
    "output id": (lambda f, m: m.outputs.__setitem__(0, ABSENT), "no value 4294967295"),
    "output is an input": (lambda f, m: m.outputs.__setitem__(0, 0), "is never made"),
    "output is a weight": (lambda f, m: m.outputs.__setitem__(0, _id(m, "norm")), "never made"),
    "output is a state": (lambda f, m: m.outputs.__setitem__(0, _id(m, "keys")), "never made"),
    "output never made": (lambda f, m: m.nodes.pop(), "is never made"),
    "output under another dtype": (lambda f, m: _alias(m, 2, [1, 20]), "alias of forward"),
    "output of a symbolic size": (lambda f, m: _alias(m, 0, [-1, 4]), "alias of forward"),
    # nodes
    "unknown op": (lambda f, m: _set(m.nodes[0], op="frobnicate"), "op frobnicate is not known"),
    "too few inputs": (lambda f, m: m.nodes[0].inputs.pop(), "wrong number of inputs"),
    "too many inputs": (lambda f, m: m.nodes[0].inputs.append(0), "wrong number of inputs"),
    "no inputs": (lambda f, m: m.nodes[0].inputs.clear(), "wrong number of inputs"),
    "required input absent": (
        lambda f, m: m.nodes[0].inputs.__setitem__(0, ABSENT),
        "lacks a required input",
    ),
    "input value not there": (
        lambda f, m: m.nodes[0].inputs.__setitem__(0, len(m.values)),
        "value that is not there",
    ),
    "two outputs": (lambda f, m: m.nodes[0].outputs.append(3), "must have one output"),
    "no output": (lambda f, m: m.nodes[0].outputs.clear(), "must have one output"),
    "output value not there": (lambda f, m: _set(m.nodes[0], outputs=[9999]), "no value 9999"),
    "read before written": (lambda f, m: _swap(m, 0, 1), "before it is made"),
    "read after overwritten": (lambda f, m: _overwrite_later(m), "before it is made"),
    "reads itself": (
        lambda f, m: m.nodes[1].inputs.__setitem__(0, m.nodes[1].outputs[0]),
        "before it is made",
    ),
    "overwrites its input": (
        lambda f, m: _set(
            m.values[m.nodes[1].outputs[0]],
            location=m.values[m.nodes[0].outputs[0]].location,
        ),
        "overwrite its own input",
    ),
    "writes an input": (lambda f, m: _set(m.nodes[2], outputs=[0]), "only write to the arena"),
    "writes a weight": (
        lambda f, m: _set(m.nodes[1], outputs=[_id(m, "norm")]),
        "only write to the arena",
    ),
    "writes a state": (
        lambda f, m: _set(m.nodes[1], outputs=[_id(m, "keys")]),
        "only write to the arena",
    ),
    "writes another state": (
        lambda f, m: m.node("cache_write").inputs.__setitem__(0, _id(m, "values")),
        "must write the state it reads",
    ),
    "cache in the arena": (
        lambda f, m: _set(m.node("cache_write"), outputs=[_id(m, "logits")]),
        "must write the state it reads",
    ),
    # attributes
    "unknown attribute": (
        lambda f, m: _rename_attribute(m.node("rms_norm"), "epsilon"),
        "unknown attribute epsilon",
    ),
    "attribute of an op without any": (
        lambda f, m: m.node("add").attributes.append(("axis", 0, 1)),
        "unknown attribute axis",
    ),
    "attribute repeated": (
        lambda f, m: m.node("rms_norm").attributes.append(("eps", 1, 1.0)),
        "repeats an attribute",
    ),
    "attribute missing": (lambda f, m: m.node("rms_norm").attributes.clear(), "eps is missing"),
    "attribute of no kind": (
        lambda f, m: _set(m.node("rms_norm"), attributes=[("eps", 4, 0)]),
        "unknown kind of attribute",
    ),
    "number as text": (
        lambda f, m: _set(m.node("rms_norm"), attributes=[("eps", 2, "small")]),
        "eps is of the wrong kind",
    ),
    "integer as number": (
        lambda f, m: _set(m.node("softmax"), attributes=[("axis", 1, 0.5)]),
        "axis is of the wrong kind",
    ),
    "list as integer": (
        lambda f, m: _set(m.node("transpose"), attributes=[("perm", 0, 1)]),
        "perm is of the wrong kind",
    ),
    "text as list": (
        lambda f, m: _set(m.node("linear"), attributes=[("activations", 3, [1])]),
        "activations is of the wrong kind",
    ),
    "NaN": (
        lambda f, m: _set(m.node("rms_norm"), attributes=[("eps", 1, float("nan"))]),
        "not finite",
    ),
    "infinity": (
        lambda f, m: _set(m.node("attention"), attributes=[("scale", 1, float("inf"))]),
        "not finite",
    ),
    "eps below 0": (
        lambda f, m: _set(m.node("rms_norm"), attributes=[("eps", 1, -1.0)]),
        "eps must not be negative",
    ),
    "window below 0": (
        lambda f, m: m.node("attention").attributes.append(("window", 0, -1)),
        "must not be negative",
    ),
    "axis": (lambda f, m: _set(m.node("softmax"), attributes=[("axis", 0, 2)]), "no such axis"),
    "axes repeated": (
        lambda f, m: _set(m.node("reduce_mean"), attributes=[("axes", 3, [1, 1])]),
        "bad axes",
    ),
    "axes out of range": (
        lambda f, m: _set(m.node("reduce_mean"), attributes=[("axes", 3, [1 << 40])]),
        "bad axes",
    ),
    "permutation": (
        lambda f, m: _set(m.node("transpose"), attributes=[("perm", 3, [0, 0])]),
        "does not fit",
    ),
    "slice outside": (
        lambda f, m: _set(
            m.node("slice"),
            attributes=[("axis", 0, 1), ("start", 0, 30), ("stop", 0, 38)],
        ),
        "range is outside",
    ),
    "slice of the largest numbers": (
        lambda f, m: _set(
            m.node("slice"),
            attributes=[("axis", 0, 1), ("start", 0, -(1 << 63)), ("stop", 0, (1 << 63) - 1)],
        ),
        "range is outside",
    ),
    "activations": (
        lambda f, m: _set(m.node("linear"), attributes=[("activations", 2, "int4")]),
        "no such activations",
    ),
    # encodings and shapes
    "packed matrix added": (
        lambda f, m: m.node("add").inputs.__setitem__(1, _id(m, "gate")),
        "packed as a matrix",
    ),
    "half vector in a norm": (
        lambda f, m: m.node("rms_norm").inputs.__setitem__(1, _id(m, "half")),
        "must be f32",
    ),
    "plain vector as a table": (
        lambda f, m: m.node("embedding").inputs.__setitem__(1, _id(m, "norm")),
        "must be a packed matrix",
    ),
    "activation as a weight": (
        lambda f, m: m.node("linear").inputs.__setitem__(1, m.node("linear").inputs[0]),
        "must be a packed matrix",
    ),
    "quantised weight, float activations": (
        lambda f, m: _set(m.node("linear"), attributes=[]),
        "do not fit the weight's encoding",
    ),
    "float weight, 16-bit activations": (
        lambda f, m: _set(m.node("linear", 3), attributes=[("activations", 2, "int16")]),
        "do not fit the weight's encoding",
    ),
    "activations of 4 bits": (
        lambda f, m: _set(m.node("linear"), attributes=[("activations", 2, "int4")]),
        "no such activations",
    ),
    "bytes without scale and zero": (
        lambda f, m: _resize_state(f, 2, [2, 12, 8]),
        "x must be [S, H, D]",
    ),
    "keys and values of two types": (
        lambda f, m: m.node("attention", 1).inputs.__setitem__(2, _id(m, "values")),
        "must be caches of one type",
    ),
    "bytes as integers": (
        lambda f, m: _resize_state(f, 2, [2, 12, 16], dtype=4),
        "must be f32, f16 or u8",
    ),
    "weight as a cache": (
        lambda f, m: m.node("attention").inputs.__setitem__(1, _id(m, "gate")),
        "must be caches",
    ),
    "start of another dtype": (
        lambda f, m: m.node("cache_write").inputs.__setitem__(2, _id(m, "norm")),
        "must be i32",
    ),
    "linear of other sizes": (
        lambda f, m: m.node("linear").inputs.__setitem__(1, _id(m, "k")),
        "sizes do not fit",
    ),
    "fits one size of the symbol only": (
        lambda f, m: _set(m.values[m.nodes[2].outputs[0]], shape=[5, 8]),
        "sizes do not fit",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_in_methods(name: str, tmp_path: Path) -> None:
    change, message = LIES[name]
    model = good_model()
    change(model, model.methods[0])
    not_by_checksum(refused(tmp_path, fm.write(model), "methods", message))


def test_unknown_things_ask_for_a_newer_version(tmp_path: Path) -> None:
    for name in ("unknown op", "unknown attribute"):
        model = good_model()
        LIES[name][0](model, model.methods[0])
        assert "newer Satchel" in refused(tmp_path, fm.write(model), "methods").advice


def _with_methods(section: bytes) -> bytes:
    parts = fm.read_sections(good_bytes()) | {"methods": section}
    digests = b"".join(w.digest for w in good_model().weights)
    return fm.write_sections(parts, hashlib.sha256(digests).digest())


ALL = struct.pack("<I", 0xFFFFFFFF)
NONE = bytes(4)
ONE = struct.pack("<I", 1)
METHOD = NONE + ONE + fm.text("m") + bytes(8)  # no states, one method, an empty arena
COUNTS = {
    "states": ALL,
    "methods": NONE + ALL,
    "symbols": METHOD + ALL,
    "values": METHOD + NONE + ALL,
    "inputs": METHOD + NONE + NONE + ALL,
    "outputs": METHOD + NONE * 3 + ALL,
    "nodes": METHOD + NONE * 4 + ALL,
}


@pytest.mark.parametrize("name", COUNTS)
def test_absurd_counts(name: str, tmp_path: Path) -> None:
    section = COUNTS[name] + bytes(100)
    refused(tmp_path, _with_methods(section), "methods", "claims 4294967295 entries")


def test_absurd_count_in_a_list(tmp_path: Path) -> None:
    data = bytearray(fm.write(good_model()))
    head = fm.text("perm") + b"\x03"
    at = data.index(head) + len(head)
    data[at : at + 4] = ALL
    fm.sign(data)
    refused(tmp_path, bytes(data), "methods", "claims 4294967295 entries")


def test_many_methods(tmp_path: Path) -> None:
    empty = b"".join(fm.text(f"m{i}") + bytes(8 + 5 * 4) for i in range(1025))
    section = NONE + struct.pack("<I", 1025) + empty
    refused(tmp_path, _with_methods(section), "methods", "too many methods")


def test_bytes_left_over(tmp_path: Path) -> None:
    section = fm.write_methods(good_model()) + b"\0"
    refused(tmp_path, _with_methods(section), "methods", "left over")


def test_cut_at_many_bytes(tmp_path: Path) -> None:
    """The checksum is right, so it is the reader that finds the section's end."""
    section = fm.write_methods(good_model())
    for size in range(0, len(section), 7):
        refused(tmp_path, _with_methods(section[:size]), "methods")


# --- what loads, and must do no harm when it runs ---


def _load(tmp_path: Path, model: Model) -> Program:
    path = tmp_path / "program.satchel"
    path.write_bytes(fm.write(model))
    return Program(path)


def test_an_arena_larger_than_the_machine(tmp_path: Path) -> None:
    model = good_model()
    model.methods[0].arena = 1 << 45
    program = _load(tmp_path, model)
    with pytest.raises(ExecutionError, match="this machine has"):
        program.instance()


def test_outputs_larger_than_the_machine(tmp_path: Path) -> None:
    """One value under many names: each would be copied out."""
    model = good_model()
    m = model.methods[0]
    large = 1 << 32
    x = Value("x", INPUT, 0, 0, [large])
    made = [Value(f"y{i}", ARENA, 0, 0, [large]) for i in range(4000)]
    node = Node("neg", [0], [1], [])
    model.methods = [Method(m.name, 4 * large, [], [x, *made], [0], list(range(1, 4001)), [node])]
    with pytest.raises(ExecutionError, match="this machine has"):
        _load(tmp_path, model).instance()


def test_a_cache_larger_than_the_machine_costs_nothing_until_used(tmp_path: Path) -> None:
    model = good_model()
    for thing in model.shaped():
        if thing.shape in ([2, 12, 8], [2, 12, 16]):
            thing.shape[1] = 1 << 30
    method = _load(tmp_path, model).method("one")
    assert method([1], [100_000], [0])["logits"].shape == (1, 20)


def test_caches_larger_than_the_address_space(tmp_path: Path) -> None:
    model = good_model()
    model.states += [fm.State(f"more {i}", 4, [1 << 40, 1 << 6]) for i in range(8)]
    with pytest.raises(ExecutionError, match="the system has no 70368744177664 bytes"):
        _load(tmp_path, model).instance()


def test_a_scalar_and_a_symbol_that_no_input_has(tmp_path: Path) -> None:
    x = Value("x", INPUT, 0, 0, [])
    y = Value("y", ARENA, 0, 0, [])
    z = Value("z", ARENA, 256, 0, [-1])
    nodes = [Node("neg", [0], [1], []), Node("reshape", [1], [2], [("shape", 3, [1])])]
    model = Model(methods=[Method("m", 512, [("T", 1)], [x, y, z], [0], [1, 2], nodes)])
    result = _load(tmp_path, model).method("m")(2.0)
    assert result["y"] == -2.0 and result["z"].tolist() == [-2.0]


def test_a_program_of_nothing(tmp_path: Path) -> None:
    program = _load(tmp_path, Model())
    program.verify()
    assert program.methods == [] and program.weights == [] and program.metadata == {}
    with pytest.raises(ExecutionError, match="no method 'forward'"):
        program.method("forward")


def test_many_values_and_nodes_load_quickly(tmp_path: Path) -> None:
    """Time in proportion to the file: 100,000 nodes take far less than a quadratic check."""
    count = 100_000
    values = [Value("x", INPUT, 0, 0, [1])]
    values += [Value(f"v{i}", ARENA, 256 * i, 0, [1]) for i in range(count)]
    nodes = [Node("neg", [i], [i + 1], []) for i in range(count)]
    method = Method("m", 256 * count, [], values, [0], [count], nodes)
    (result,) = _load(tmp_path, Model(methods=[method])).method("m").run([3.0])
    assert result.tolist() == [3.0]


def test_storages_are_the_only_ones() -> None:
    model = good_model()
    used = {v.storage for m in model.methods for v in m.values}
    assert used == {INPUT, ARENA, WEIGHT, STATE}
