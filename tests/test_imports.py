"""No module needs, even later, one that needs it: imports inside functions count too."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import satchel

ROOT = Path(satchel.__file__).parent
MODULES = {
    ".".join(["satchel", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(
        ".__init__"
    ): path
    for path in ROOT.rglob("*.py")
}


def imported(tree: ast.AST) -> set[str]:
    """What a module imports, but for what only a type checker reads."""
    names: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        else:
            names |= imported(node)
    return names


def test_there_are_no_cycles() -> None:
    graph = {}
    for name, path in MODULES.items():
        found = imported(ast.parse(path.read_text())) & set(MODULES)
        # A package is named where one of its modules is meant.
        graph[name] = {
            m for m in found if m != name and not any(o.startswith(f"{m}.") for o in found)
        }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
