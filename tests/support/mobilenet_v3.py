"""MobileNetV3-small with torchvision's names of parameters, for weights without torchvision."""

from __future__ import annotations

from torch import Tensor, nn

# kernel, expanded, out, squeeze, hard-swish, stride
BLOCKS = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)


def _conv(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    act: nn.Module | None = None,
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=0.001),
    ]
    return nn.Sequential(*layers, *([act] if act else []))


class Squeeze(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        narrow = max(8, int(channels / 4 + 4) // 8 * 8)
        narrow += 8 if narrow < 0.9 * channels / 4 else 0
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(channels, narrow, 1), nn.Conv2d(narrow, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.fc2(self.fc1(self.avgpool(x)).relu())
        return nn.functional.hardsigmoid(gate) * x


class Block(nn.Module):
    def __init__(
        self, inputs: int, kernel: int, wide: int, out: int, squeeze: bool, swish: bool, stride: int
    ) -> None:
        super().__init__()
        act = nn.Hardswish if swish else nn.ReLU
        layers: list[nn.Module] = [] if wide == inputs else [_conv(inputs, wide, 1, act=act())]
        layers.append(_conv(wide, wide, kernel, stride, wide, act()))
        layers += [Squeeze(wide)] if squeeze else []
        layers.append(_conv(wide, out, 1))
        self.block = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == out

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x) + x if self.adds else self.block(x)


class MobileNetV3Small(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        features: list[nn.Module] = [_conv(3, 16, 3, 2, act=nn.Hardswish())]
        channels = 16
        for kernel, wide, out, squeeze, swish, stride in BLOCKS:
            features.append(Block(channels, kernel, wide, out, squeeze, swish, stride))
            channels = out
        features.append(_conv(channels, 576, 1, act=nn.Hardswish()))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        head = [nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, classes)]
        self.classifier = nn.Sequential(*head)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))
