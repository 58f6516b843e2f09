"""`prove`: a table recomputed from bronze equals the streamed one."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltaworks.cli import show
from deltaworks.cli.context import settings

if TYPE_CHECKING:
    from deltaworks.engine.prove import Proof

_EXIT = {"proved": 0, "differs": 1, "too little to prove": 3}


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command()(prove)


def prove(
    table: Annotated[str, typer.Argument(help="Name of the table, such as gold.daily_orders.")],
    *,
    keys_min: Annotated[int, typer.Option(min=1, help="Fewer equal keys are no proof.")] = 1_000,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Recompute a table from bronze in a batch and compare it with the streamed one, key by key; streams go on.

    Exit code 0: proved; 1: it differs, with the first rows that do (they may hold personal data); 3: too little to
    prove.
    """
    from deltaworks import catalog
    from deltaworks.engine import prove as proving
    from deltaworks.engine.recomputing import recomputing

    now = settings()
    found = catalog.load(now.project)
    name = found[table].name  # raises, with the nearest name
    with recomputing(now, name="prove") as (spark, own):
        proof = proving.prove(name, catalog=found, lake=now.lake, spark=spark, anew=own, keys_min=keys_min)
    if as_json:
        show.listing([{"verdict": proof.verdict, **asdict(proof)}], title="prove", as_json=True)
    else:
        _tell(proof)
    raise typer.Exit(_EXIT[proof.verdict])


def _tell(proof: "Proof") -> None:
    keys = f"{proof.keys:,} keys of version {proof.version}"
    match proof.verdict:
        case "proved":
            _say(f"{proof.table}: proved. {keys} are what a batch over the same rows of bronze gives")
        case "too little to prove":
            _say(f"{proof.table}: too little to prove. {keys} are equal, {proof.keys_min:,} are wanted")
        case _:
            counts = f"{proof.missing:,} missing, {proof.more:,} too many, {proof.other:,} with other values"
            _say(f"{proof.table}: differs. Of {keys}: {counts}")
            for one in proof.first:
                _say(f"\n{_row(one.key)}\n  streamed    {_row(one.streamed)}\n  recomputed  {_row(one.recomputed)}")
                for source, rows in one.behind.items():
                    for row in rows:
                        _say(f"  {source}  {_row(row)}")
    if proof.left_out:
        told = ", ".join(f"{rows:,} in {name}" for name, rows in proof.left_out.items())
        _say(f"Both lack what could not be computed: {told}. See deltaworks quarantine list.")
    if proof.changed:
        names = ", ".join(proof.changed)
        _say(f"Some rows were judged by other code or rules than there are now, in {names}: those may differ by right.")


def _row(row: Mapping[str, Any] | None) -> str:
    return "not there" if row is None else ", ".join(f"{name} {value}" for name, value in row.items())


def _say(text: str) -> None:
    show.out.print(text, markup=False, soft_wrap=True)
