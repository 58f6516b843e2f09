"""`deltaworks table test`: run the cases of tables."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from deltaworks.cases import Case
from deltaworks.catalog import Catalog
from deltaworks.cli import show
from deltaworks.cli.context import settings
from deltaworks.errors import DeclarationError
from deltaworks.settings import AppSettings, Settings

Verdicts: TypeAlias = Mapping[str, Sequence[str]]
"""What was found otherwise than the case says, by the way in which it ran."""
Run: TypeAlias = Callable[[Case], Verdicts]


def run_cases(
    names: Annotated[list[str] | None, typer.Argument(help="LAYER.NAME; default: all tables.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Run the cases of the tables, each as a stream and as a batch (starts Spark)."""
    from deltaworks.catalog import load

    given = settings()
    catalog = load(given.project)
    cases = _cases(catalog, names or list(catalog.tables))
    rows = []
    with _runner(catalog, given) as run:
        for case in cases:
            rows.append(_tested(case, run))
            if not as_json:
                _print(rows[-1])
    failed = [row for row in rows if row["verdict"] != "ok"]
    if as_json:
        print(json.dumps(rows, indent=2))  # noqa: T201  # the output is for programs
    else:
        tables = len({case.table for case in cases})
        said = f"{len(rows)} cases of {tables} tables: {len(rows) - len(failed)} ok, {len(failed)} failed"
        show.out.print(said, style="red" if failed else "green")
    if failed:
        raise typer.Exit(1)


def _cases(catalog: Catalog, names: Sequence[str]) -> list[Case]:
    """The cases of these tables; no case at all is a mistake, not a success."""
    cases = [case for name in dict.fromkeys(names) for case in catalog.cases(name)]
    if not cases:
        raise DeclarationError(", ".join(names), "no cases", "Write tables/LAYER/NAME/cases/CASE.yml")
    return cases


def _tested(case: Case, run: Run) -> dict[str, object]:
    began = time.monotonic()
    verdicts = run(case)
    return {
        "table": case.table,
        "case": case.name,
        "verdict": "failed" if any(verdicts.values()) else "ok",
        "seconds": round(time.monotonic() - began, 1),
        "differences": {way: list(lines) for way, lines in verdicts.items()},
    }


def _print(row: Mapping[str, object]) -> None:
    differences = row["differences"]
    assert isinstance(differences, dict)
    failed = row["verdict"] != "ok"
    show.out.print(f"[{'red' if failed else 'green'}]{row['verdict']:<6}[/]", end=" ")
    ways = ", ".join(way for way, lines in differences.items() if lines or not failed)
    show.out.print(f"{row['table']} {row['case']} ({ways}; {row['seconds']} s)", markup=False, soft_wrap=True)
    for way, lines in differences.items():
        for line in lines:
            show.out.print(f"       {way}: {line}", markup=False, soft_wrap=True)


@contextmanager
def _runner(catalog: Catalog, given: Settings) -> Iterator[Run]:
    """Spark, and a folder for the cases' lakes that is gone afterwards."""
    from deltaworks.engine.case_run import run_case, ways
    from deltaworks.engine.jvm_log import jvm_log
    from deltaworks.engine.session import open_session

    with tempfile.TemporaryDirectory(prefix="deltaworks-cases-", ignore_cleanup_errors=True) as folder:
        own = given.model_copy(update={"data": Path(folder)})
        with jvm_log(given.logs / "table-test.log"):
            spark = open_session(name="table-test", settings=own, app=AppSettings())

        def run(case: Case) -> Verdicts:
            found: dict[str, Sequence[str]] = {}
            for way in ways(catalog[case.table]):
                lake = own.model_copy(update={"data": Path(tempfile.mkdtemp(dir=folder))})
                try:
                    found[way] = run_case(case, way, catalog=catalog, settings=lake, spark=spark)
                except Exception as error:  # noqa: BLE001  # whatever a transform raises fails its case, not the others
                    found[way] = (_raised(error),)
            return found

        try:
            yield run
        finally:
            spark.stop()


def _raised(error: Exception) -> str:
    first = (str(error).strip() or "no message").splitlines()[0]
    return f"raised {type(error).__name__}: {first}"
