"""Random changes to a program's model. Some make nonsense, some another valid program."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

from support import program_file as fm
from support.program_file import ARENA, INPUT, STATE, WEIGHT, Method, Model, Value

OPS = (
    "add mul sub div maximum minimum silu_mul gelu_tanh_mul matmul linear embedding rms_norm "
    "layer_norm softmax reduce_sum reduce_mean reduce_max reduce_min reshape reshape_as transpose "
    "slice concat take take_rows gather positions rope_table rope cache_write cache_move attention "
    "neg abs exp log sqrt rsqrt sin cos tanh erf hadamard relu sigmoid silu gelu gelu_tanh affine "
    "cast nonzero nms compare where expand pad argsort argmax cumulate scatter max_pool2d"
).split()
DIMS = [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40, 48, 64, 65, 128]
ODD = [0, -1, -2, -3, -65, 255, 1 << 16, 1 << 24, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1]
SIZES = {0: 4, 1: 2, 2: 4, 3: 8, 4: 1, 5: 1, 6: 1}


def weight_sizes(w: fm.Weight) -> tuple[int, int]:
    """Bytes of codes and scales, by docs/format.md; 0 for shapes that make no sense."""
    elements = 1
    for dim in w.shape:
        elements *= max(dim, 0)
    if w.encoding < 16 or len(w.shape) != 2:
        return elements * {1: 2, 3: 1, 4: 1}.get(w.encoding, 4), 0
    rows = fm.align(w.shape[0], 16)
    if w.encoding == 24:
        return rows * fm.align(max(w.shape[1], 0), 4), rows * 4
    cells = rows * w.shape[1]
    scales = cells // w.group * 2 if w.group and w.encoding >= 18 else 0
    if w.encoding in (28, 29, 30):
        scales = cells // 256 * {28: 16, 29: 16, 30: 18}[w.encoding]
    seconds = {20: rows * 4, 21: scales, 22: scales * 2, 23: scales * 2, 27: scales}
    if w.encoding in seconds:
        scales = fm.align(scales, 64) + seconds[w.encoding]
    codes = {16: cells * 4, 17: cells * 2, 19: cells, 23: cells, 30: cells // 4 * 3}
    codes |= dict.fromkeys((26, 27, 29), cells // 8 * 5)
    return codes.get(w.encoding, cells // 2), scales


def lay_out_weights(model: Model, rng: random.Random, limit: int = 1 << 20) -> None:
    """Places, sizes and new bytes for the weights that the index now claims."""
    at = 0
    for w in model.weights:
        codes, scales = weight_sizes(w)
        if max(codes, scales) > limit:
            return
        w.offset, w.codes_size, w.scales_size = fm.align(at, 256), codes, scales
        w.scales_offset = fm.align(w.offset + codes, 256) if scales else 0
        at = max(w.offset + codes, w.scales_offset + scales)
    kept = model.weight_bytes[:at]
    model.weight_bytes = kept + rng.randbytes(at - len(kept))


def lay_out_arena(method: Method) -> None:
    """A place of its own for every value that a node writes; reshaped ones follow theirs."""
    written = {id for node in method.nodes for id in node.outputs}
    places: dict[int, int] = {}  # old place -> new place
    at = 0
    for number, v in enumerate(method.values):
        if v.storage != ARENA:
            continue
        old = v.location
        if number not in written:
            v.location = places.get(old, old)
            continue
        size = SIZES.get(v.dtype, 8)
        for dim in v.shape:
            symbol = -len(method.symbols) <= dim < 0
            size *= method.symbols[-1 - dim][1] if symbol else max(dim, 1)
        v.location = places[old] = at
        at = fm.align(at + size, 256)
    method.arena = at


def _replace(model: Model, sizes: dict[int, int], rng: random.Random) -> None:
    """Other sizes, in shapes and in attributes, with places and groups that fit them."""
    for thing in model.shaped():
        thing.shape = [sizes.get(d, d) for d in thing.shape]
    for w in model.weights:
        if w.group:
            cols = w.shape[-1]
            fitting = [g for g in (4, 8, 16, 32, cols) if g > 0 and cols % g == 0]
            if w.encoding >= 26:
                w.group = 16 if w.encoding == 30 else 32
            else:
                w.group = rng.choice([g for g in fitting if g % 8 == 0 or w.encoding == 19] or [8])
    for m in model.methods:
        for node in m.nodes:
            node.attributes = [
                (name, kind, [sizes.get(i, i) for i in value] if kind == 3 else value)
                if kind != 0
                else (name, kind, sizes.get(value, value))
                for name, kind, value in node.attributes
            ]
        lay_out_arena(m)
    lay_out_weights(model, rng)


def replace_dimension(model: Model, rng: random.Random) -> None:
    """Another size wherever this one stands: now and then a valid program of odd shapes."""
    old = rng.choice([d for m in model.methods for v in m.values for d in v.shape if d > 1])
    _replace(model, {old: rng.choice(DIMS)}, rng)


def scale_model(model: Model, rng: random.Random) -> None:
    """The small program with heads, vocabulary and context of other sizes: a valid one."""
    dim = rng.choice([4, 6, 8, 10, 12, 16, 18, 20, 32, 34, 36, 64, 66, 80])
    sizes = {8: dim, 16: 2 * dim, 32: 4 * dim, 40: 5 * dim}
    _replace(model, sizes | {20: rng.choice(DIMS), 12: rng.choice(DIMS)}, rng)
    for thing in model.shaped():
        if thing.name.startswith("frequencies"):
            thing.shape = [dim // 2]
    for s in model.states:
        if s.dtype == 5:  # scale and zero stay 8 bytes
            s.shape[-1] = dim + 8
    follow_states(model)
    lay_out_weights(model, rng)


def follow_states(model: Model) -> None:
    """Values that are states get their types."""
    for m in model.methods:
        for v in m.values:
            if v.storage == STATE and v.location < len(model.states):
                v.shape = list(model.states[v.location].shape)
                v.dtype = model.states[v.location].dtype


def change_symbol(model: Model, rng: random.Random) -> None:
    m = rng.choice(model.methods)
    if m.symbols:
        number = rng.randrange(len(m.symbols))
        m.symbols[number] = (m.symbols[number][0], rng.choice(DIMS + ODD))
    else:
        m.symbols.append(("T", rng.choice(DIMS)))
        v = rng.choice(m.values)
        v.shape = [-1 if rng.random() < 0.5 else d for d in v.shape]
    if rng.random() < 0.7:
        lay_out_arena(m)


def compute_symbol(model: Model, rng: random.Random) -> None:
    """A size that is computed from others, or that nothing computes any more."""
    m = rng.choice(model.methods)
    names = [name.split(" ")[0] for name, _ in m.symbols] + ["", "z"]
    number = rng.randrange(len(m.symbols))
    steps = [rng.choice(names)]
    for _ in range(rng.choice([0, 1, 1, 2, 3, 70])):
        factors = rng.choices([*names, "1", "2", "7", "0", "1048577"], k=rng.choice([1, 1, 2, 9]))
        steps.append(rng.choice("*+-/%") + "*".join(factors))
    m.symbols[number] = (" ".join(steps), rng.choice(DIMS))
    if rng.random() < 0.3:
        rng.shuffle(m.symbols)
    if rng.random() < 0.7:
        lay_out_arena(m)


def change_value(model: Model, rng: random.Random) -> None:
    m = rng.choice(model.methods)
    v: Value = rng.choice(m.values)
    what = rng.randrange(5)
    if what == 0 and v.shape:
        v.shape[rng.randrange(len(v.shape))] = rng.choice(DIMS + ODD)
    elif what == 1:
        v.dtype = rng.randrange(8)
    elif what == 2:
        v.storage = rng.choice([INPUT, ARENA, WEIGHT, STATE])
    elif what == 3:
        v.location = rng.choice([0, 1, 64, 256, 512, m.arena, rng.choice(m.values).location])
    else:
        other = rng.choice(m.values)
        v.shape, v.dtype = list(other.shape), other.dtype
    if rng.random() < 0.3:
        lay_out_arena(m)


def change_node(model: Model, rng: random.Random) -> None:
    m = rng.choice(model.methods)
    node = rng.choice(m.nodes)
    what = rng.randrange(7)
    if what == 0:
        node.op = rng.choice(OPS)
    elif what == 1:
        node.inputs[rng.randrange(len(node.inputs))] = rng.randrange(len(m.values))
    elif what == 2:
        node.outputs = [rng.randrange(len(m.values))]
    elif what == 3:
        other = rng.choice(m.nodes)
        node.op, node.attributes = other.op, list(other.attributes)
    elif what == 4 and node.attributes:
        at = rng.randrange(len(node.attributes))
        name, kind, _ = node.attributes[at]
        values = {
            0: rng.choice(DIMS + ODD[:-1]),
            1: rng.choice([0.0, -1.0, 1e300, float("nan"), float("-inf")]),
            2: rng.choice(["f32", "f16", "i32", "int8", "int16", ""]),
            3: [rng.choice([0, 1, 2, -1, 32]) for _ in range(rng.randrange(5))],
        }
        kind = kind if rng.random() < 0.7 else rng.randrange(4)
        node.attributes[at] = (name, kind, values[kind])
    elif what == 5:
        rng.shuffle(m.nodes)
    else:
        m.nodes.insert(rng.randrange(len(m.nodes) + 1), copy.deepcopy(node))


def change_weight(model: Model, rng: random.Random) -> None:
    w = rng.choice(model.weights)
    what = rng.randrange(4)
    if what == 0:
        w.encoding = rng.choice(list(fm.ENCODINGS))
        w.group = rng.choice([4, 8, 16, 32]) if w.encoding >= 18 else 0
    elif what == 1:
        w.group = rng.choice([0, 1, 2, 4, 8, 12, 16, 32, 64, 1 << 31])
    elif what == 2:
        w.shape[rng.randrange(len(w.shape))] = rng.choice(DIMS + ODD)
    else:
        model.weight_bytes = rng.randbytes(len(model.weight_bytes))
    if rng.random() < 0.8:
        lay_out_weights(model, rng)


def change_state(model: Model, rng: random.Random) -> None:
    s = rng.choice(model.states)
    old = list(s.shape)
    if rng.random() < 0.5:
        s.dtype = rng.choice([0, 1, 1, 2, 5, 6])
    else:
        # Not much larger, or a late position would make attention read for minutes.
        s.shape[rng.randrange(len(s.shape))] = rng.choice([*DIMS, 0, -1, 1 << 16, 1 << 22])
    for other in model.states if rng.random() < 0.7 else [s]:
        other.shape, other.dtype = (
            (list(s.shape), s.dtype) if other.shape == old else (other.shape, other.dtype)
        )
    follow_states(model)


MUTATIONS: list[Callable[[Model, random.Random], None]] = [
    *[scale_model] * 4,
    replace_dimension,
    change_symbol,
    compute_symbol,
    *[change_value] * 3,
    *[change_node] * 3,
    *[change_weight] * 2,
    change_state,
]


def mutate(model: Model, rng: random.Random) -> Model:
    model = copy.deepcopy(model)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        rng.choice(MUTATIONS)(model, rng)
    return model
