"""A table of events that keeps only some: what is refused, filtered, a copy; and every row is accounted for."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import catalog
from deltaworks.analyst import connect
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.entry import Counts
from deltaworks.engine.ledger import Ledger
from deltaworks.errors import BadRowsError, CommandError
from deltaworks.settings import Settings
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import replay
from tests.flows import Crash, Log, Record
from tests.intruder import Intruder
from tests.patching import patch
from tests.tiny_project import Project

NOTES, DECLARATION, SUITE = "silver.notes", "tables/silver/notes/table.py", "expectations/silver/notes.yml"


def note(number: int, words: int | None, *, writer: int | None = 1) -> Record:
    """A note on the wire; the number of its words may be missing."""
    document = {"note_id": f"n{number}", "written_at": 1_763_719_200_000, "member_id": writer, "words": words}
    return Record(topic="notes", value=json.dumps(document).encode())


def project(folder: Path, only: str = "words > 3") -> Project:
    """The tiny project, which keeps only some notes; how many words a note has may be unknown."""
    made = Project(folder / "project")
    made.edit(DECLARATION, "subject=", f"only={only!r},\n    subject=")
    made.edit(DECLARATION, '"int", null=False', '"int"')
    return made


def opened(made: Project, folder: Path) -> ArrowOwner:
    """An owner of its tables."""
    return ArrowOwner(Settings.load(made.folder, environment={}, data=folder / "data"), "tiny")


def take(owner: ArrowOwner, log: Log, *records: Record) -> None:
    """One micro-batch."""
    log.send(records)
    owner.take(log.batch())


def totals(owner: ArrowOwner) -> Counts:
    """Where all rows went, once every position is committed."""
    owner.flow.settle()
    return owner.flow.inputs[NOTES].table.entry.totals


def findings(owner: ArrowOwner) -> list[Finding]:
    """What the checker has against the lake."""
    owner.flow.settle()
    with Picture(owner.catalog, owner.settings.lake) as picture:
        return check(picture, at_rest=False)


def names(owner: ArrowOwner) -> list[str]:
    """The notes that are there."""
    return [str(row["note_id"]) for row in owner.rows(NOTES)]


def test_rows_are_refused_then_filtered_then_told_from_copies(tmp_path: Path) -> None:
    """Unknown is no; a bad row is refused however few words it has; a filtered row has no copies and no warnings."""
    owner, log = opened(project(tmp_path), tmp_path), Log()

    take(
        owner, log,
        note(1, 4), note(1, 4), note(2, 3), note(2, 3), note(3, None), note(4, -1), note(5, 1, writer=None),
        note(6, 5, writer=None), Record(topic="notes", value=b"{"), Record(topic="members", value=b"{}"),
    )  # fmt: skip

    assert names(owner) == ["n1", "n6"]
    assert totals(owner) == Counts(read=10, taken=2, refused=2, duplicate=1, filtered=4, not_mine=1, warned=1)
    assert owner.verdicts() == {"ok"}
    assert findings(owner) == []


def test_what_brings_nothing_is_no_commit_and_counts_once(tmp_path: Path) -> None:
    """Batches that are filtered whole wait for the next commit; who dies before it counts them again, and not twice."""
    owner, log = opened(project(tmp_path), tmp_path), Log()
    take(owner, log, note(1, 4), note(2, 1))
    before = owner.flow.inputs[NOTES].table.version

    take(owner, log, note(3, 1), note(4, 2))
    take(owner, log, note(5, 1))
    same = owner.flow.inputs[NOTES].table.version
    log.send([note(6, 9), note(7, 1)])
    owner.crash_at = owner.commits + 1  # bronze is committed, silver is not
    with pytest.raises(Crash):
        owner.take(log.batch())
    owner.crash_at = -1
    owner.start()
    owner.catch_up(log)

    assert same == before
    assert owner.flow.inputs[NOTES].table.version > before
    assert names(owner) == ["n1", "n6"]
    assert totals(owner) == Counts(read=7, taken=2, filtered=5)
    assert owner.verdicts() == {"ok"}
    assert findings(owner) == []


def test_a_row_that_was_refused_by_mistake_may_be_filtered_after_all(tmp_path: Path) -> None:
    """It leaves quarantine, and the order says what became of it."""
    made = project(tmp_path)
    made.edit(SUITE, "min_value: 0}", "min_value: 0, max_value: 5}")
    made.edit(DECLARATION, "only='words > 3'", "only='words > 3 and words <> 7'")
    owner, log = opened(made, tmp_path), Log()
    take(owner, log, note(1, 4), note(2, 6), note(3, 7), note(4, 1))
    made.edit(SUITE, "min_value: 0, max_value: 5}", "min_value: 0}")
    owner.start()

    done = replay(owner, NOTES)

    assert (done["moved"], done["taken"], done["filtered"], done["still_refused"]) == (2, 1, 1, 0)
    assert names(owner) == ["n1", "n2"]
    assert totals(owner) == Counts(read=4, taken=2, filtered=2)
    assert findings(owner) == []


def test_a_patch_that_would_be_filtered_is_refused(tmp_path: Path) -> None:
    """It would change nothing but the books: such a row is discarded."""
    owner, log = opened(project(tmp_path), tmp_path), Log()
    take(owner, log, note(1, 4), note(2, -1))
    (bad,) = owner.rows(f"{NOTES}__quarantine")
    small, large = note(2, 3).value, note(2, 5).value
    assert small is not None
    assert large is not None

    with pytest.raises(CommandError, match="would refuse the new value .* too: only='words > 3' leaves it out"):
        patch(owner, NOTES, bad, small)
    patch(owner, NOTES, bad, large)
    replay(owner, NOTES)

    assert names(owner) == ["n1", "n2"]
    assert findings(owner) == []


def test_another_filter_is_other_code(tmp_path: Path) -> None:
    """Commits say by which they were made, as after any change of the declaration; what comes is judged by the new."""
    made = project(tmp_path)
    owner, log = opened(made, tmp_path), Log()
    take(owner, log, note(1, 4), note(2, 2))
    before = owner.flow.inputs[NOTES].table.entry.code
    made.edit(DECLARATION, "words > 3", "words > 1")
    owner.catalog = catalog.load(made.folder)
    owner.start()

    take(owner, log, note(3, 2))

    assert names(owner) == ["n1", "n3"]
    assert owner.flow.inputs[NOTES].table.entry.code != before
    assert findings(owner) == []


def test_filtered_rows_are_good_ones_to_the_breaker(tmp_path: Path) -> None:
    """What is refused is a part of all that came, of which the table keeps little."""
    made = project(tmp_path)
    made.edit(DECLARATION, 'owner="tests",', 'owner="tests",\n    bad_rows_max=share(0.5, of=10),')
    made.edit(DECLARATION, "minutes, refuse", "minutes, refuse, share")
    owner, log = opened(made, tmp_path), Log()

    take(owner, log, *(note(number, 1) for number in range(6)))
    take(owner, log, *(note(number, -1) for number in range(6, 12)))

    with pytest.raises(BadRowsError, match="7 of its last 13 rows were refused"):
        take(owner, log, note(12, -1))


@pytest.mark.parametrize(("more", "number"), [((), "filtered"), ((note(1, 4),), "commits")])
def test_filtered_rows_can_be_listed(tmp_path: Path, more: tuple[Record, ...], number: str) -> None:
    """Rows of bronze that are in neither table; where there are copies too, the commits that counted them."""
    owner, log = opened(project(tmp_path), tmp_path), Log()
    take(owner, log, note(1, 4), note(2, 1), note(3, -1), note(4, 2), *more)
    owner.flow.settle()
    owner.flow.book.record(owner.flow.tables(), owner.flow._committer(None))

    behind = {one.number: one for one in Ledger(owner.catalog, owner.settings.lake).behind(NOTES)}
    with connect(owner.settings.lake) as lake:
        rows = lake.sql(shlex.split(behind["filtered"].command)[2]).dicts()

    assert behind["filtered"].count == 2
    if number == "filtered":
        assert [row["offset"] for row in rows] == [1, 3]
    else:
        assert sum(int(str(row["filtered"])) for row in rows) == 2


def test_a_wrong_count_of_filtered_rows_is_found(tmp_path: Path) -> None:
    """One filtered row less than there are, one of another table more: the sum is right, and the checker is not had."""
    owner, log = opened(project(tmp_path), tmp_path), Log()
    take(owner, log, note(1, 4), note(2, 1), note(3, 2))
    owner.flow.settle()
    books = Intruder(owner.settings, NOTES)
    counts = replace(books.entry.totals, filtered=1, not_mine=1)
    books.rewrite(replace(books.entry, counts=counts, totals=counts))

    with Picture(owner.catalog, owner.settings.lake) as picture:
        found = {(one.invariant, one.place) for one in check(picture, at_rest=False)}

    assert found == {("I7", NOTES)}
