"""ONNX models: read with the ``onnx`` package, written as graphs like PyTorch's modules."""
