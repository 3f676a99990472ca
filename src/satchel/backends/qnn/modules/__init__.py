"""PyTorch modules, vision models above all, on the NPU: every value has calibrated codes."""
