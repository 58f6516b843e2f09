"""What was found out about gaps goes into bronze's entries, once, whatever happens between."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from deltaworks.engine.broker import Edge
from deltaworks.engine.gaps import Examiner, Hole, holes, rows_of
from deltaworks.engine.ledger import Ledger, Line
from deltaworks.engine.source import BRONZE
from deltaworks.errors import SourceError
from deltaworks.settings import Settings
from shop.part import FIRST, part_of_shop
from tests.arrow_flow import ArrowOwner
from tests.chance import seeded
from tests.shop_rows import view


@dataclass
class Recollection:
    """Stands in for a broker: it remembers which records were aborted, and what it was asked."""

    aborted: frozenset[int] = frozenset()
    low: int = 0
    away: bool = False
    asked: list[Hole] = field(default_factory=list)

    def edge(self, topic: str, partition: str) -> Edge:
        """Everything from `low` on is there."""
        if self.away:
            raise SourceError(f"topic {topic} {partition}", "the broker is away", "Wait")
        return Edge(self.low, 10**9)

    def compacts(self, topic: str) -> bool:
        """Nothing is ever compacted."""
        return topic == "compacted"

    def records(self, topic: str, partition: str, holes: Iterable[Hole], *, committed: bool) -> set[int]:
        """The aborted ones, for who wants to see them."""
        assert (topic, partition) == ("page_views", "1")
        self.asked += holes
        return set() if committed else {n for hole in holes for n in range(*hole) if n in self.aborted}


@pytest.fixture
def web(tmp_path: Path) -> ArrowOwner:
    """Give the owner of the app web, which has read offsets 0, 2, 3 and 6."""
    owner = ArrowOwner(Settings.load(part_of_shop(tmp_path / "project", *FIRST), environment={}, data=tmp_path), "web")
    for offsets in ((0, 2), (3, 6)):
        send(owner, *offsets)
    return owner


def send(owner: ArrowOwner, *offsets: int) -> None:
    """Take one ingest batch of records at these offsets."""
    for offset in offsets:
        owner.log.ends["page_views", 1] = offset
        owner.log.send([view(offset, user=1)])
    owner.bronze()


def line(owner: ArrowOwner) -> Line:
    """What the ledger says of the partition."""
    return next(one for one in Ledger(owner.catalog, owner.settings.lake).lines() if one.partition == 1)


def sums(one: Line) -> bool:
    """Whether every offset is accounted for."""
    explained = one.markers + one.aborted + one.compacted + one.missing + one.gone + one.not_asked
    return one.gaps == explained and one.read_up_to - one.first == one.rows + one.gaps + one.lost


def test_gaps_that_nobody_asked_about_are_said_to_be_so(web: ArrowOwner) -> None:
    """They are no fault yet, and no marker either."""
    found = line(web)

    assert (found.gaps, found.not_asked, found.verdict) == (3, 3, "ok")
    assert sums(found)


def test_each_gap_is_asked_once(web: ArrowOwner) -> None:
    """What is found goes into the next batch's entry, or into one of its own; a new driver goes on from there."""
    broker = Recollection(aborted=frozenset({4, 5}))
    examiner = Examiner(broker, web.flow.bronze)
    assert examiner.look(seconds_max=10)
    assert examiner.look(seconds_max=10)  # nothing is committed yet: remembered all the same
    send(web, 7)
    booked = line(web)

    web.start()
    send(web, 9)
    assert Examiner(broker, web.flow.bronze).look(seconds_max=10)
    web.flow.settle()

    assert broker.asked == [(1, 2), (4, 6), (4, 6), (8, 9)]  # the one with records: aborted, or does bronze lack them?
    assert (booked.markers, booked.aborted, booked.not_asked) == (1, 2, 0)
    assert (line(web).markers, line(web).aborted, line(web).not_asked) == (2, 2, 0)
    assert sums(line(web))
    listed = Ledger(web.catalog, web.settings.lake).gaps("page_views", broker)
    assert [(gap.kind, gap.first, gap.upto) for gap in listed] == [("aborted", 4, 6)]


@pytest.mark.parametrize("few", [0, 1_000])
def test_a_driver_looks_on_and_on(web: ArrowOwner, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """What is new is looked through alone where it is few; else among all rows, for the same gaps."""
    broker = Recollection()
    examiner = Examiner(broker, web.flow.bronze)
    examiner.look(seconds_max=10)
    monkeypatch.setattr("deltaworks.engine.gaps._BESIDE_MAX", few)

    for offset in (7, 9, 10, 12):
        send(web, offset)
        assert examiner.look(seconds_max=10)
    web.flow.settle()

    assert broker.asked == [(1, 2), (4, 6), (8, 9), (11, 12)]
    assert (line(web).markers, line(web).not_asked) == (5, 0)
    assert sums(line(web))


def test_what_was_found_and_not_committed_is_asked_again(web: ArrowOwner) -> None:
    """The driver dies between: nothing is lost and nothing counted twice."""
    broker = Recollection()
    Examiner(broker, web.flow.bronze).look(seconds_max=10)

    web.start()
    Examiner(broker, web.flow.bronze).look(seconds_max=10)
    web.flow.settle()

    assert line(web).markers == 3
    assert sums(line(web))


def test_broker_that_is_away_leaves_the_gaps_for_later(web: ArrowOwner) -> None:
    """Silence explains nothing."""
    broker = Recollection(away=True)
    examiner = Examiner(broker, web.flow.bronze)
    with pytest.raises(SourceError, match="the broker is away"):
        examiner.look(seconds_max=10)
    broker.away = False

    examiner.look(seconds_max=10)
    web.flow.settle()

    assert line(web).markers == 3


def test_gap_that_retention_took_before_it_was_asked_is_red(web: ArrowOwner) -> None:
    """It may have been a marker, and it may have been a record: nobody can say."""
    Examiner(Recollection(low=5), web.flow.bronze).look(seconds_max=10)
    web.flow.settle()

    found = line(web)

    assert (found.gone, found.markers) == (2, 1)
    assert found.verdict == "RED: 2 offsets without a row were gone before they were asked about"
    assert sums(found)


def test_offsets_known_to_be_lost_are_not_counted_twice(web: ArrowOwner) -> None:
    """Retention overtook the reader: what it took is lost, and red, but no riddle."""
    web.start()
    web.flow.begin({"page_views": {"0": Edge(0, 0), "1": Edge(20, 30)}}, broker=None)
    send(web, 20)
    Examiner(Recollection(low=20), web.flow.bronze).look(seconds_max=10)
    web.flow.settle()

    found = line(web)

    assert (found.lost, found.gone, found.gaps) == (13, 3, 3)  # 1, 4 and 5 were not asked about in time
    assert found.verdict.startswith("RED: 13 offsets were gone before they were read")
    assert sums(found)


def test_a_look_ends_in_time_and_goes_on_where_it_was(web: ArrowOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long backlog is explained in slices: seven offsets by two."""
    monkeypatch.setattr("deltaworks.engine.gaps.OFFSETS_MAX", 2)
    examiner = Examiner(Recollection(), web.flow.bronze)

    looks = [examiner.look(seconds_max=0.0) for _ in range(5)]
    web.flow.settle()

    assert looks == [False, False, False, False, True]
    assert line(web).markers == 3


def test_rows_that_are_counted_and_not_there_are_red(web: ArrowOwner) -> None:
    """More offsets turn out to be without a row than the entries leave room for."""
    table = web.flow.bronze[0].table
    position = replace(table.entry.position, explained={"page_views": {"1": {"marker": 5}}})
    web.committer.mark(table, table.entry.follow("gaps", position=position))

    assert line(web).verdict == "RED: 2 rows are counted that bronze does not have"
    assert sums(line(web))


def test_holes_are_the_offsets_without_a_row(tmp_path: Path) -> None:
    """Whatever is there, in whatever order and however many files, beside other partitions and topics."""
    chance = seeded()
    there = {number for number in range(400) if chance.random() < chance.choice([0.1, 0.9])}
    for _ in range(3):  # three files, each with a part; a row that is there twice leaves no hole
        part = chance.sample(sorted(there), len(there) // 2)
        rows = [{"topic": "t", "partition": 0, "offset": offset, "_seq": 1} for offset in part]
        rows += [{"topic": topic, "partition": 1, "offset": offset, "_seq": 1} for topic in "tu" for offset in range(9)]
        deltalake.write_deltalake(tmp_path, pa.Table.from_pylist(rows, schema=BRONZE), mode="append")
    kept = {
        row["offset"]
        for row in deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
        if not row["partition"]
    }
    first, upto = sorted(chance.sample(range(400), 2))

    found = holes(rows_of(tmp_path), topic="t", partition="0", first=first, upto=upto)

    assert {offset for hole in found for offset in range(*hole)} == set(range(first, upto)) - kept
    assert all(one[1] < other[0] for one, other in pairwise(found)), "neighbours are one hole"
    assert holes(rows_of(tmp_path), topic="none", partition="0", first=first, upto=upto) == [(first, upto)]
