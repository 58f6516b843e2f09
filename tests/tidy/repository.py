"""What the repository's tests look at: the files that are, or would be, committed."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def files(*patterns: str) -> tuple[Path, ...]:
    """Tracked files and new ones that no .gitignore names, below ROOT, that match one of the patterns (all if none)."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = [Path(name) for name in sorted(set(listed)) if name and (ROOT / name).is_file()]
    return tuple(path for path in paths if not patterns or any(_matches(path, pattern) for pattern in patterns))


def python_files() -> tuple[Path, ...]:
    """Every Python file, programs without an ending included."""
    programs = [path for path in files("bin/*") if (ROOT / path).read_bytes().startswith(b"#!/usr/bin/env python")]
    return (*files("*.py"), *programs)


def parsed(path: Path) -> ast.Module:
    """A Python file as a syntax tree."""
    return ast.parse((ROOT / path).read_text(), filename=str(path))


@functools.cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and full name of everything a file imports, at its top, inside functions, or by importlib with a literal."""
    return tuple(_imports(path))


def inside(name: str, package: str) -> bool:
    """Whether a module's name is the package or below it."""
    return name == package or name.startswith(f"{package}.")


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node).endswith(("import_module", "__import__")):
            name = node.args[0] if node.args else None
            if isinstance(name, ast.Constant):
                yield node.lineno, str(name.value)


def _called(call: ast.Call) -> str:
    """The last part of a function's name; empty for what has none."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _matches(path: Path, pattern: str) -> bool:
    """`*.py` matches at any depth, `deltaworks/*.py` in that folder, `deltaworks/**` anything below it."""
    if pattern.endswith("/**"):
        return path.is_relative_to(pattern.removesuffix("/**"))
    if "/" not in pattern:
        return path.match(pattern)
    return len(path.parts) == len(Path(pattern).parts) and path.match(pattern)
