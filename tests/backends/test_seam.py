"""Outside of their folders nothing knows targets by name, but for the lines that register them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import satchel
from satchel.backends import families

ROOT = Path(satchel.__file__).parent
# The CPU is where all else falls back to, and ExecuTorch is also whom we compare with and whose
# configurations are read.
NAMES = sorted(set(families()) - {"cpu", "executorch"})
_NAME = re.compile(rf"(?<![a-z])({'|'.join([*NAMES, 'npu', 'hexagon'])})(?![a-z])", re.IGNORECASE)


def told(tree: ast.Module) -> set[str]:
    """Names and texts of a module, without its docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            found.add(node.value)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, (ast.ImportFrom, ast.Import)):
            found |= {alias.name for alias in node.names} | {str(getattr(node, "module", ""))}
    return found


def test_nothing_else_knows_a_target_by_name() -> None:
    assert {"coreml", "qnn", "vulkan"} <= set(NAMES)
    files = [p for p in ROOT.rglob("*.py") if "backends" not in p.relative_to(ROOT).parts]
    files += (ROOT / "backends").glob("*.py")
    assert len(files) > 100
    named = {
        (str(path.relative_to(ROOT)), text)
        for path in files
        for text in told(ast.parse(path.read_text()))
        if _NAME.search(text)
    }
    assert {path for path, _ in named} == {"backends/__init__.py"}, named
    places = {text for _, text in named if text.startswith("satchel.backends.")}
    assert {text for _, text in named} - places == set(NAMES) and len(places) == len(NAMES)


def test_the_backends_do_not_know_each_other() -> None:
    """But for the CPU, which all others may fall back to, and whose format ``pte`` is one."""
    for name in families():
        for path in (ROOT / "backends" / name).rglob("*.py"):
            own = told(ast.parse(path.read_text()))
            others = {
                other
                for other in families()
                for text in own
                if text.startswith(f"satchel.backends.{other}") and other not in (name, "cpu")
            }
            assert others <= ({"executorch"} if name == "cpu" else set()), path
