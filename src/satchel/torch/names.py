"""What a module's outputs are called: as the module itself names them."""

from __future__ import annotations

from typing import Any

from torch.utils import _pytree as pytree


def output_names(program: Any, count: int) -> list[str]:
    """``output`` or ``output_0``, …; entries of dictionaries and fields have their own names.

    What lies deeper is named by its path, as in ``past.0.key``.
    """
    numbered = ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
    tree = program.call_spec.out_spec
    if tree is None or tree.num_leaves != count:
        return numbered
    paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(count)), tree))
    parts = [[_text(key) for key in path] for path, _ in paths]
    names = [
        ".".join(one) if one and not one[0].isdigit() else ".".join([usual, *one[1:]])
        for one, usual in zip(parts, _first_numbers(parts, numbered), strict=True)
    ]
    fits = len(set(names)) == count and all(n.isprintable() for n in names)
    return names if fits else numbered


def _first_numbers(parts: list[list[str]], numbered: list[str]) -> list[str]:
    """``output_N`` by the place in the outer tuple, where there is one."""
    if all(one and one[0].isdigit() for one in parts) and len(parts) > 1:
        return [f"output_{one[0]}" for one in parts]
    return numbered


def _text(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
