"""`deltaworks table`: judge, test, list, show and begin tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli import show, table_cases
from deltaworks.cli.context import settings
from deltaworks.findings import Finding

if TYPE_CHECKING:
    from deltaworks.catalog import Catalog

_Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


def check(
    deep: Annotated[bool, typer.Option(help="Let Spark analyse every transform too (starts Spark).")] = False,
    as_json: _Json = False,
) -> None:
    """Find what is wrong with the tables, their suites and cases, without running anything.

    Where there is a lake it is told too what of it is not as declared; that is no mistake, so the exit code stays 0.
    """
    from deltaworks.catalog import check as check_tables
    from deltaworks.catalog import load, schedule_findings

    given = settings()
    findings = check_tables(given.project) or schedule_findings(load(given.project), given.replays)
    analysed = ""
    if deep and not findings:
        from deltaworks.engine.deep_check import deep_findings, open_session, transforms

        catalog = load(given.project)
        session = open_session(given.logs / "table-check.log")
        try:
            findings = deep_findings(catalog, session)
        finally:
            session.stop()
        analysed = f", {_counted(transforms(catalog), 'transform')} analysed"
    otherwise = [] if findings else _otherwise(load(given.project), given.lake)
    if as_json:
        rows = [_row(one, of) for of, some in (("project", findings), ("lake", otherwise)) for one in some]
        show.listing(rows, title="findings", as_json=True)
    else:
        _print_findings(findings, len(load(given.project).tables) if not findings else 0, analysed)
        for one in otherwise:
            show.out.print(f"in the lake: {one}", style="yellow", markup=False, soft_wrap=True)
    if findings:
        raise typer.Exit(1)


def _otherwise(catalog: "Catalog", lake: Path) -> list[Finding]:
    """What of the lake is not as declared."""
    from deltaworks.engine.as_declared import everything

    return everything(catalog, lake)


def _row(one: Finding, of: str) -> dict[str, str]:
    return {"place": one.place, "finding": one.finding, "next_step": one.next_step, "of": of}


def _print_findings(findings: list[Finding], tables: int, analysed: str) -> None:
    for finding in findings:
        show.out.print(str(finding), markup=False, soft_wrap=True)
    if findings:
        show.out.print(_counted(len(findings), "finding"), style="red")
    else:
        show.out.print(f"{_counted(tables, 'table')}, no findings{analysed}", style="green")


def list_tables(as_json: _Json = False) -> None:
    """List the tables, inputs before those that read them."""
    from deltaworks.catalog import load

    rows = [
        {
            "table": declared.name,
            "app": declared.table.app,
            "reads": declared.reads,
            "kept_as": type(declared.table.kept_as).__name__.lower(),
            "columns": len(declared.columns),
            "owner": declared.table.owner,
        }
        for declared in load(settings().project).tables.values()
    ]
    show.listing(rows, title="tables", as_json=as_json)


def show_table(
    name: Annotated[str, typer.Argument(help="LAYER.NAME")],
    as_json: _Json = False,
) -> None:
    """Show everything that a table declares, with its columns, and which way its transform was computed last."""
    from deltaworks.catalog import load
    from deltaworks.catalog.describing import described
    from deltaworks.cli.profile import way_of

    given = settings()
    catalog = load(given.project)
    facts = described(catalog, name)
    facts["computed"] = None if catalog[name].transform is None else way_of(given.lake, name)
    if as_json:
        show.document(facts)
        return
    columns, expectations = facts.pop("columns"), facts.pop("expectations")
    assert isinstance(columns, list)
    assert isinstance(expectations, list)
    for key, value in facts.items():
        text = ", ".join(value) if isinstance(value, list) else "-" if value is None else str(value)
        show.out.print(f"{key.replace('_', ' '):12} {text}", markup=False, soft_wrap=True)
    show.out.print()
    show.listing(columns, title="columns", as_json=False)
    if expectations:
        show.out.print()
        show.listing(expectations, title="expectations", as_json=False)


def new(
    name: Annotated[str, typer.Argument(help="LAYER.NAME")],
    reads: Annotated[list[str], typer.Option(help="A topic for bronze, else a table; may be given again.")],
    kept_as: Annotated[str | None, typer.Option(help="raw, append, latest, history, aggregate or view.")] = None,
    columns: Annotated[str, typer.Option(help='As in "day date, orders bigint".')] = "",
    keys: Annotated[str, typer.Option(help="Columns that make a row unique, with commas; default: the first.")] = "",
    topic: Annotated[str | None, typer.Option(help="Topic of a bronze table whose JSON is parsed.")] = None,
    source_table: Annotated[str | None, typer.Option(help="Source table whose Debezium changes are parsed.")] = None,
    app: Annotated[str | None, typer.Option(help="App that owns the table; default: that of its inputs.")] = None,
    owner: Annotated[str | None, typer.Option(help="Who answers for it; default: that of its inputs.")] = None,
) -> None:
    """Begin a table: its declaration, transform, suite and a case, which pass `table check` at once."""
    from deltaworks.catalog.new_table import Wish, new_table

    project = settings().project
    wish = Wish(
        name=name,
        reads=tuple(reads),
        kept_as=kept_as,
        columns=columns,
        keys=tuple(key.strip() for key in keys.split(",") if key.strip()),
        topic=topic,
        source_table=source_table,
        app=app,
        owner=owner,
    )
    for path in new_table(project, wish):
        show.out.print(path.relative_to(project.resolve()).as_posix(), markup=False, soft_wrap=True)
    show.out.print('Edit these, then run "deltaworks table check --deep"', markup=False)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def register(main: typer.Typer) -> None:
    """Add the commands to the command line."""
    table = typer.Typer(no_args_is_help=True, help="Judge, test, list, show and begin tables.")
    table.command("check")(check)
    table.command("test")(table_cases.run_cases)
    table.command("list")(list_tables)
    table.command("show")(show_table)
    table.command("new")(new)
    main.add_typer(table, name="table")
