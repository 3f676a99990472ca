"""ExecuTorch: .pte files written from our graphs, without tracing."""

from satchel.backends.executorch.target import ExecutorchTarget

__all__ = ["ExecutorchTarget"]
