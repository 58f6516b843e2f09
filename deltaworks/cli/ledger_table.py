"""`ledger TABLE`: one table's numbers, the command behind each, what it contains, its last commits."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from deltaworks.cli import show

if TYPE_CHECKING:
    from deltaworks.engine.ledger import Ledger

_LISTS = {"rows": "every row", "commits": "the commits that add up to it", "gaps": "every gap but the markers"}
_WIDE = ("committed_at", "warnings")
_ALWAYS = ("version", "kind", "batch", "epoch", "read", "taken")


def about_table(books: "Ledger", table: str, number: int, *, as_json: bool) -> None:
    """Print everything that the ledger knows of one table."""
    commits = list(_commits(books, table, number))
    behind = [asdict(one) for one in books.behind(table)]
    through = books.processed_through(table)
    if as_json:
        about = {
            "table": table,
            "numbers": behind,
            "processed_through": None if through is None else asdict(through),
            "commits": commits,
        }
        show.listing([about], title="ledger", as_json=True)
        return
    show.listing(_narrow(commits), title=f"Commits of {table}, newest first", as_json=False)
    if through is not None:
        show.out.print()
        _contents(through.version, through.offsets, through.unknown)
    for one in behind:
        show.out.print(f"\n[bold]{one['number'].replace('_', ' ')} {one['count']:,}[/bold]: {_LISTS[one['lists']]}")
        show.out.print(one["command"], markup=False, soft_wrap=True)


def _contents(version: int, offsets: Mapping[str, Mapping[str, int]], unknown: Sequence[str]) -> None:
    rows = [
        {"topic": topic, "partition": int(partition), "offsets_below": upto}
        for topic, parts in sorted(offsets.items())
        for partition, upto in sorted(parts.items(), key=lambda part: int(part[0]))
    ]
    show.listing(rows, title=f"Version {version} contains", as_json=False)
    for one in unknown:
        show.out.print(one, style="yellow", markup=False, soft_wrap=True)


def _commits(books: "Ledger", table: str, number: int) -> "list[dict[str, Any]]":
    from deltaworks.engine.entry import Counts

    rows = []
    for commit in islice(books.commits(table), number):
        entry = commit.entry
        rows.append(
            {
                "version": commit.version,
                "kind": "FOREIGN" if entry is None else entry.kind,
                "batch": None if entry is None else entry.ingest_seq,
                "epoch": None if entry is None else entry.epoch,
                **(dict.fromkeys(asdict(Counts())) if entry is None else asdict(entry.counts)),
                "rows_added": commit.rows_added,
                "rows_updated": commit.rows_updated,
                "rows_deleted": commit.rows_deleted,
                "committed_at": commit.at,
                "event_high": None if entry is None else entry.event_high,
                "warnings": {} if entry is None else dict(entry.warnings),
            }
        )
    return rows


def _narrow(commits: "list[dict[str, Any]]") -> "list[dict[str, Any]]":
    """What fits a terminal: none of the ways that no row went."""
    names = [name for name in commits[0] if name not in _ALWAYS] if commits else []
    used = [name for name in names if name not in _WIDE and any(row[name] for row in commits)]
    return [{name: row[name] for name in (*_ALWAYS, *used)} for row in commits]
