"""What operators of PyTorch and of ONNX say when they cannot be written."""


class OperatorError(Exception):
    """An operator is known, but not with these arguments."""
