"""Qualcomm's libraries, as the package onnxruntime-qnn brings them. Only child processes load them.

The x86 build has the compiler and an emulator of the NPU; those for Arm drive the real one.
"""

from __future__ import annotations

import importlib.util
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from satchel.backends.qnn.chips import Chip
from satchel.backends.qnn.settings import Settings
from satchel.errors import BackendError

PACKAGES = ("onnxruntime", "onnxruntime-qnn", "onnx")
INSTALL = "pip install 'satchel[qnn]'"
_PROVIDER = "QNNExecutionProvider"
# In floats it makes one op of a layer and the residual sum behind it, which the NPU does not take.
_HARMFUL = ["MatMulAddFusion"]


def missing_packages() -> list[str]:
    """Those of the extra that are not installed."""
    return [p for p in PACKAGES if importlib.util.find_spec(p.replace("-", "_")) is None]


def require_packages() -> None:
    missing = missing_packages()
    if missing:
        raise BackendError(
            f"the target qnn needs {' and '.join(missing)}", f"Install it with: {INSTALL}"
        )


def vendor_version() -> str:
    """The version of onnxruntime-qnn, or an empty text."""
    try:
        return version("onnxruntime-qnn")
    except PackageNotFoundError:
        return ""


def is_emulated() -> bool:
    """Whether methods run on the emulator here, and not on an NPU."""
    return platform.machine().lower() in ("x86_64", "amd64")


def open_session(
    model: Path,
    chip: Chip,
    context: Path | None = None,
    share: str | None = None,
    settings: Settings | None = None,
    profile: Path | None = None,
) -> Any:
    """An inference session on the NPU alone: what it does not take is an error, not a fallback.

    ``context`` is where the compiled binary goes. ``share`` puts several models into one binary:
    "more" for all but the last, which is "last". ``profile`` is where the cycles of each op go.
    """
    import onnxruntime as ort
    import onnxruntime_qnn

    if not any(d.ep_name == _PROVIDER for d in ort.get_ep_devices()):
        ort.register_execution_provider_library(_PROVIDER, onnxruntime_qnn.get_library_path())
    devices = [d for d in ort.get_ep_devices() if d.ep_name == _PROVIDER][:1]
    if not devices:
        raise BackendError("onnxruntime-qnn finds no device", "Reinstall it: " + INSTALL)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    entries = {"session.disable_cpu_ep_fallback": "1"}
    if context is not None:
        entries |= {
            "ep.context_enable": "1",
            "ep.context_file_path": str(context),
            "ep.context_embed_mode": "0",
        }
    if share:
        entries["ep.share_ep_contexts"] = "1"
    if share == "last":
        entries["ep.stop_share_ep_contexts"] = "1"
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    provider = {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), **chip.options()}
    provider |= (settings or Settings()).provider()
    if profile is not None:
        provider |= {"profiling_level": "detailed", "profiling_file_path": str(profile)}
    options.add_provider_for_devices(devices, provider)
    return ort.InferenceSession(str(model), options, disabled_optimizers=_HARMFUL)


def compiled_graph(model: Path) -> tuple[str, str]:
    """The binary that an EPContext model names, and the name of its graph in there."""
    import onnx

    (node,) = onnx.load(str(model), load_external_data=False).graph.node
    found = {a.name: a.s.decode() for a in node.attribute if a.type == onnx.AttributeProto.STRING}
    return found["ep_cache_context"], found.get("partition_name", node.name)
