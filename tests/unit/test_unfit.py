"""What a transform could not compute stands in the entries, and is listed from there."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from deltaworks import catalog
from deltaworks.cli import quarantine
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Counts, Entry, Kind, Position, Unfit
from deltaworks.settings import ROOT, Settings
from tests.arrow_flow import ArrowOwner
from tests.handed import Hand
from tests.shop_rows import view

TABLE = "gold.page_views_per_minute"
ORIGIN = "transform.py:12, views div users"
LEFT_OUT = Unfit(
    of="silver.page_views", place="page_views/00001/00000000000000000000", error="DIVIDE_BY_ZERO", origin=ORIGIN
)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArrowOwner:
    """Have a table above the page views say that it left one of them out."""
    monkeypatch.setenv("DELTAWORKS_DATA", str(tmp_path))
    owner = ArrowOwner(Settings.load(ROOT), "web")
    owner.log.send([view(number) for number in range(4)])
    owner.bronze()
    owner.silver()
    said(owner, LEFT_OUT, refused=1)
    return owner


def said(owner: ArrowOwner, *unfit: Unfit, refused: int, kind: Kind = "batch", command: int | None = None) -> None:
    """Have it say so in a commit."""
    own = owner.flow.inputs[TABLE].table
    position = replace(own.entry.position, unfit=unfit)
    counts = Counts(read=refused, refused=refused)
    entry = own.entry.follow(kind, position=position, counts=counts, command=command)
    Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None).mark(own, entry)


def call(*words: str) -> Result:
    """Run the command line in this process."""
    main = typer.Typer()
    main.callback()(lambda: None)
    quarantine.register(main)
    return CliRunner().invoke(main, words)


def test_position_with_what_is_left_out_is_read_back_as_it_was_written() -> None:
    """In every entry, whole."""
    entry = Entry(kind="batch", app="web", epoch=1, position=Position(unfit=(LEFT_OUT,)))

    assert Entry.from_json(entry.to_json(), place="gold.a") == entry


@pytest.mark.usefixtures("owner")
def test_what_is_left_out_is_listed_by_error_and_shown_by_place() -> None:
    """As rows that were refused are."""
    listed = json.loads(call("quarantine", "list", TABLE, "--json").stdout)
    shown = json.loads(call("quarantine", "show", TABLE, "--json").stdout)
    aside = json.loads(call("quarantine", "show", f"{TABLE}__quarantine", "--json").stdout)
    plain = call("quarantine", "list", f"{TABLE}__quarantine")

    of, place, error = LEFT_OUT.of, LEFT_OUT.place, LEFT_OUT.error
    assert listed == [{"table": TABLE, "reason": error, "rows": 1, "of": of, "sample": place, "origin": ORIGIN}]
    assert shown == [{"of": of, "place": place, "reason": error, "origin": ORIGIN}]
    assert aside == shown
    assert "DIVIDE_BY_ZERO" in plain.stdout
    assert plain.stdout.splitlines()[-1].endswith(f" {place} of {of}, in {ORIGIN}")
    assert json.loads(call("quarantine", "show", TABLE, "--cause", "other", "--json").stdout) == []


@pytest.mark.usefixtures("owner")
def test_what_is_left_out_cannot_be_discarded() -> None:
    """It stays out until it can be computed."""
    refused = call("quarantine", "discard", TABLE, "--all", "--reason", "no use")

    assert refused.exit_code == 2
    assert "stays out until it can" in refused.output.replace("\n", " ")


def test_checker_finds_what_is_left_out_uncounted_or_never_came(owner: ArrowOwner) -> None:
    """I7: counted once, and a row of the input."""
    known = catalog.load(ROOT)

    def found() -> list[str]:
        with Picture(known, owner.flow.settings.lake) as picture:
            return [one.finding for one in check(picture, at_rest=False) if one.invariant == "I7"]

    calm = found()
    said(owner, LEFT_OUT, replace(LEFT_OUT, place="page_views/00001/99999999999999999999"), refused=1)
    alien = found()
    said(owner, LEFT_OUT, refused=0)
    uncounted = found()

    assert calm == []
    assert alien == ["2 rows of silver.page_views are left out, 1 are there"]
    assert uncounted == ["2 rows refused, its position names 1"]


def tried(owner: ArrowOwner, *, number: int, cause: str | None = None) -> dict[str, int]:
    """Order what is left out to be tried again, where nothing of it has to be computed."""
    session: Any = Hand()
    steps = owner.flow.replay_refused(TABLE, cause=cause, command=number, spark=session)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return dict(done.value)


@pytest.mark.parametrize("cause", [None, "DIVIDE_BY_ZERO"])
def test_order_given_again_after_its_work_was_done_tells_what_it_has_done(owner: ArrowOwner, cause: str | None) -> None:
    """Whatever the table did before and after; the owner may have died in between."""
    others = [replace(LEFT_OUT, place=f"page_views/00001/{number:020d}") for number in (1, 2)]
    said(owner, LEFT_OUT, *others, refused=2)
    said(owner, *others, refused=-1, kind="replay", command=7)
    said(owner, *others, refused=0)
    said(owner, refused=-2, kind="replay", command=7)
    owner.start()
    said(owner, refused=0, kind="replay", command=8)

    assert tried(owner, number=7, cause=cause) == {"moved": 3, "still_refused": 0}
    assert tried(owner, number=8) == {"moved": 0, "still_refused": 0}


def test_what_cannot_be_computed_any_more_is_not_held_against_what_an_order_brought_in(owner: ArrowOwner) -> None:
    """A view takes changes with it: a key comes in, and another one goes out."""
    other = replace(LEFT_OUT, place="page_views/00001/00000000000000000001", error="OVERFLOW")
    said(owner, other, refused=0, kind="replay", command=7)
    said(owner, refused=-1)  # as it was touched, not by the order

    assert tried(owner, number=7) == {"moved": 1, "still_refused": 0}
