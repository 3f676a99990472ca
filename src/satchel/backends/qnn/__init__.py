"""The Hexagon NPU of Qualcomm's chips, with Qualcomm's own compiler."""
