"""Small modules, by family of operators, with odd sizes, strides, dilations and broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


@dataclass(frozen=True)
class Row:
    """``make`` gives a module; ``shapes`` are those of its inputs, or tensors themselves."""

    name: str
    make: Callable[[], nn.Module]
    inputs: tuple[tuple[int, ...] | Tensor, ...]

    def tensors(self) -> tuple[Tensor, ...]:
        torch.manual_seed(len(self.name))
        return tuple(torch.randn(i) if isinstance(i, tuple) else i for i in self.inputs)

    def module(self) -> nn.Module:
        torch.manual_seed(7)
        return self.make().eval()


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


class Many(nn.Module):
    """Several functions of the same inputs, with an output each."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: Tensor) -> Any:
        return tuple(f(*inputs) for f in self.functions)


def seq(*layers: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*layers)


def calls(*functions: Callable[..., Any]) -> Callable[[], nn.Module]:
    return lambda: Many(*functions) if len(functions) > 1 else Call(functions[0])


class Residual(nn.Module):
    """A block like those of ResNets, with batch norm of made-up statistics."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 1)
        nn.init.uniform_(self.norm.running_mean)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)
        nn.init.normal_(self.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.second(F.relu6(self.norm(self.first(x)))))


class SqueezeExcite(nn.Module):
    """A block like those of MobileNetV3."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(5, 12, 1)
        self.depth = nn.Conv2d(12, 12, 5, stride=2, padding=2, groups=12)
        self.down, self.up = nn.Conv2d(12, 4, 1), nn.Conv2d(4, 12, 1)
        self.narrow = nn.Conv2d(12, 7, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.depth(F.hardswish(self.wide(x))))
        gate = F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))
        return self.narrow(gate * x)


class Windows(nn.Module):
    """What Swin does: shifted windows, attention with a bias, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.bias = nn.Parameter(torch.randn(9, 2))
        self.register_buffer("number", torch.arange(16).reshape(4, 4) % 9)

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        x = torch.roll(F.pad(x, (0, 0, 0, 1, 0, 1)), (-1, -1), (1, 2))
        parts = x.view(n, 3, 2, 3, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(n * 9, 4, c)
        q, k, v = self.qkv(parts).reshape(-1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        bias = self.bias[self.number.view(-1)].view(4, 4, 2).permute(2, 0, 1)
        weights = (q * 0.5 @ k.transpose(-2, -1) + bias.unsqueeze(0)).softmax(-1)
        parts = self.out((weights @ v).transpose(1, 2).reshape(n * 9, 4, c))
        x = parts.view(n, 3, 3, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(n, 6, 6, c)
        return torch.roll(x, (1, 1), (1, 2))[:, :h, :w]


ids = torch.tensor([[1, 5, 2], [0, 9, 9]])
mask = torch.tensor([[True, False, True, True, False]])

ROWS = [
    Row("mlp", seq(nn.Linear(7, 13), nn.GELU(), nn.Linear(13, 3)), ((4, 7),)),
    Row("linear_of_vectors", seq(nn.Linear(5, 3, bias=False), nn.Tanh()), ((2, 3, 5),)),
    Row("conv2d", seq(nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.ReLU()), ((2, 3, 9, 7),)),
    Row(
        "conv2d_asymmetric", seq(nn.Conv2d(3, 4, (3, 5), (2, 1), (0, 3), (2, 1))), ((1, 3, 11, 8),)
    ),
    Row("conv2d_groups", seq(nn.Conv2d(6, 9, 3, groups=3, bias=False)), ((1, 6, 7, 5),)),
    Row("conv2d_depthwise", seq(nn.Conv2d(8, 8, 5, padding="same", groups=8)), ((1, 8, 6, 9),)),
    Row("conv2d_unbatched", seq(nn.Conv2d(2, 3, 3)), ((2, 5, 6),)),
    Row(
        "conv1d", seq(nn.Conv1d(4, 6, 5, stride=2, padding=3, dilation=2), nn.SiLU()), ((2, 4, 17),)
    ),
    Row("conv_transpose2d", seq(nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2)), ((1, 4, 5, 6),)),
    Row("conv_transpose1d", seq(nn.ConvTranspose1d(3, 5, 4, stride=3, dilation=2)), ((2, 3, 6),)),
    Row("residual", lambda: Residual(6), ((1, 6, 7, 9),)),
    Row("squeeze_excite", SqueezeExcite, ((1, 5, 11, 8),)),
    Row(
        "max_pool",
        seq(nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.MaxPool2d((2, 1))),
        ((1, 3, 10, 7),),
    ),
    Row("max_pool1d", seq(nn.MaxPool1d(3, 2, dilation=2)), ((2, 3, 11),)),
    Row(
        "avg_pool",
        calls(
            lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 0)),
            lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            lambda x: F.avg_pool2d(x, 2, divisor_override=3),
            lambda x: F.avg_pool2d(x, 2, divisor_override=-3),
        ),
        ((2, 3, 9, 7),),
    ),
    Row(
        "avg_pool3d",
        calls(
            lambda x: F.avg_pool3d(x, (4, 3, 2), (2, 3, 2), 1, ceil_mode=True),
            lambda x: F.avg_pool3d(x, 2, 2, 1, False, False),
            lambda x: F.avg_pool3d(x, 2, divisor_override=-3),
        ),
        ((1, 2, 6, 5, 4),),
    ),
    Row("avg_pool of a small image", seq(nn.AvgPool2d(9, ceil_mode=True)), ((1, 3, 5, 12),)),
    Row("avg_pool1d", seq(nn.AvgPool1d(3, 2, 1)), ((1, 4, 10),)),
    Row(
        "adaptive_pool",
        calls(
            lambda x: F.adaptive_avg_pool2d(x, 1),
            lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
            lambda x: F.adaptive_avg_pool2d(x, (4, None)),
            lambda x: F.adaptive_max_pool2d(x, (2, 3)),
            lambda x: F.adaptive_max_pool2d(x, (2, 3), return_indices=True)[1],
            lambda x: F.adaptive_max_pool1d(x[0], 4, return_indices=True)[1],
            lambda x: F.adaptive_max_pool3d(x[:1], (2, 3, 2)),
        ),
        ((2, 3, 9, 7),),
    ),
    Row("batch_norm", seq(nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)), ((2, 4, 3, 5),)),
    Row("batch_norm1d", seq(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()), ((5, 3),)),
    Row(
        "norms",
        seq(nn.GroupNorm(2, 6), nn.InstanceNorm2d(6, affine=True), nn.LayerNorm((4, 5))),
        ((2, 6, 4, 5),),
    ),
    Row(
        "rms_norm",
        seq(nn.RMSNorm(6, eps=1e-6), nn.LayerNorm(6, elementwise_affine=False)),
        ((3, 6),),
    ),
    Row(
        "activations",
        calls(
            *(getattr(F, name) for name in "relu6 hardswish hardsigmoid silu mish selu".split()),
            *(getattr(F, name) for name in "softplus logsigmoid softsign hardtanh elu".split()),
            lambda x: F.leaky_relu(x, 0.2),
            lambda x: F.celu(x, 1.5),
            lambda x: F.softplus(x, 0.5, 0.3),
            lambda x: F.softmax(x[0, 0, 0], 0) + F.log_softmax(x[0, 0, 0], 0),
            lambda x: F.gelu(x, approximate="tanh"),
            lambda x: F.prelu(x, torch.tensor([0.3, -0.2, 0.1])),
            lambda x: F.threshold(x, 0.1, -2),
            lambda x: F.glu(x, 2),
            lambda x: F.softmax(x, 1),
            lambda x: F.log_softmax(x, -1),
            lambda x: F.softmin(x, 0),
        ),
        ((2, 3, 4),),
    ),
    Row(
        "arithmetic",
        calls(
            lambda a, b: a + b,
            lambda a, b: a - 2 * b,
            lambda a, b: 3 - a * b,
            lambda a, b: a / (b.abs() + 1),
            lambda a, b: torch.add(a, b, alpha=0.5),
            lambda a, b: torch.maximum(a, b) - torch.minimum(a, b),
            lambda a, b: (a.abs() + 0.1) ** b,
            lambda a, b: a**3 + a**2 - a**4 + b.square(),
            lambda a, b: 2.0**b,
            lambda a, b: torch.clamp(a, b, b + 1) + a.clamp_max(b) * 2 - a.clamp_min(b),
            lambda a, b: (a * 7) % 3 - torch.fmod(b * 5, 2),
            lambda a, b: torch.floor_divide(a * 9, b.abs() + 1),
            lambda a, b: torch.addcmul(a, b, b, value=0.3),
            lambda a, b: torch.lerp(a, b, 0.25),
            lambda a, b: torch.where(a > b, a, 0.0) + torch.where(a == b, b, a),
        ),
        ((2, 1, 4), (3, 1)),
    ),
    Row(
        "unary",
        calls(
            *(
                getattr(torch, n)
                for n in "neg abs exp sin cos tan tanh erf floor ceil trunc".split()
            ),
            *(getattr(torch, n) for n in "sign round sigmoid expm1 isnan relu square".split()),
            lambda x: torch.log(x.abs()) + torch.log2(x.abs()) + torch.log10(x.abs()),
            lambda x: torch.log1p(x.abs()) + torch.sqrt(x.abs()) + torch.rsqrt(x.abs()),
            lambda x: torch.reciprocal(x.abs() + 0.5),
            lambda x: x.round(decimals=2) + (x * 900).round(decimals=-2),
            lambda x: F.group_norm(x[None], 1, eps=-1e-3) + x[0, 0].gather(0, torch.tensor(0)),
            lambda x: torch.clamp(x, -0.5, 0.7) + torch.clamp(x, min=0.1) + x.clamp(max=0.2),
            lambda x: x.clamp_max(0.3) + 3 * x.clamp_min(-0.2),
        ),
        ((3, 5),),
    ),
    Row(
        "seldom",
        calls(
            lambda x, y: torch.fmax(x, y / (y > 0)) + torch.fmin(x / (x > 0), y),
            lambda x, y: torch.copysign(x, y) + torch.copysign(x, -0.0) + torch.copysign(y, 0.0),
            lambda x, y: torch.signbit(x) ^ torch.signbit(-(y > 9).float()),
            lambda x, y: x.angle() + y.int().angle(),
            lambda x, y: torch.lerp(x, y, 0.3) - x.lerp(y, y) * x.T.lerp(y.T, 0.8).T,
            lambda x, y: torch.ldexp(x, torch.tensor(3)),
            lambda x, y: torch.dist(x, y, 3),
            lambda x, y: torch.addmv(x[:, 0], x, y[0], beta=0.5, alpha=2),
            lambda x, y: torch.addbmm(x[:, :1], torch.stack([x, y]), y[:2, :, None], beta=3),
            lambda x, y: x.diagonal_scatter(y[0, :4]),
            lambda x, y: torch.as_strided_scatter(x, y[:, 0], (4,), (5,), 1),
            lambda x, y: x[tuple(torch.tril_indices(4, 5, 1))] + 1,
            lambda x, y: (x + y).T.as_strided((3, 2, 2), (4, 2, 1)) * 2,
            lambda x, y: (x * y)[1:, 1:4].as_strided((2, 3), (5, 1)) + 1,
            lambda x, y: (x * y)[1:].as_strided((2, 3), (3, 1), 6).relu(),
        ),
        ((4, 5), (4, 5)),
    ),
    Row(
        "linalg",
        calls(
            lambda a, b: torch.linalg.inv(a),
            lambda a, b: torch.linalg.solve(a, b) + torch.linalg.solve(a[0], b),
            lambda a, b: torch.linalg.solve(a[0], b[1, :, 0]),
            lambda a, b: torch.linalg.solve(a, b.mT, left=False),
            lambda a, b: torch.linalg.det(a),
            lambda a, b: torch.linalg.slogdet(a).logabsdet * torch.linalg.slogdet(a).sign,
            lambda a, b: torch.linalg.cholesky(a @ a.mT + torch.eye(5)),
            lambda a, b: torch.linalg.cholesky(a @ a.mT + torch.eye(5), upper=True),
            lambda a, b: torch.cholesky_solve(b, a.tril() + 3 * torch.eye(5)),
            lambda a, b: torch.linalg.solve_triangular(a + 3 * torch.eye(5), b, upper=True),
            lambda a, b: torch.linalg.solve_triangular(
                0.2 * a, b.mT, upper=False, left=False, unitriangular=True
            ),
        ),
        ((2, 5, 5), (2, 5, 3)),
    ),
    Row(
        "comparison",
        calls(
            lambda a, b: (a < b) | (a >= 0.5),
            lambda a, b: torch.logical_xor(a != b, ~(b <= 0)),
            lambda a, b: (a > b) & (b > 0),
            lambda a, b: a.masked_fill(b > 0, -7.0),
            lambda a, b: (a > 0).float() * b + (b > 0).int(),
            lambda a, b: torch.isinf(a / (b * 0)),
            lambda a, b: torch.max(a > 0, b > 0) ^ torch.min(a > 1, b > 0),
            lambda a, b: b.masked_scatter(a > 0, a),
        ),
        ((2, 3, 4), (3, 1)),
    ),
    Row(
        "reductions",
        calls(
            lambda x: x.sum(),
            lambda x: x.mean((0, 2), keepdim=True),
            lambda x: x.amax(1) - x.amin(-2),
            lambda x: x.max(2).values,
            lambda x: x.min(1, keepdim=True).indices,
            lambda x: x.max(),
            lambda x: x.argmax(1),
            lambda x: x.argmin(),
            lambda x: x.var(1) + x.std(1, unbiased=False),
            lambda x: torch.var_mean(x, (0, 1))[1],
            lambda x: torch.linalg.vector_norm(x, dim=-1) + x.norm(1, 2),
            lambda x: torch.logsumexp(x, (0, 2)),
            lambda x: torch.logsumexp(torch.log(x.clamp(0) * torch.tensor([0.0] * 4 + [1])), 1),
            lambda x: x[0, 0, 0].cummax(0).values + x[0, 0, 1].median(0).values,
            lambda x: x.cumsum(1),
            lambda x: (x > 1).any(2) | (x > -2).all(2),
            lambda x: F.normalize(x, dim=1),
        ),
        ((3, 4, 5),),
    ),
    Row(
        "shapes",
        calls(
            lambda x: x.flatten(1).unflatten(1, (8, 3)),
            lambda x: x.permute(2, 0, 1).unsqueeze(1),
            lambda x: x.transpose(0, 2).reshape(6, 8),
            lambda x: x[:, 1:, ::2],
            lambda x: x[..., -1] + x[:, 0, :1],
            lambda x: torch.cat([x, x * 2, x[:1]], 0),
            lambda x: torch.stack([x, -x], 1),
            lambda x: torch.cat([x[:, :, i : i + 1] for i in range(6)] * 2, 2),
            lambda x: x.split([1, 3], 1)[1],
            lambda x: x.chunk(3, 2)[0] + x.split(2, 2)[2],
            lambda x: x.unbind(1)[2],
            lambda x: x.roll((1, -2), (0, 2)),
            lambda x: x.flip(0, 2),
            lambda x: x.repeat(2, 1, 3),
            lambda x: x[:, :1].expand(2, 4, 6).squeeze(),
            lambda x: F.pixel_shuffle(x.reshape(1, 4, 2, 6), 2),
            lambda x: torch.tril(x) + torch.triu(x, 2),
            lambda x: x.movedim(0, 2).swapaxes(0, 1),
        ),
        ((2, 4, 6),),
    ),
    Row(
        "padding",
        calls(
            lambda x: F.pad(x, (1, 2)),
            lambda x: F.pad(x, (2, 0, 1, 3), value=1.5),
            lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"),
            lambda x: F.pad(x, (0, 3, 1, 0), mode="replicate"),
            lambda x: F.pad(x, (2, 1, 0, 2), mode="circular"),
            lambda x: F.pad(x, (-1, 1, 0, -2)),
            lambda x: F.pad(x, (-1, 1, 2, -2), mode="reflect"),
            lambda x: F.pad(x, (1, -1, -1, 1), mode="replicate"),
        ),
        ((1, 2, 4, 5),),
    ),
    Row(
        "interpolation",
        calls(
            lambda x: F.interpolate(x, scale_factor=2),
            lambda x: F.interpolate(x, (7, 3)),
            lambda x: F.interpolate(x, (9, 4), mode="bilinear"),
            lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True),
            lambda x: F.interpolate(x, (10, 13), mode="bicubic"),
            lambda x: F.interpolate(x, (3, 11), mode="nearest-exact"),
            lambda x: F.interpolate(x[:, :, 0], 9, mode="linear"),
            lambda x: F.interpolate(x, (2, 4), mode="bilinear", antialias=True),
            lambda x: F.interpolate(x, (8, 3), mode="bicubic", antialias=True),
            lambda x: F.interpolate(x, scale_factor=0.7, mode="bilinear", antialias=True),
            lambda x: F.interpolate(x, (4, 3), mode="bicubic", align_corners=True, antialias=True),
        ),
        ((1, 2, 5, 6),),
    ),
    Row("embedding", seq(nn.Embedding(10, 6), nn.Linear(6, 2)), (ids,)),
    Row("embedding of short rows", seq(nn.Embedding(10, 6, max_norm=1.5, norm_type=3)), (ids,)),
    Row("embedding_bag", seq(nn.EmbeddingBag(10, 6, mode="mean", padding_idx=9)), (ids,)),
    Row(
        "indexing",
        calls(
            lambda x, i: x[:, i],
            lambda x, i: torch.index_select(x, 1, i[0]),
            lambda x, i: x.gather(1, i[:, :2] % 4),
            lambda x, i: x[:, torch.tensor([3, -1, 0])],
            lambda x, i: x[torch.tensor([1, 0]), torch.tensor([2, 3])],
            lambda x, i: torch.where(i > 1, i, i + 3) * 2 - i.clamp(0, 3),
            lambda x, i: x + torch.arange(10) + torch.linspace(0, 1, 10) + torch.full((10,), 2.0),
            lambda x, i: x[:, :2] + torch.arange(-0.9, 2.1, 2.0, dtype=torch.int32),
        ),
        (torch.randn(2, 10, generator=torch.Generator().manual_seed(1)), ids),
    ),
    Row(
        "products",
        calls(
            lambda a, b: a @ b,
            lambda a, b: torch.einsum("bij,bjk->bik", a, b),
            lambda a, b: torch.einsum("bij,bjk->ki", a, b),
            lambda a, b: torch.baddbmm(a[:, :, :1], a, b, beta=0.5, alpha=2),
            lambda a, b: a[0] @ b[0, :, 0],
            lambda a, b: a[0, 0] @ b,
            lambda a, b: torch.addmm(a[0, :, :1], a[0], b[0]),
            lambda a, b: F.linear(a, b.transpose(1, 2)[0]),
        ),
        ((3, 4, 5), (3, 5, 2)),
    ),
    Row(
        "attention",
        calls(
            F.scaled_dot_product_attention,
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3, attn_mask=mask),
            lambda q, k, v: F.scaled_dot_product_attention(k, k, v, is_causal=True),
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask.float()),
            lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
        ),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
    ),
    Row("multihead", lambda: nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), ((2, 5, 8),)),
    Row("windows", Windows, ((1, 5, 5, 8),)),
]
