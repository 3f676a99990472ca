"""Every operator of PyTorch's Core ATen IR, run natively against torch on PyTorch's own samples.

    python benchmarks/aten_coverage.py                    # all samples, prints the table
    python benchmarks/aten_coverage.py --most 2 add topk  # at most 2 samples of each type, of some
    python benchmarks/aten_coverage.py --write docs/aten.md
    python benchmarks/aten_coverage.py --journal aten.jsonl --for 400   # in pieces
    python benchmarks/aten_coverage.py --all --most 2     # every operator that has samples

Each operator has a process of its own; with --journal a command that was interrupted goes on.

The samples are those of ``torch.testing._internal`` (OpInfo), for float32, int32 and bool.
"""

from __future__ import annotations

import argparse
import tempfile
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from apart import Journal, TrialError, run_apart
from torch.utils import _pytree as pytree

import satchel
from satchel.errors import ImportModuleError, SatchelError, UnsupportedOperatorError
from satchel.torch.operators import OPERATORS
from satchel.torch.operators.complex_numbers import COMPLEX

DTYPES = (torch.float32, torch.int32, torch.bool)
# What has no numbers to compare with, and what becomes of it.
_SEED = ("yes, by a seed", "other numbers than torch's: functions of the program's input seed")
_ZEROS = ("yes", "memory that nobody has written: zeros")
NO_ORACLE = {
    "rand": _SEED,
    "randn": _SEED,
    "randperm": _SEED,
    "native_dropout": _SEED,
    "resize_": ("refused", "changes the memory of its input"),
    "_local_scalar_dense": ("yes", "stays a tensor, and what is computed with it takes one"),
    **dict.fromkeys("bernoulli cauchy exponential geometric log_normal normal".split(), _SEED),
    **dict.fromkeys("multinomial rand_like randint randint_like randn_like uniform".split(), _SEED),
    **dict.fromkeys("empty empty_like empty_strided new_empty new_empty_strided".split(), _ZEROS),
}


# Where equal numbers may come in any order, only the numbers are compared and not their places.
ANY_ORDER = {"sort", "topk", "kthvalue", "median", "argsort"}
# Core operators that are reached through another one's samples.
ALIASES = {
    "_adaptive_avg_pool2d": "nn.functional.adaptive_avg_pool2d",
    "_adaptive_avg_pool3d": "nn.functional.adaptive_avg_pool3d",
    "adaptive_avg_pool1d": "nn.functional.adaptive_avg_pool1d",
    "_cdist_forward": "cdist",
    "_embedding_bag": "nn.functional.embedding_bag",
    "_fft_c2c": "fft.fft",
    "_fft_c2r": "fft.irfft",
    "_fft_r2c": "fft.rfft",
    "_log_softmax": "log_softmax",
    "_native_batch_norm_legit_no_training": "nn.functional.batch_norm",
    "_pdist_forward": "nn.functional.pdist",
    "_softmax": "softmax",
    "_to_copy": "to",
    "alias": "alias_copy",
    "convolution": "nn.functional.conv2d",
    "grid_sampler_2d": "nn.functional.grid_sample",
    "index": "__getitem__",
    "max_pool2d_with_indices": "nn.functional.max_pool2d",
    "max_pool3d_with_indices": "nn.functional.max_pool3d",
    "native_group_norm": "nn.functional.group_norm",
    "native_layer_norm": "nn.functional.layer_norm",
    "split_with_sizes": "split_with_sizes",
    "upsample_bilinear2d": "nn.functional.upsample_bilinear",
    "upsample_nearest2d": "nn.functional.upsample_nearest",
}
# Paddings are variants of one operator, and have a name for each number of dimensions.
PADS = {
    f"{kind}ion_pad{dims}d": (variant, dims)
    for kind, variant in (("reflect", "reflect"), ("replicat", "replicate"))
    for dims in (1, 2, 3)
}


@dataclass
class Found:
    """What became of an operator's samples."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def status(self) -> str:
        right, wrong = self.counts["right"], self.counts["wrong"]
        if wrong:
            return "wrong"
        if right:
            return "yes" if not self.counts["refused"] else "mostly"
        return "refused" if self.counts["refused"] else "not tried"


class Sampled(torch.nn.Module):
    """An operator with a sample's arguments; its tensors are inputs.

    Where it takes none, a zero is the input that is added to its result.
    """

    def __init__(self, op: Any, sample: Any) -> None:
        super().__init__()
        self.op = op
        whole = (sample.input, sample.args, sample.kwargs)
        leaves, self.spec = pytree.tree_flatten(whole)
        self.tensors = tuple(x for x in leaves if isinstance(x, torch.Tensor))
        self.makes = not self.tensors
        if self.makes:
            self.tensors = (torch.zeros(1),)
        self.leaves = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.leaves)
        given = () if self.makes else tensors
        for place, tensor in zip(self.places, given, strict=True):
            leaves[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        made = self.op(first, *args, **kwargs)
        if not self.makes:
            return made
        zero = tensors[0].to(made.dtype)
        return made | zero if made.dtype == torch.bool else made + zero


def core_operators() -> list[str]:
    """The names that torch marks as core, backward passes left out."""
    names = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if not hasattr(packet, "overloads"):
            continue
        for overload in packet.overloads():
            if torch.Tag.core in getattr(packet, overload).tags and not name.endswith("_backward"):
                names.add(name)
    return sorted(names)


def samples_of(name: str, dtype: torch.dtype) -> Iterator[tuple[Any, Any]]:
    """(operator, sample) of an operator's own tests in PyTorch."""
    from torch.testing._internal.common_methods_invocations import op_db

    variant, dims = PADS.get(name, ("", 0))
    for info in op_db:
        whole = "nn.functional.pad" if variant else ALIASES.get(name, name)
        if whole not in (info.name, info.aten_name, info.name.split(".")[-1]):
            continue
        if info.name.startswith("sparse.") or (variant and info.variant_test_name != variant):
            continue
        if dtype not in info.supported_dtypes("cpu"):
            continue
        for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
            if name == "grid_sampler_2d" and sample.input.dim() != 4:
                continue  # another operator's
            if not variant or len(sample.args[0]) == 2 * dims:
                yield info.op, sample


def try_sample(op: Any, sample: Any, folder: Path, compared: int = 99) -> tuple[str, str]:
    """right, wrong, refused or left out, and why. So many outputs are compared."""
    module = Sampled(op, sample).eval()
    tensors = tuple(x.detach().clone() for x in module.tensors)
    try:
        with torch.no_grad():
            wanted, _ = pytree.tree_flatten(module(*(x.clone() for x in tensors)))
    except RuntimeError as error:  # of memory that a copy does not have
        return "left out", str(error)
    wanted = [x for x in wanted if isinstance(x, torch.Tensor)]
    everything = (*tensors, *wanted)
    if any(x.numel() == 0 for x in everything):
        return "left out", "empty tensors"
    path = folder / "sample.satchel"
    try:
        satchel.export(module, tuple(x.clone() for x in tensors), path, overwrite=True)
    except (UnsupportedOperatorError, ImportModuleError) as error:
        return "refused", str(error).split("not supported: ")[-1].split(" at aten_coverage")[0]
    try:
        got = satchel.load(path).method().run(*map(as_array, tensors))
    except SatchelError as error:
        return "wrong", str(error)
    if len(got) != len(wanted):
        return "wrong", f"{len(got)} outputs, not {len(wanted)}"
    for mine, theirs in list(zip(got, wanted, strict=True))[:compared]:
        want = as_array(theirs).astype(np.float64)
        have = mine.astype(np.float64)
        if have.shape != want.shape:
            return "wrong", f"the shape {have.shape}, not {want.shape}"
        if not np.allclose(have, want, rtol=2e-4, atol=2e-4, equal_nan=True):
            return "wrong", f"off by {np.nanmax(np.abs(have - want)):.3g}"
    return "right", ""


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """Complex numbers are pairs in a program."""
    whole = tensor.resolve_conj()
    array: np.ndarray = (torch.view_as_real(whole) if whole.is_complex() else whole).numpy()
    return array


def try_operator(name: str, most: int, folder: Path) -> Found:
    found = Found()
    more = (torch.complex64,) if name.startswith("_fft_c2") else ()
    for dtype in (*DTYPES, *more):
        tried = 0
        for op, sample in samples_of(name, dtype):
            if tried >= most:
                break
            try:
                compared = 1 if name in ANY_ORDER else 99
                kind, why = try_sample(op, sample, folder, compared)
            except NotImplementedError as error:  # torch itself has no such sample
                kind, why = "left out", str(error)
            found.counts[kind] += 1
            tried += kind != "left out"
            if kind in ("wrong", "refused"):
                found.reasons[f"{dtype}: {why}".replace("torch.", "", 1)] += 1
    return found


def line(name: str, found: Found) -> str:
    if name in NO_ORACLE:
        status, why = NO_ORACLE[name]
        return f"| `{name}` | {status} | | {why} |"
    status = found.status
    if status == "not tried":
        # Sizes are worked out where a module is exported.
        known = name in OPERATORS or name in COMPLEX or name.startswith("sym_")
        status = "yes, without a sample" if known else "refused, without a sample"
    elif status in ("yes", "mostly") and name not in {**OPERATORS, **COMPLEX}:
        status = f"{status}, decomposed"
    counts = ", ".join(f"{n} {kind}" for kind, n in sorted(found.counts.items()))
    why = found.reasons.most_common(1)[0][0][:160].replace("|", "/") if found.reasons else ""
    return f"| `{name}` | {status} | {counts} | {why} |"


def sampled_operators() -> list[str]:
    """Every operator that PyTorch has samples of, without those of random numbers."""
    from torch.testing._internal.common_methods_invocations import op_db

    return sorted({info.name for info in op_db if not info.name.startswith(("_refs.", "ops."))})


def try_apart(name: str, most: int, arguments: Any) -> list[Any]:
    """An operator's counts and reasons, found in a process of its own."""

    def trial() -> list[Any]:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            found = try_operator(name, most, Path(folder))
        return [dict(found.counts), dict(found.reasons)]

    try:
        made: list[Any] = run_apart(trial, arguments.seconds, arguments.megabytes)
        return made
    except TrialError as error:
        return [{"wrong": 1}, {str(error): 1}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="some operators; all of Core ATen if left out")
    parser.add_argument("--all", action="store_true", help="every operator that has samples")
    parser.add_argument("--most", type=int, default=1000, help="samples of each type")
    parser.add_argument("--write", metavar="FILE", help="the table as Markdown")
    parser.add_argument("--journal", metavar="FILE", type=Path, help="where results are kept")
    parser.add_argument("--for", dest="spend", type=float, default=1e9, help="seconds in all")
    parser.add_argument("--seconds", type=float, default=120, help="of each operator")
    parser.add_argument("--megabytes", type=int, default=4000, help="of each operator")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    ends = time.monotonic() + arguments.spend
    journal = Journal(arguments.journal)
    lines, states = [], Counter[str]()
    everything = sampled_operators() if arguments.all else core_operators()
    for name in arguments.names or everything:
        key = f"{name} {arguments.most}"
        if name not in NO_ORACLE and key not in journal:
            if time.monotonic() > ends:
                raise SystemExit("The time is over. Run the same command again to go on.")
            journal.add(key, try_apart(name, arguments.most, arguments))
        counts, reasons = ({}, {}) if name in NO_ORACLE else journal[key]
        lines.append(line(name, Found(Counter(counts), Counter(reasons))))
        states[lines[-1].split("|")[2].strip()] += 1
        print(lines[-1], flush=True)
    summary = ", ".join(f"{count} {state}" for state, count in states.most_common())
    print(summary)
    if arguments.write:
        some = f" --most {arguments.most}" if arguments.most < 1000 else ""
        head = [
            "# Core ATen, operator by operator",
            "",
            f"Made by `python benchmarks/aten_coverage.py{some} --write docs/aten.md`:",
            "PyTorch's own samples (float32, int32, bool), run natively against torch.",
            "*Decomposed*: torch writes it with operators that have a counterpart here. Empty",
            "tensors are left out; complex numbers are pairs.",
            "",
            *textwrap.wrap(f"{len(lines)} operators: {summary}.", 99),
            "",
            "| operator | | samples | most often |",
            "|---|---|---|---|",
        ]
        Path(arguments.write).write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main()
