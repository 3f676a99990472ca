"""A Core ML package as a program: Core ML runs it on a Mac, an interpreter in numpy anywhere.

What runs on a Mac (:class:`CoreMl`) has been tried with a stand-in for coremltools' interface only.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Protocol

import coremltools as ct
import numpy as np
from numpy.typing import NDArray

from satchel._native import Tokenizer
from satchel.backends.called import CalledMethod
from satchel.backends.coreml.interpreter import PackageInterpreter
from satchel.errors import ConfigError, ExecutionError, ProgramFormatError
from satchel.program.names import KV_METHOD, PREFILL_METHOD
from satchel.runtime.program import Instance, Method, OneSequence, Program, VerifyProgress

Array = NDArray[Any]
ABOUT, UNITS = "com.satchel.about", "com.satchel.units"  # in what a package says of itself
FUNCTIONS = {KV_METHOD: "kv", PREFILL_METHOD: "prefill"}
_ALONE = ""  # stands for the function of a package that has one
_BLOCK = 8 << 20
_COMPUTE_UNITS = {"ane": "CPU_AND_NE", "gpu": "CPU_AND_GPU", "all": "ALL"}


class PackageProgram(Program):
    """A package that Satchel wrote, with its tokenizer beside it."""

    def __init__(self, path: str | Path) -> None:
        self.path, self._target = Path(path), None
        try:
            self.spec = ct.models.utils.load_spec(str(path))
        except Exception as error:  # whatever it finds there
            reason = " ".join(str(error).split())
            raise ProgramFormatError(
                f"{path} is no Core ML package ({reason})", "Export it again.", "file"
            ) from None
        self._said = dict(self.spec.description.metadata.userDefined)

    def reopened(self) -> Program:
        return PackageProgram(self.path)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        try:
            document = json.loads(self._said[ABOUT])
        except (KeyError, ValueError):
            raise ProgramFormatError(
                f"{self.path} does not say what it is", "Export it with this version.", "metadata"
            ) from None
        assert isinstance(document, dict)
        return document

    @property
    def units(self) -> str:
        return str(self._said.get(UNITS, "all"))

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self._files())

    def _files(self) -> Iterator[Path]:
        return (path for path in sorted(self.path.rglob("*")) if path.is_file())

    @cached_property
    def checksum(self) -> str:
        whole = hashlib.sha256()
        for path in self._files():
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    whole.update(block)
        return whole.hexdigest()

    def verify(self, progress: VerifyProgress | None = None) -> None:
        raise ConfigError("a Core ML package has no checksums to verify", "Leave --verify out.")

    def section(self, name: str) -> bytes:
        path = self.path.with_name(f"{self.path.stem}.tokenizer.json")
        if name != "tokenizer":
            raise ExecutionError(f"a Core ML package has no section {name!r}")
        if not path.exists():
            raise ExecutionError(
                f"{path.name} is not beside {self.path.name}", "Export writes both: keep them so."
            )
        return path.read_bytes()

    def compiled_tokenizer(self) -> Tokenizer | None:
        return None

    @property
    def functions(self) -> dict[str, Any]:
        """What each function takes and gives."""
        listed = {each.name: each for each in self.spec.description.functions}
        return listed or {_ALONE: self.spec.description}

    @property
    def stateful(self) -> bool:
        return any(len(function.state) for function in self.functions.values())

    @cached_property
    def caches(self) -> dict[str, tuple[int, ...]]:
        """Shapes [1, heads, context, size] by name, of states or of inputs."""
        function = next(iter(self.functions.values()))
        if self.stateful:
            return {s.name: tuple(s.type.stateType.arrayType.shape) for s in function.state}
        arrays = {i.name: tuple(i.type.multiArrayType.shape) for i in function.input}
        return {name: shape for name, shape in arrays.items() if name.startswith("cache")}

    @cached_property
    def states(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "cache": True,
                "dtype": "f16",
                "shape": list(shape[1:]),
                "bytes": 2 * prod(shape),
            }
            for name, shape in self.caches.items()
        ]

    @cached_property
    def weights(self) -> list[dict[str, Any]]:
        """They are the package's own."""
        return []

    @cached_property
    def methods(self) -> list[dict[str, Any]]:
        """With the inputs and outputs that methods of a program have."""
        if not self.is_language_model:
            return [self._module_method()]
        names = [m for m, f in FUNCTIONS.items() if f in self.functions] or [KV_METHOD]
        return [self._method(name) for name in names]

    def _method(self, name: str) -> dict[str, Any]:
        count = self.block if name == PREFILL_METHOD else 1
        tokens, rows = (("S", count), ("L", count)) if count > 1 else (1, 1)
        named = {"tokens": tokens, "position": tokens}
        named |= {"rows": rows} if count > 1 else {}
        vocabulary = int(self.metadata["vocab_size"])
        listed = [{"name": n, "dtype": "i32", "shape": [s]} for n, s in named.items()]
        weights = self.path / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
        return {
            "name": name,
            "inputs": [*listed, {"name": "sequence", "dtype": "i32", "shape": [tokens]}],
            "outputs": [{"name": "logits", "dtype": "f32", "shape": [rows, vocabulary]}],
            "weight_bytes_read": weights.stat().st_size,
        }

    @property
    def block(self) -> int:
        """The tokens that a call of ``prefill`` has."""
        if "prefill" not in self.functions:
            return 1
        tokens = next(i for i in self.functions["prefill"].input if i.name == "tokens")
        return int(tokens.type.multiArrayType.shape[1])

    @property
    def takes_pictures(self) -> bool:
        first = self.spec.description.input[0].type
        return bool(first.WhichOneof("Type") == "imageType")

    def _module_method(self) -> dict[str, Any]:
        def arrays(features: Any) -> list[dict[str, Any]]:
            shapes = [(f.name, list(f.type.multiArrayType.shape)) for f in features]
            return [{"name": name, "dtype": "f32", "shape": shape} for name, shape in shapes]

        description = self.spec.description
        if not self.takes_pictures:
            inputs, outputs = arrays(description.input), arrays(description.output)
        else:
            (picture,) = description.input
            size = [picture.type.imageType.height, picture.type.imageType.width]
            inputs = [{"name": picture.name, "dtype": "f32", "shape": [1, 3, *size]}]
            classes = len(self.metadata["vision"]["classes"])
            outputs = [{"name": "scores", "dtype": "f32", "shape": [1, classes]}]
        return {"name": "forward", "inputs": inputs, "outputs": outputs, "weight_bytes_read": 0}


class Engine(Protocol):
    """Runs functions of a package, and keeps its states."""

    def run(self, function: str, /, **inputs: Any) -> Mapping[str, Any]: ...

    def picture(self, pixels: Array) -> Any:
        """Pixels [1, 3, height, width], 0 to 255, as a function is given them."""


class CoreMl:
    """Core ML itself, through coremltools."""

    def __init__(self, program: PackageProgram) -> None:
        units = getattr(ct.ComputeUnit, _COMPUTE_UNITS[program.units])
        names = list(program.functions)
        self._models = {
            name: ct.models.MLModel(
                str(program.path),
                compute_units=units,
                function_name=name or None,
            )
            for name in names
        }
        # One for all functions: they have the same states.
        self._state = self._models[names[0]].make_state() if program.stateful else None

    def run(self, function: str, /, **inputs: Any) -> Mapping[str, Any]:
        model = self._models[function]
        made: Mapping[str, Any]
        made = model.predict(inputs) if self._state is None else model.predict(inputs, self._state)
        return made

    def picture(self, pixels: Array) -> Any:
        from PIL import Image

        return Image.fromarray(np.rint(pixels[0]).astype(np.uint8).transpose(1, 2, 0))


class _Interpreter:
    """The interpreter in numpy."""

    def __init__(self, program: PackageProgram) -> None:
        self.run = PackageInterpreter(program.path).run

    def picture(self, pixels: Array) -> Any:
        return np.rint(pixels)


class PackageInstance(OneSequence, Instance):
    """A package being run: by Core ML, or by the interpreter."""

    other_bits_in_blocks = "Core ML may give a token other bits alone than in a block"

    def __init__(self, program: PackageProgram, engine: Engine, kernels: str) -> None:
        self.program: PackageProgram = program
        self.threads, self.kernels, self._engine = 1, kernels, engine
        given = {} if program.stateful else program.caches
        self._caches = {name: np.zeros(shape, np.float16) for name, shape in given.items()}

    def method(self, name: str) -> Method:
        for info in self.program.methods:
            if info["name"] == name:
                module = not self.program.is_language_model
                return CalledMethod(self._forward if module else self._read, info)
        known = ", ".join(m["name"] for m in self.program.methods)
        raise ExecutionError(
            f"there is no method {name!r} in {self.program.path}", f"It has {known}."
        )

    def reset(self) -> None:
        """Nothing is to be done: what lies behind a token is not seen by it."""

    def _read(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Tokens in blocks up to the next one whose logits are wanted, or one by one."""
        tokens, start = inputs["tokens"], int(inputs["position"][0])
        wanted = [int(row) for row in inputs.get("rows", [len(tokens) - 1])]
        context, block = self.program.states[0]["shape"][1], self.program.block
        found, at = {}, 0
        while at < len(tokens):
            end = min([row + 1 for row in wanted if row >= at], default=len(tokens))
            count = min(end - at, block)
            # A block may not reach over the context's end, and one token is cheaper alone.
            count = 1 if start + at + block > context else count
            some = tokens[at : at + count]
            logits = self._step(some, start + at) if count == 1 else self._block(some, start + at)
            at += count
            found[at - 1] = logits
        return {"logits": np.stack([found[row] for row in wanted])}

    def _step(self, tokens: Array, position: int) -> Array:
        function = "kv" if "kv" in self.program.functions else _ALONE
        given = {"tokens": tokens[None], "position": _whole(position), **self._caches}
        made = self._engine.run(function, **given)
        for name, cache in self._caches.items():
            cache[:, :, position : position + 1] = made[f"{name}_new"]
        return _first(made["logits"])

    def _block(self, tokens: Array, position: int) -> Array:
        """What fills a block up is written behind the last token, where nobody sees it."""
        filled = np.zeros((1, self.program.block), np.int32)
        filled[0, : len(tokens)] = tokens
        last = _whole(len(tokens) - 1)
        made = self._engine.run("prefill", tokens=filled, position=_whole(position), last=last)
        return _first(made["logits"])

    def _forward(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        if not self.program.takes_pictures:
            return {
                name: np.asarray(array, np.float32)
                for name, array in self._engine.run(_ALONE, **inputs).items()
            }
        ((name, array),) = inputs.items()
        vision = self.program.metadata["vision"]
        mean, std = (np.array(vision["preprocessing"][key]) for key in ("mean", "std"))
        pixels = (array * std[:, None, None] + mean[:, None, None]) * 255
        picture = self._engine.picture(np.clip(pixels, 0, 255).astype(np.float32))
        made = self._engine.run(_ALONE, **{name: picture})
        likely = next(value for value in made.values() if isinstance(value, Mapping))
        scores = np.array([[likely[label] for label in vision["classes"]]], np.float64)
        return {"scores": np.log(np.maximum(scores, 1e-30)).astype(np.float32)}


def _first(logits: Any) -> Array:
    """The row that a call gives."""
    row: Array = np.asarray(logits, np.float32)[0]
    return row


def _whole(number: int) -> Array:
    return np.array([number], np.int32)


def opened(program: PackageProgram) -> PackageInstance:
    """Run by Core ML."""
    if sys.platform != "darwin":
        raise ExecutionError(
            f"{program.path} runs on Apple's systems: this one has no Core ML",
            "Run it on a Mac, or see what it computes here with satchel eval --phases qdq.",
        )
    return PackageInstance(program, CoreMl(program), f"coreml {program.units}")


def interpreted(program: PackageProgram) -> PackageInstance:
    """Run by the interpreter."""
    return PackageInstance(program, _Interpreter(program), "interpreter")
