"""`deltaworks table test`: run the cases of tables."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli import show
from deltaworks.cli.context import settings
from deltaworks.errors import DeclarationError

if TYPE_CHECKING:
    from deltaworks.cases import Case

AT_ONCE = 3
"""Cases that run at the same time: a case is planning, which Spark does on one core."""


def run_cases(
    names: Annotated[list[str] | None, typer.Argument(help="LAYER.NAME; default: all tables.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Run the cases of the tables, each as a stream and as a batch (starts Spark)."""
    from deltaworks.catalog import load

    given = settings()
    catalog = load(given.project)
    wanted = dict.fromkeys(names or catalog.tables)
    cases = [case for name in wanted for case in catalog.cases(name)]
    if not cases:  # a test of nothing has not passed
        raise DeclarationError(", ".join(wanted), "no cases", "Write tables/LAYER/NAME/cases/CASE.yml")

    from deltaworks.engine.case_session import case_session

    def timed(case: "Case") -> tuple[Mapping[str, tuple[str, ...]], float]:
        began = time.monotonic()
        return run(case), time.monotonic() - began

    rows = []
    with case_session(catalog, given) as run, _pool() as pool:
        for case, (differences, seconds) in zip(cases, pool.map(timed, cases), strict=True):
            verdict = "failed" if any(differences.values()) else "ok"
            row = {"table": case.table, "case": case.name, "verdict": verdict, "differences": differences}
            rows.append(row | {"seconds": round(seconds, 1)})
            if not as_json:
                _print(rows[-1], differences)
    failed = sum(row["verdict"] == "failed" for row in rows)
    if as_json:
        show.document(rows)
    else:
        cases_said = "1 case" if len(rows) == 1 else f"{len(rows)} cases"
        show.out.print(f"{cases_said}, {failed} failed", style="red" if failed else "green")
    if failed:
        raise typer.Exit(1)


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for the cases; who is interrupted does not wait for those that have not begun."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _print(row: Mapping[str, object], differences: Mapping[str, tuple[str, ...]]) -> None:
    failed = row["verdict"] == "failed"
    show.out.print(f"{row['verdict']:<6}", style="red" if failed else "green", end=" ")
    show.out.print(f"{row['table']} {row['case']} ({', '.join(differences)}: {row['seconds']} s)", soft_wrap=True)
    for way, lines in differences.items():
        for line in lines:
            show.out.print(f"       {way}: {line}", markup=False, soft_wrap=True)
