"""A PyTorch module of your own: export it, run it without PyTorch, and compare the two.

pip install 'satchel[torch]' && python examples/torch_module.py
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch

import satchel


class Digits(torch.nn.Module):
    """A small classifier of 8 x 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        seen = torch.relu(self.features(image)).mean(dim=(2, 3))
        return torch.softmax(self.head(seen), dim=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--output", type=Path, help="keep the program here")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    module = Digits().eval()
    image = torch.randn(1, 1, 8, 8)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        output = arguments.output or Path(folder) / "digits.satchel"
        program = satchel.load(satchel.export(module, (image,), output, overwrite=True))
        ours = program.method("forward")(image.numpy())
        theirs = module(image).numpy()
        difference = float(np.abs(np.asarray(ours) - theirs).max())
        print(f"{program}\nlargest difference from PyTorch: {difference:.2e}")


if __name__ == "__main__":
    main()
