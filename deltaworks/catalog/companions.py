"""The files that stand beside a declaration: its suite and its cases."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from deltaworks import cases, suites
from deltaworks.catalog.declared import Declared, case_forms
from deltaworks.catalog.reading import Readable
from deltaworks.errors import DeclarationError
from deltaworks.findings import Finding, nearest
from deltaworks.quality import compiling, planning
from deltaworks.suites import Suite
from deltaworks.words.keeping import Raw


def suite_findings(tables: Mapping[str, Readable], names: set[str], project: Path) -> Iterator[Finding]:
    """Every table has a suite, every suite its table, and each is right."""
    for name, table in tables.items():
        columns = [column.name for column in table.declared.columns]
        if table.declared.suite is not None:
            found = suites.findings(table.declared.suite, table=name, columns=columns)
            yield from found or _not_judged(table.declared, names)
            continue
        raw = isinstance(table.declared.table.kept_as, Raw)
        next_step = "Write waived: raw copy; checked in silver" if raw else "Write expectations: [...]"
        yield Finding(place=suites.shown_path(name), finding="the suite is missing", next_step=next_step)
    folder = project / "expectations"
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")):
        shown = path.relative_to(project).as_posix()
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        if path.suffix != ".yml":
            next_step = f"Name it {path.with_suffix('.yml').name}, or delete it"
            yield Finding(place=shown, finding="is not read", next_step=next_step)
        elif name not in names:
            yield Finding(place=shown, finding=f"there is no table {name}", next_step=nearest(name, names, "tables"))


def _not_judged(declared: Declared, names: Collection[str]) -> list[Finding]:
    if declared.suite is None:
        return []
    columns = [column.name for column in declared.columns]
    return not_judged(declared, suites.load(declared.suite, table=declared.name, columns=columns), names)


def not_judged(declared: Declared, suite: Suite, names: Collection[str]) -> list[Finding]:
    """Expectations that nothing judges, that promise to set rows aside and cannot, or whose meta means nothing.

    `names`: of all tables, as a query may name them.
    """
    try:
        columns, later, closes_days = declared.columns, declared.implied, declared.closes_days
        plan = planning.planned(suite, columns, later=later, parses=declared.parses, closes_days=closes_days)
        return [
            *compiling.findings(suite, columns, later=later, parses=declared.parses),
            *planning.findings(suite.name, plan, closes_days=closes_days, names=names),
        ]
    except DeclarationError:  # a column of an unknown type, which is told where it stands
        return []


def case_findings(tables: Mapping[str, Readable], project: Path) -> Iterator[Finding]:
    """Every table that computes has a case, and the form of each is right."""
    declared = {name: table.declared for name, table in tables.items()}
    for table in declared.values():
        shown = (table.folder / "cases").relative_to(project).as_posix()
        if not table.cases and not isinstance(table.table.kept_as, Raw):
            next_step = "Write a file NAME.yml there, with given: and then:"
            yield Finding(place=shown, finding="there are no cases", next_step=next_step)
        for path in sorted((table.folder / "cases").glob("*")):
            if path.suffix != ".yml" and not path.name.startswith((".", "_")):
                next_step = f"Name it {path.with_suffix('.yml').name}, or delete it"
                yield Finding(place=f"{shown}/{path.name}", finding="is not read", next_step=next_step)
        if all(each in declared for each in table.inputs):
            yield from _forms(table, declared, project)


def _forms(table: Declared, declared: Mapping[str, Declared], project: Path) -> Iterator[Finding]:
    inputs, output = case_forms(table, declared)
    for path in table.cases:
        shown = path.relative_to(project).as_posix()
        try:
            cases.load(path, shown=shown, table=table.name, inputs=inputs, output=output)
        except DeclarationError as error:
            yield Finding(place=error.place, finding=error.finding, next_step=error.next_step)
