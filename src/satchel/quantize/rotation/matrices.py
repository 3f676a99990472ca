"""Orthogonal matrices that spread a vector evenly over all its entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def orthogonal(size: int, seed: int) -> Array:
    """A Hadamard matrix with random signs where one of this size is known, else a random one.

    >>> q = orthogonal(12, seed=0)
    >>> bool(np.allclose(q @ q.T, np.eye(12))), bool(np.allclose(abs(q), 12**-0.5))
    (True, True)
    """
    random = np.random.default_rng(seed)
    known = hadamard(size)
    if known is not None:
        signs = random.choice([-1.0, 1.0], size)
        matrix: Array = signs[:, None] * known / np.sqrt(size)
        return matrix
    found, triangle = np.linalg.qr(random.standard_normal((size, size)))
    unbiased: Array = found * np.sign(np.diagonal(triangle))
    return unbiased


def hadamard(size: int) -> Array | None:
    """A matrix of ±1 whose rows are orthogonal, by Sylvester's and Paley's constructions.

    >>> hadamard(2).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    >>> hadamard(6) is None
    True
    """
    if size in (1, 2):
        return np.array([[1.0]]) if size == 1 else np.array([[1.0, 1.0], [1.0, -1.0]])
    if size < 1 or size % 4:
        return None
    half = hadamard(size // 2)
    if half is not None:
        return np.kron(np.array([[1.0, 1.0], [1.0, -1.0]]), half)
    if _is_prime(size - 1):  # size % 4 == 0, so the prime is 3 more than a multiple of 4
        skew = _bordered(size - 1, -1.0)
        return skew + np.eye(size)
    prime = size // 2 - 1
    if prime % 4 == 1 and _is_prime(prime):
        symmetric = _bordered(prime, 1.0)
        return np.kron(symmetric, [[1.0, 1.0], [1.0, -1.0]]) + np.kron(
            np.eye(size // 2), [[1.0, -1.0], [-1.0, -1.0]]
        )
    return None


def _bordered(prime: int, sign: float) -> Array:
    """Paley's matrix: which differences are squares, with a border of ones."""
    squares = {i * i % prime for i in range(1, prime)}
    character = np.array([0.0] + [1.0 if i in squares else -1.0 for i in range(1, prime)])
    index = np.arange(prime)
    matrix = np.zeros((prime + 1, prime + 1))
    matrix[1:, 1:] = character[(index[None, :] - index[:, None]) % prime]
    matrix[0, 1:], matrix[1:, 0] = 1.0, sign
    return matrix


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))
