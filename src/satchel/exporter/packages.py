"""Packages that some exports need: without them, an error that says how to have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from satchel.errors import ConfigError


def torch_package() -> AbstractContextManager[None]:
    """Around the import of what needs PyTorch."""
    return _needed("exporting a module needs torch", "torch")


def onnx_package() -> AbstractContextManager[None]:
    """Around the import of what needs ONNX's package."""
    return _needed("exporting an ONNX file needs the onnx package", "onnx")


@contextmanager
def _needed(what: str, extra: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"{what} ({error})", f"pip install 'satchel[{extra}]'.") from None
