"""Python files of a project: parsed to know their lines, run by path."""

import ast
import dataclasses
import hashlib
import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from deltaworks.findings import Finding


class _FreshLoader(SourceFileLoader):
    """Compiles from the source each time: cached bytecode misses an edit of equal length within a second."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(self.get_data(path), path, "exec", dont_inherit=True)


def import_file(path: Path) -> ModuleType:
    """Run a file of `tables/` and give its module. It is known by its path only, so that projects never mix."""
    name = f"deltaworks_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_FreshLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclasses.dataclass(frozen=True)
class Source:
    """A Python file that parses. `shown` is its path in messages, relative to the project."""

    path: Path
    shown: str
    tree: ast.Module

    def at(self, line: int | None) -> str:
        """Place of a line."""
        return self.shown if line is None else f"{self.shown}:{line}"

    def field(self, name: str) -> str:
        """Place of a field of `Table(...)`; where it is not given, of the call."""
        for call in self._calls("Table"):
            return self.at(next((given.lineno for given in call.keywords if given.arg == name), call.lineno))
        return self.shown

    def column(self, name: str) -> str:
        """Place of the last `Column("name", ...)`."""
        lines = [call.lineno for call in self._calls("Column") if _first_text(call) == name]
        return self.at(max(lines)) if lines else self.field("columns")

    def functions(self) -> dict[str, ast.FunctionDef]:
        """Functions at the top of the file."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    def imports(self) -> list[tuple[str, int, tuple[str, ...]]]:
        """Every import: module, line, names taken from it."""
        found: list[tuple[str, int, tuple[str, ...]]] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += [(alias.name, node.lineno, ()) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                found.append((module, node.lineno, tuple(alias.name for alias in node.names)))
        return found

    def _calls(self, name: str) -> list[ast.Call]:
        return [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        ]


def read_source(path: Path, project: Path) -> Source | Finding:
    """Parse a file; a file that cannot be read or parsed is a finding with its line."""
    shown = path.relative_to(project).as_posix()
    try:
        return Source(path, shown, ast.parse(path.read_bytes(), filename=str(path)))
    except SyntaxError as error:
        place = f"{shown}:{error.lineno}" if error.lineno else shown
        return Finding(place=place, finding=f"not Python: {error.msg.rstrip('?')}", next_step="Mend the line")
    except (OSError, ValueError) as error:
        return Finding(place=shown, finding=f"cannot be read ({error})", next_step="Mend the file")


def _first_text(call: ast.Call) -> str | None:
    given = call.args[:1] or [keyword.value for keyword in call.keywords if keyword.arg == "name"]
    return given[0].value if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) else None
