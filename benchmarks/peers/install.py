"""Installs a peer into an environment of its own.

    python benchmarks/peers/install.py llamacpp
    python benchmarks/peers/install.py all --folder /tmp/peers
    python benchmarks/peers/install.py vision

SATCHEL_PEER_ENVIRONMENTS is another folder for all of them, which sweeps look into as well.

Packages come through the user's own pip settings. llama.cpp is compiled, which takes some ten
minutes and a C++ compiler; AMX is left out, because it dies there under some hypervisors.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path

# A plain torch would bring gigabytes for another kind of processor along.
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Recipe:
    packages: tuple[str, ...]
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()  # what a dependency asks for but does not work here
    extra: tuple[str, ...] = ()  # installed alone, without what they ask for


_AVX2 = "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON"
_AVX512 = f"{_AVX2} -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON"
_LLAMA = ("llama-cpp-python==0.3.36", "gguf")
# pip would give the second build the first one's wheel.
_BUILD = ("--no-cache-dir", "--no-binary", "llama-cpp-python")

_VISION = ("torchvision==0.28.0",)

RECIPES = {
    "llamacpp": Recipe(_LLAMA, _BUILD, {"CMAKE_ARGS": _AVX512}),
    "llama-bench": Recipe(("gguf",)),  # the tool itself comes with llama.cpp
    "llamacpp-avx2": Recipe(_LLAMA, _BUILD, {"CMAKE_ARGS": _AVX2}),
    "onnxruntime-genai": Recipe(
        (TORCH, "onnxruntime-genai==0.18.0", "onnx", "onnx_ir", "transformers>=5", "safetensors")
    ),
    # torchvision is built for another torch than the pinned one, and language models need none.
    "openvino-genai": Recipe(
        (TORCH, "openvino-genai>=2026.4", "optimum-intel>=2.2", "nncf>=3.4"),
        remove=("torchvision",),
    ),
    "executorch": Recipe((TORCH, "executorch==1.5.1", "safetensors", "pillow"), extra=_VISION),
    # The rest is for vision models; torchvision comes without its dependencies, because its wheel
    # asks for another torch.
    "onnxruntime": Recipe(
        (TORCH, "onnxruntime>=1.31", "onnx", "onnxscript", "pillow", "sympy"), extra=_VISION
    ),
    "xllamacpp": Recipe(("xllamacpp",)),  # llama.cpp's HTTP server, for benchmarks/serve_load.py
    "openvino": Recipe(("openvino>=2026.4", "nncf>=3.4")),
    "ncnn": Recipe(("ncnn", "numpy"), extra=("pnnx",)),
}
GROUPS = {"all": tuple(RECIPES), "vision": ("onnxruntime", "openvino", "ncnn", "executorch")}


def default_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "satchel-benchmarks"


def environments_folder() -> Path:
    """Where sweeps look for environments too."""
    chosen = os.environ.get("SATCHEL_PEER_ENVIRONMENTS")
    return Path(chosen) if chosen else default_folder() / "environments"


def interpreter(name: str, environments: Path) -> Path:
    return environments / name / "bin" / "python"


def install(name: str, environments: Path) -> None:
    """Makes the environment; an unfinished one is completed by doing it again."""
    recipe = RECIPES[name]
    if not interpreter(name, environments).exists():
        venv.create(environments / name, with_pip=True)
    pip = [str(interpreter(name, environments)), "-m", "pip"]
    environment = {**os.environ, **recipe.environment}
    subprocess.run(
        [*pip, "install", *recipe.options, *recipe.packages], check=True, env=environment
    )
    if recipe.extra:
        subprocess.run([*pip, "install", "--no-deps", *recipe.extra], check=True)
    if recipe.remove:
        subprocess.run([*pip, "uninstall", "--yes", *recipe.remove], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=[*RECIPES, *GROUPS])
    folder = environments_folder()
    parser.add_argument("--folder", type=Path, default=folder, help=f"default: {folder}")
    arguments = parser.parse_args()
    failed = []
    for name in GROUPS.get(arguments.name, (arguments.name,)):
        try:
            install(name, arguments.folder.resolve())
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"{name} was not installed: {error}", file=sys.stderr)
            failed.append(name)
    sys.exit(f"not installed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
