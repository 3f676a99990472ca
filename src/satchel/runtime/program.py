"""A loaded program: its methods, ready to call, and what its file holds."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from satchel import _native
from satchel.encodings.encoding import Encoding
from satchel.errors import ChecksumError, ExecutionError, ProgramFormatError
from satchel.program.about import About, AboutLanguageModel, read_about
from satchel.program.metadata import wrong_values
from satchel.program.names import payload_name

_DTYPES = {"f32": "float32", "f16": "float16", "i32": "int32", "i64": "int64"}
_DTYPES |= {"i8": "int8", "u8": "uint8", "bool": "bool"}
_BLOCK = 8 << 20
_MOST_THREADS = 1024
_AGAIN = "Copy or export the file again."

VerifyProgress = Callable[[int, int], None]  # bytes done, bytes in all


class Method:
    """An entry point of a program. Call it with arrays, by position or by name.

    One output is returned as an array, several as a dictionary.
    """

    def __init__(self, instance: _native.Instance, number: int, info: Mapping[str, Any]) -> None:
        self._instance = instance
        self._number = number
        self.describe(info)

    def describe(self, info: Mapping[str, Any]) -> None:
        self.info = info
        self.name: str = info["name"]
        self.inputs: list[str] = [v["name"] for v in info["inputs"]]
        self.outputs: list[str] = [v["name"] for v in info["outputs"]]
        self._dtypes = [np.dtype(_DTYPES[v["dtype"]]) for v in info["inputs"]]

    def __call__(
        self, *arrays: ArrayLike, **named: ArrayLike
    ) -> NDArray[Any] | dict[str, NDArray[Any]]:
        results = self.run(*arrays, **named)
        return results[0] if len(results) == 1 else dict(zip(self.outputs, results, strict=True))

    def run(self, *arrays: ArrayLike, **named: ArrayLike) -> list[NDArray[Any]]:
        """All outputs, in order."""
        results: list[NDArray[Any]] = self._instance.run(
            self._number, self.convert(*arrays, **named)
        )
        return results

    def run_chain(
        self, token: int, position: int, sequence: int, temperature: float, random: Sequence[float]
    ) -> list[int]:
        """Tokens that follow ``token``, each chosen from the logits before it where they are.

        As many as there are random numbers in [0, 1), or fewer; none where whoever runs the method
        cannot choose, and -1 where logits had no meaning. Without a temperature the likeliest are
        taken.
        """
        return self._instance.run_chain(
            self._number, token, position, sequence, temperature, list(random)
        )

    def convert(self, *arrays: ArrayLike, **named: ArrayLike) -> list[NDArray[Any]]:
        """The inputs in order, as arrays of their types."""
        if not named and len(arrays) == len(self.inputs):  # as a token's call is
            return list(map(_convert, self.inputs, arrays, self._dtypes))
        given = dict(zip(self.inputs, arrays, strict=False))
        unknown = sorted(set(named) - set(self.inputs)) or sorted(set(named) & set(given))
        if unknown or len(arrays) > len(self.inputs):
            wanted = ", ".join(self.inputs)
            raise ExecutionError(f"{self.name} takes the inputs {wanted}", "Give each one once.")
        given |= named
        given |= self._step_of(given)
        missing = [name for name in self.inputs if name not in given]
        if missing:
            raise ExecutionError(f"{self.name} needs the input {missing[0]!r}")
        return [
            _convert(name, given[name], dtype)
            for name, dtype in zip(self.inputs, self._dtypes, strict=True)
        ]

    def _step_of(self, given: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """A single position is that of the first token, and without a sequence it is the one of
        callers that name none."""
        if "sequence" not in self.inputs or "position" not in given:
            return {}
        position, count = np.asarray(given["position"]), np.size(given.get("tokens", 0))
        line = position.shape == (1,) and count > 1 and "parents" not in self.inputs
        position = position + np.arange(count, dtype=np.int32) if line else position
        return {"position": position, "sequence": given.get("sequence", np.zeros_like(position))}


def _convert(name: str, value: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype == dtype and array.flags.carray:  # in order, aligned and not swapped
        return array
    if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ExecutionError(f"the input {name!r} must be {dtype}, not {array.dtype}")
    if array.dtype.kind in "iu" and not np.can_cast(array.dtype, dtype, "safe") and array.size:
        limits = np.iinfo(dtype)
        for extreme in (int(array.min()), int(array.max())):
            if not limits.min <= extreme <= limits.max:
                raise ExecutionError(f"the input {name!r} has {extreme}, which is no {dtype}")
    return np.require(array, dtype, ["C", "A"])


class Program:
    """A program file, validated and mapped; its weights are not read until a method runs.

    >>> program = Program("model.satchel")
    >>> program.metadata["context"]
    64
    >>> program.method("kv_forward")(tokens=[65], position=[0]).shape
    (1, 320)
    """

    def __init__(
        self, path: str | os.PathLike[str], verify: bool = False, target: str | None = None
    ) -> None:
        self.path = Path(path)
        self._native = _native.Program.open(_checked_path(path))
        if verify:
            self.verify()
        self._target = target
        if target is not None and target not in self.targets:
            self._require_portable(target)

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets that it can run on, the usual one first."""
        return tuple(self.about.targets) or (self.about.target,)

    def _require_portable(self, target: str) -> None:
        """Targets that run the portable methods take any program."""
        from satchel.backends import find_target

        if not find_target(target).portable:
            raise ExecutionError(
                f"{self.path} is not for {target}",
                f"It is for {', '.join(self.targets)}; export it with --target {target}.",
            )

    @property
    def target(self) -> str:
        """The one that it runs on: that which was chosen, or the usual one."""
        return self._target or self.targets[0]

    def __repr__(self) -> str:
        methods = ", ".join(str(method["name"]) for method in self.methods)
        name = self.metadata.get("name")
        return f"<Program {name}, {self.size / 1e6:.1f} MB, methods {methods}, {self.path}>"

    @property
    def size(self) -> int:
        """The file's size in bytes."""
        return int(self._native.size)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """What the exporter wrote about the model: name, recipe, tokenizer, provenance, …"""
        try:
            document = json.loads(self.section("metadata"))
        except (ValueError, RecursionError) as error:
            message = f"the metadata is not JSON: {error}"
            raise self._metadata_error(message) from None
        if not isinstance(document, dict):
            raise self._metadata_error("the metadata is not a JSON object")
        for problem in wrong_values(document):
            raise self._metadata_error(f"the metadata's {problem}")
        return document

    @cached_property
    def about(self) -> About:
        """The metadata as the class of the program's kind."""
        return read_about(self.metadata)

    @property
    def is_language_model(self) -> bool:
        return isinstance(self.about, AboutLanguageModel)

    def _metadata_error(self, message: str) -> ProgramFormatError:
        offset = self._record("metadata")["offset"]
        return ProgramFormatError(message, "Export the file again.", "metadata", offset)

    @cached_property
    def sections(self) -> list[dict[str, Any]]:
        return list(self._native.sections())

    @cached_property
    def weights(self) -> list[dict[str, Any]]:
        """Name, shape, encoding and place of every weight."""
        return list(self._native.weights())

    @cached_property
    def methods(self) -> list[dict[str, Any]]:
        """Inputs, outputs and op counts of every method."""
        return list(self._native.methods())

    @cached_property
    def states(self) -> list[dict[str, Any]]:
        return list(self._native.states())

    def has_method(self, name: str) -> bool:
        return any(m["name"] == name for m in self.methods)

    def section(self, name: str) -> bytes:
        """A section's bytes, after checking its checksum."""
        record = self._record(name)
        data: bytes = self._native.section_bytes(name)
        if hashlib.sha256(data).digest() != record["digest"]:
            raise ChecksumError("the section's checksum is wrong", _AGAIN, name, record["offset"])
        return data

    def compiled_tokenizer(self) -> _native.Tokenizer | None:
        """The native tokenizer, over the mapped file; None if the program has none."""
        return _native.Tokenizer.of_program(self._native)

    def _record(self, name: str) -> dict[str, Any]:
        for record in self.sections:
            if record["name"] == name:
                return record
        known = ", ".join(s["name"] for s in self.sections)
        raise ExecutionError(f"a program has no section {name!r}", f"It has {known}.")

    def weight(self, name: str) -> NDArray[Any]:
        """A weight as the numbers that it stands for (dequantised)."""
        info = next((w for w in self.weights if w["name"] == name), None)
        if info is None:
            raise ExecutionError(f"there is no weight {name!r} in {self.path}")
        with self.path.open("rb") as file:
            codes, scales = (
                np.frombuffer(b"".join(_blocks(file.fileno(), offset, size)), np.uint8)
                for offset, size in (
                    (info["offset"], info["codes_size"]),
                    (info["scales_offset"], info["scales_size"]),
                )
            )
        encoding = Encoding(info["encoding"], info["group"])
        return encoding.decode(codes, scales, tuple(info["shape"]))

    def instance(self, threads: int = 0) -> Instance:
        """New states and threads over the same weights; 0 threads: one per core.

        It runs on the chip that the program is for, or on its emulator.
        """
        from satchel.backends import open_instance

        return open_instance(self, threads)

    @cached_property
    def _default_instance(self) -> Instance:
        return self.instance()

    def method(self, name: str = "forward") -> Method:
        """A method of this program's own instance."""
        return self._default_instance.method(name)

    def payload_names(self) -> list[str]:
        """The files that the program holds for its target."""
        prefix = payload_name(self.target, "")
        names = (str(w["name"]) for w in self.weights)
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def payload(self, file: str) -> bytes:
        """One of these files, after checking its checksum."""
        name = payload_name(self.target, file)
        info = next((w for w in self.weights if w["name"] == name), None)
        if info is None or info["encoding"] != "u8":
            message = f"there is no {file} for {self.target} in {self.path}"
            raise ProgramFormatError(message, "Export the file again.", "weights")
        with self.path.open("rb") as opened:
            data = b"".join(_blocks(opened.fileno(), info["offset"], info["codes_size"]))
        if hashlib.sha256(data).digest() != info["digest"]:
            message = f"the bytes of {file} are not those that were written"
            raise ChecksumError(message, _AGAIN, "weights", info["offset"])
        return data

    def verify(self, progress: VerifyProgress | None = None) -> None:
        """Read everything and check every checksum, the weights' included."""
        for record in self.sections:
            if record["name"] != "weights":
                self.section(record["name"])
        joined = hashlib.sha256(b"".join(w["digest"] for w in self.weights)).digest()
        place = self._record("weights")
        if joined != place["digest"]:
            message = "the weights' checksum is wrong"
            raise ChecksumError(message, _AGAIN, "weights", place["offset"])
        done = 0
        end = place["offset"]
        with self.path.open("rb") as file:
            for weight in self.weights:
                digest = hashlib.sha256()
                parts = [(weight["offset"], weight["codes_size"])]
                if weight["scales_size"]:
                    parts.append((weight["scales_offset"], weight["scales_size"]))
                for offset, size in parts:
                    file.seek(end)
                    if any(file.read(offset - end)):
                        raise ChecksumError("padding is not zero", _AGAIN, "weights", end)
                    for block in _blocks(file.fileno(), offset, size):
                        digest.update(block)
                        done += len(block)
                        if progress:
                            progress(done, place["size"])
                    end = offset + size
                if digest.digest() != weight["digest"]:
                    raise ChecksumError(
                        f"the bytes of the weight {weight['name']} are not those that were written",
                        _AGAIN,
                        "weights",
                        weight["offset"],
                    )

    @cached_property
    def checksum(self) -> str:
        """One digest that stands for the whole file, its weights included."""
        joined = b"".join(s["digest"] for s in self.sections)
        return hashlib.sha256(joined).hexdigest()


@dataclass(frozen=True)
class CacheUsage:
    """The pages of the caches, of 64 positions each."""

    pages: int
    most_pages: int
    page_bytes: int  # of all caches together
    sequences: int

    @property
    def bytes(self) -> int:
        return self.pages * self.page_bytes


class OneSequence:
    """For instances whose caches hold a single conversation at a time."""

    _taken = False

    def open_sequence(self) -> int:
        if self._taken:
            raise ExecutionError(
                "this program runs one conversation at a time",
                "Close the one that is open, or make another instance.",
            )
        self._taken = True
        return 0

    def fork_sequence(self, sequence: int, rows: int) -> int:
        raise ExecutionError("this program runs one conversation at a time")

    def truncate_sequence(self, sequence: int, rows: int) -> None:
        """There is nothing to give back."""

    def close_sequence(self, sequence: int) -> None:
        self._taken = False


class PlacedPart(NamedTuple):
    """Nodes of a method, ``first`` to before ``last``, that one executor runs."""

    method: str
    executor: str
    first: int
    last: int
    values_in: int
    values_out: int


class Refusal(NamedTuple):
    """Nodes that an executor did not take."""

    executor: str
    op: str
    reason: str
    nodes: int


class Instance:
    """A program being run: states (KV caches of any number of sequences) over shared weights.

    The caches of all sequences may take ``cache_memory`` bytes, by default half of the machine's
    memory; they take what the texts need. ``executors`` are asked for each node in their order, and
    the CPU runs what none of them takes; an executor serves one instance.
    """

    # Why a token may have other bits alone than in a block of another method; "" if it has not.
    other_bits_in_blocks = ""
    # Whether tokens can be chosen where the logits are: see Method.run_chain.
    chooses_tokens = False
    # Whether something else computes what the chip would, so that its speed says nothing.
    emulated = False

    @property
    def same_bits_in_blocks(self) -> bool:
        """Whether any method gives a token the same bits alone and in a block."""
        return not self.other_bits_in_blocks

    def __init__(
        self,
        program: Program,
        threads: int = 0,
        cache_memory: int = 0,
        executors: Sequence[_native.Executor] = (),
    ) -> None:
        self.program = program
        if not 0 <= threads <= _MOST_THREADS:
            raise ExecutionError(f"there may be 1 to {_MOST_THREADS} threads, not {threads}")
        self._native = _native.Instance(program._native, threads, cache_memory, list(executors))
        self.threads: int = self._native.threads
        self.kernels: str = self._native.kernels

    @property
    def parts(self) -> list[PlacedPart]:
        """What runs where, method by method."""
        return [PlacedPart(*part) for part in self._native.parts]

    @property
    def refusals(self) -> list[Refusal]:
        """What executors left to the CPU, and why."""
        return [Refusal(*refusal) for refusal in self._native.refusals]

    def measure_limits(self) -> tuple[float, float]:
        """What the memory gives in bytes a second, and how many products of bytes a second can be
        added up; 0 where that is not measured."""
        return _native.kernels.measure_read_bandwidth(self.threads), 0.0

    def open_sequence(self) -> int:
        """A new conversation's place in the caches, by number; 0 is for callers that name none."""
        return int(self._native.open_sequence())

    def fork_sequence(self, sequence: int, rows: int) -> int:
        """One that begins with the first ``rows`` tokens of another and shares their cache."""
        return int(self._native.fork_sequence(sequence, rows))

    def truncate_sequence(self, sequence: int, rows: int) -> None:
        """Give back what the tokens from ``rows`` on take of the cache."""
        self._native.truncate_sequence(sequence, rows)

    def close_sequence(self, sequence: int) -> None:
        self._native.close_sequence(sequence)

    @property
    def cache_usage(self) -> CacheUsage:
        """How much of the caches is in use, by all sequences together."""
        return CacheUsage(**self._native.cache_usage())

    def read_sequence(self, sequence: int, rows: int) -> dict[str, NDArray[np.uint8]]:
        """The first rows of every cache, [heads, rows, bytes of a row] each."""
        return {
            state["name"]: self._native.read_sequence(number, sequence, rows)
            for number, state in enumerate(self.program.states)
            if state["cache"]
        }

    def write_sequence(self, sequence: int, caches: Mapping[str, NDArray[np.uint8]]) -> None:
        """Put back what :meth:`read_sequence` gave."""
        for number, state in enumerate(self.program.states):
            if state["cache"]:
                rows = np.ascontiguousarray(caches[state["name"]])
                self._native.write_sequence(number, sequence, rows)

    def start_profile(self) -> None:
        """Time every op of the calls from here on, until :meth:`take_profile`."""
        self._native.start_profile()

    def take_profile(
        self,
    ) -> tuple[dict[str, tuple[int, float]], dict[str, tuple[int, float, float]]]:
        """How often each op ran and for how many seconds, and the same of each kind of layer with
        the multiply-adds in it; timing ends."""
        return self._native.take_profile()

    def reset(self) -> None:
        """All states (caches, buffers) are what they were at first."""
        self._native.reset()

    def method(self, name: str) -> Method:
        for number, info in enumerate(self.program.methods):
            if info["name"] == name:
                return Method(self._native, number, info)
        known = ", ".join(m["name"] for m in self.program.methods)
        raise ExecutionError(
            f"there is no method {name!r} in {self.program.path}", f"It has {known}."
        )


def _checked_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise ProgramFormatError(f"{path!r} is not a path", "Give the file another name.", "file")
    return text


def _blocks(file: int, offset: int, size: int) -> Iterator[bytes]:
    end = offset + size
    while offset < end:
        block = os.pread(file, min(_BLOCK, end - offset), offset)
        if not block:
            raise ProgramFormatError("the file ends too early", _AGAIN, "weights", offset)
        yield block
        offset += len(block)


def load(path: str | os.PathLike[str], verify: bool = False) -> Program:
    """Open a program file. ``verify`` also reads and checks all its weights.

    >>> logits = load("model.satchel", verify=True).method("kv_forward")([65], [0])
    """
    return Program(path, verify)
