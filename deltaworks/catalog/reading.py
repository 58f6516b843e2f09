"""Table folders to declared tables; what cannot be read becomes findings."""

import ast
import dataclasses
import re
import sys
import traceback
from pathlib import Path

import deltaworks.words
from deltaworks.catalog.declared import Declared, inputs_of, keys_of
from deltaworks.catalog.shape import Misfit, misfits
from deltaworks.catalog.source import Source, import_file, read_source
from deltaworks.findings import Finding, nearest
from deltaworks.words import Table
from deltaworks.words.reading import Kafka

LAYERS = ("bronze", "silver", "gold")
NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_WORDS = tuple(deltaworks.words.__all__)
_MISSING = re.compile(r"(\w+)\.__init__\(\) missing \d+ required (?:keyword-only |positional )?arguments?: (.*)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Readable:
    """A table whose table.py could be read, and its source."""

    declared: Declared
    source: Source

    def at_field(self, field: str, finding: str, next_step: str) -> Finding:
        """A finding about a field of `Table(...)`."""
        return Finding(place=self.source.field(field.partition(".")[0]), finding=finding, next_step=next_step)

    def at_column(self, column: str, finding: str, next_step: str) -> Finding:
        """A finding about a column."""
        return Finding(place=self.source.column(column), finding=f"column {column}: {finding}", next_step=next_step)


def table_folders(project: Path) -> tuple[list[Path], list[Finding]]:
    """The folders tables/<layer>/<table>, sorted; layers and names that cannot be are findings."""
    folders: list[Path] = []
    findings: list[Finding] = []
    for layer in _subfolders(project / "tables"):
        if layer.name not in LAYERS:
            place = layer.relative_to(project).as_posix()
            next_step = nearest(layer.name, LAYERS, "layers")
            findings.append(Finding(place=place, finding=f"there is no layer {layer.name}", next_step=next_step))
            continue
        for folder in _subfolders(layer):
            place = folder.relative_to(project).as_posix()
            if not NAME.fullmatch(folder.name):
                finding = f"{folder.name!r} cannot be a table's name"
                next_step = "Use lower-case letters, digits and _, a letter first, at most 63"
                findings.append(Finding(place=place, finding=finding, next_step=next_step))
            elif not (folder / "table.py").is_file():
                next_step = "Declare the table there, or delete the folder"
                findings.append(Finding(place=place, finding="there is no table.py", next_step=next_step))
            else:
                folders.append(folder)
    if not folders and not findings:
        next_step = 'Run "deltaworks table new bronze.NAME --reads TOPIC"'
        findings.append(Finding(place="tables", finding="there are no tables", next_step=next_step))
    return folders, findings


def name_of(folder: Path) -> str:
    """The table's name: its path is its address."""
    return f"{folder.parent.name}.{folder.name}"


def read_table(folder: Path, project: Path) -> Readable | list[Finding]:
    """Run table.py and take what it declares, or say why not."""
    source = read_source(folder / "table.py", project)
    if isinstance(source, Finding):
        return [source]
    if refused := _imports(source):
        return refused
    table = _run(source)
    if isinstance(table, Finding):
        return [table]
    if wrong := [_misfit(source, misfit) for misfit in misfits(table)]:
        return wrong
    return Readable(declared=_declared(folder, project, table, source), source=source)


def _run(source: Source) -> Table | Finding:
    try:
        table = getattr(import_file(source.path), "TABLE", None)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # any mistake of the file is its finding
        return _raised(source, error)
    if isinstance(table, Table):
        return table
    finding = "there is no TABLE" if table is None else f"TABLE is {table!r}"
    return Finding(place=source.shown, finding=finding, next_step="Write TABLE = Table(...)")


def _declared(folder: Path, project: Path, table: Table, source: Source) -> Declared:
    transform = folder / "transform.py"
    suite = project / "expectations" / folder.parent.name / f"{folder.name}.yml"
    return Declared(
        name=name_of(folder),
        layer=folder.parent.name,
        table=table,
        doc=(ast.get_docstring(source.tree) or "").strip(),
        folder=folder,
        inputs=inputs_of(table),
        topics=table.reads.topics if isinstance(table.reads, Kafka) else (),
        transform=transform if transform.is_file() else None,
        suite=suite if suite.is_file() else None,
        cases=tuple(sorted((folder / "cases").glob("*.yml"))),
        keys=keys_of(table),
    )


def _imports(source: Source) -> list[Finding]:
    """table.py is plain values: it may import the words and the standard library."""
    findings = []
    for module, line, names in source.imports():
        place = source.at(line)
        if module == "deltaworks.words":
            for name in names:
                if name not in _WORDS:
                    finding = f"deltaworks.words has no {name}"
                    findings.append(Finding(place=place, finding=finding, next_step=nearest(name, _WORDS, "words")))
        elif module.partition(".")[0] not in sys.stdlib_module_names and not module.startswith("deltaworks.words."):
            next_step = "Import deltaworks.words only; DataFrames belong in transform.py"
            findings.append(Finding(place=place, finding=f"table.py imports {module}", next_step=next_step))
    return findings


def _raised(source: Source, error: BaseException) -> Finding:
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(source.path)]
    place = source.at(frames[-1] if frames else None)
    if isinstance(error, NameError) and error.name:
        known = error.name in _WORDS
        next_step = "Import it from deltaworks.words" if known else nearest(error.name, _WORDS, "words")
        return Finding(place=place, finding=f"{error.name} is not defined", next_step=next_step)
    if missing := _MISSING.match(str(error)):
        finding = f"{missing[1]} lacks {missing[2].replace(chr(39), '')}"
        return Finding(place=place, finding=finding, next_step="Give every field that has no default")
    text = str(error) or type(error).__name__
    if not isinstance(error, TypeError):
        text = f"{type(error).__name__}: {text}"
    finding, _, hint = text.replace(".__init__()", "").partition(": did you mean ")
    next_step = f"The nearest is {hint.strip(chr(39) + '?')}" if hint else "Mend the declaration"
    return Finding(place=place, finding=finding, next_step=next_step)


def _misfit(source: Source, misfit: Misfit) -> Finding:
    place = source.field(re.split(r"[.\[]", misfit.field)[0])
    return Finding(place=place, finding=f"{misfit.field} holds {misfit.held}", next_step=f"Give {misfit.wanted}")


def _subfolders(folder: Path) -> list[Path]:
    """Folders that hold something: what Python and Git leave behind is none."""
    if not folder.is_dir():
        return []
    named = (path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] not in "._")
    return [path for path in named if any(_is_content(inner) for inner in path.rglob("*"))]


def _is_content(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts
