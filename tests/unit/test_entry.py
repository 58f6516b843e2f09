"""What one version of the software makes of the entries of another."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from deltaworks.engine.entry import FORMAT, Counts, Entry, Position, Replay, Unfit
from deltaworks.errors import NewerEntryError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop
from tests.flows import Log
from tests.shop_rows import view

TABLE = "silver.page_views"
FULL = Entry(
    kind="batch",
    app="web",
    epoch=3,
    ingest_seq=7,
    position=Position(
        batches={"bronze.web_events": 7},
        replays=(Replay(table=TABLE, after=1, upto=2, command=4, seq=5),),
        unfit=(Unfit(of=TABLE, place="1", error="DIVIDE_BY_ZERO"),),
        applied=(1, 2),
    ),
    counts=Counts(read=2, taken=2),
    totals=Counts(read=9, taken=9),
    marks=((7, 1),),
    gaps=(("topic", "0", "marker", 1, 2),),
    claimed=(1, 2),
    replaced=(1, "staged"),
)


def test_an_entry_is_read_as_it_was_written() -> None:
    """The empty one too."""
    for entry in (FULL, Entry(kind="create", app="web", epoch=1)):
        assert Entry.from_json(entry.to_json(), place=TABLE) == entry


@pytest.mark.parametrize(
    ("where", "value", "told"),
    [
        (["format"], FORMAT + 1, f"an entry of format {FORMAT + 1}, where this one knows {FORMAT}"),
        (["kind"], "merge", 'an entry of kind "merge"'),
        (["owner"], 1, 'its entry says "owner"'),
        (["position", "tables"], {}, 'its entry says "position.tables"'),
        (["position", "replays", 0, "why"], "x", 'its entry says "position.replays.why"'),
        (["position", "unfit", 0, "line"], 1, 'its entry says "position.unfit.line"'),
        (["counts", "mended"], 1, 'its entry says "counts.mended"'),
        (["totals", "mended"], 1, 'its entry says "counts.mended"'),
    ],
)
def test_an_entry_of_a_newer_version_is_refused_by_name(where: list[Any], value: object, told: str) -> None:
    """What it says beyond would be left out of the next entry; it is nobody else's commit either."""
    raw = json.loads(FULL.to_json())
    part = raw
    for step in where[:-1]:
        part = part[step]
    part[where[-1]] = value

    with pytest.raises(NewerEntryError) as refused:
        Entry.from_json(json.dumps(raw), place=TABLE)

    assert (refused.value.place, refused.value.finding) == (TABLE, f"was written by a newer Deltaworks ({told})")


@pytest.mark.parametrize(
    "text",
    [None, "", "x", "[]", "{}", '{"kind":"batch"}', '{"kind":"batch","epoch":1,"position":[]}',
     '{"kind":"batch","epoch":1,"counts":7}', '{"kind":"batch","epoch":1,"format":"new"}', '{"kind":[],"epoch":1}'],
)  # fmt: skip
def test_what_is_no_entry_is_none(text: str | None) -> None:
    """Then somebody else made the commit."""
    assert Entry.from_json(text, place=TABLE) is None


def test_older_code_over_a_newer_lake_ends_before_it_commits(tmp_path: Path) -> None:
    """And goes on over the lake as it was before, as the error says."""
    settings = Shop(tmp_path / "project").without_gold().settings(tmp_path / "data")
    owner, log = ArrowOwner(settings, "web"), Log()
    log.send([view(1)])
    owner.take(log.batch())
    before = shutil.copytree(settings.lake, tmp_path / "before")
    newest = max((settings.lake / "silver" / "page_views" / "_delta_log").glob("*.json"))
    newest.write_text(newest.read_text().replace('\\"position\\":{', '\\"position\\":{\\"tables\\":{},'))
    there = files(settings.lake)

    with pytest.raises(
        NewerEntryError, match=r'silver\.page_views: .*newer Deltaworks \(its entry says "position\.tables"\)'
    ):
        owner.start()

    assert files(settings.lake) == there
    shutil.rmtree(settings.lake)
    before.rename(settings.lake)
    owner.start()
    log.send([view(2)])
    owner.catch_up(log)
    owner.take(log.batch())
    assert [row["event_id"] for row in owner.rows(TABLE)] == ["e1", "e2"]


def files(folder: Path) -> set[Path]:
    """All that is there."""
    return {path for path in folder.rglob("*") if path.is_file()}
