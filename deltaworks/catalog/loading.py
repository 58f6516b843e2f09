"""Read a project's tables and judge them: `check` gives every finding, `load` the catalog or the first one."""

import dataclasses
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path

from deltaworks.catalog.companions import case_findings, suite_findings
from deltaworks.catalog.declared import Catalog, Declared, catalog_of
from deltaworks.catalog.own import own_findings
from deltaworks.catalog.project import read_project
from deltaworks.catalog.reading import Readable, name_of, read_table, table_folders
from deltaworks.catalog.relations import relation_findings
from deltaworks.catalog.transforms import transform_findings
from deltaworks.findings import Finding


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Judged:
    """What was read, and what is wrong with it."""

    tables: Mapping[str, Readable]
    findings: tuple[Finding, ...]


def load(project: Path) -> Catalog:
    """The tables of a project in dependency order; raises DeclarationError with the first finding.

    Cases are tests: `check` judges them, `load` does not, so that a wrong case stops no table that runs.
    """
    project = project.resolve()
    judged = _judge(project)
    for finding in judged.findings:
        raise finding.error()
    graph = {name: judged.tables[name].declared.inputs for name in sorted(judged.tables)}
    order = TopologicalSorter(graph).static_order()
    return catalog_of(project, (judged.tables[name].declared for name in order))


def check(project: Path) -> list[Finding]:
    """Everything that is wrong with a project's tables, suites and cases; empty when nothing is."""
    project = project.resolve()
    judged = _judge(project)
    return [*judged.findings, *case_findings(_sound(judged), project)]


def readable(project: Path) -> Mapping[str, Declared]:
    """The tables that could be read, right or not, by name."""
    return {name: table.declared for name, table in _judge(project.resolve()).tables.items()}


def _judge(project: Path) -> _Judged:
    folders, findings = table_folders(project)
    names = {name_of(folder) for folder in folders}
    tables: dict[str, Readable] = {}
    for folder in folders:
        table = read_table(folder, project)
        if isinstance(table, Readable):
            tables[table.declared.name] = table
        else:
            findings += table
    known, wrong = read_project(project)
    findings += wrong
    for table in tables.values():
        findings += own_findings(table)
    findings += relation_findings(tables, names, known)
    for table in tables.values():
        findings += transform_findings(table, names, project)
    findings += suite_findings(tables, names, project)
    return _Judged(tables=tables, findings=tuple(findings))


def _sound(judged: _Judged) -> Mapping[str, Readable]:
    """The tables whose cases can be read: types that cannot be parsed would only repeat their finding."""
    wrong = {finding.place.partition(":")[0] for finding in judged.findings}
    return {name: table for name, table in judged.tables.items() if table.source.shown not in wrong}
