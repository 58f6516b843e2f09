"""Whether a topic is the one that was read: by its end, its partitions, and the records before the position."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine.broker import Edge, Identity, Record, Span
from deltaworks.engine.clocks import BY_PRODUCER, Clocks, believed
from deltaworks.engine.gaps import Stretch
from deltaworks.engine.ledger import Ledger
from deltaworks.engine.same_log import OFFSETS_COMPARED_MAX, SameTopics
from deltaworks.errors import LeadersMovedError, NoAnswerError, SourceError
from deltaworks.settings import ROOT, Settings
from tests.arrow_flow import ArrowOwner
from tests.flows import START
from tests.shop_rows import view

TOPIC, ROWS = "page_views", 30
GAP = Stretch(topic=TOPIC, partition="0", first=0, upto=ROWS, counts={"marker": 1})
Edges = dict[str, dict[str, Edge]]


class Topic:
    """What a topic has: the log's records, but for one that is given, and without those below some offset or at one."""

    def __init__(
        self, owner: ArrowOwner, *, other: Record | None = None, low: int = 0, without: int | None = None
    ) -> None:
        """Take the records from the log of the owner."""
        rows = [_record(row) for row in owner.log.rows if row["offset"] != without]
        self._rows = [other if other is not None and row.offset == other.offset else row for row in rows]
        self._low = low
        self.asked = list[Span]()
        """What it was asked for, in the order of asking."""

    def records(self, wanted: Collection[Span]) -> list[Record]:
        """As a broker tells them."""
        self.asked += wanted
        return [
            row
            for topic, partition, first, upto in wanted
            for row in self._rows
            if (row.topic, row.partition) == (topic, partition) and max(first, self._low) <= row.offset < upto
        ]


def _record(row: Mapping[str, object]) -> Record:
    time = row["timestamp"]
    assert isinstance(time, datetime)
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    found: dict[str, object] = {name: row[name] for name in ("topic", "offset", "key", "value")}
    return Record(partition=str(row["partition"]), time=since // timedelta(milliseconds=1), **found)  # type: ignore[arg-type]  # as the log has them


@pytest.fixture
def owner(tmp_path: Path) -> ArrowOwner:
    """Give an owner that has read some page views."""
    owner = ArrowOwner(Settings.load(ROOT, environment={}, data=tmp_path), "web")
    owner.log.send(view(number, user=0) for number in range(ROWS))
    owner.bronze()
    return owner


def edges(owner: ArrowOwner, *, low: int = 0, high: int = 100, partitions: Collection[int] = (0, 1)) -> Edges:
    """The same for each partition of each topic."""
    return {topic: {str(p): Edge(low, high) for p in partitions} for topic in owner.flow.topics}


def test_topic_that_was_read_is_read_on(owner: ArrowOwner) -> None:
    """Also where the broker has a part of it or nothing any more: then there is nothing to tell by."""
    for low in (0, ROWS - 1, ROWS):
        starts = owner.flow.begin(edges(owner, low=low), broker=Topic(owner, low=low))
        assert starts[TOPIC]["0"] == ROWS


def test_record_whose_time_was_not_believed_is_the_one_that_was_read(tmp_path: Path) -> None:
    """Bronze has another time of it; another record in its place is told by what it carries."""
    owner = ArrowOwner(Settings.load(ROOT, environment={}, data=tmp_path), "web")
    owner.log.send(view(number, at=START + timedelta(days=number), user=0) for number in range(ROWS))
    until = Clocks(wall=START.timestamp).believed_until()
    rows = owner.log.batch()
    owner.take(believed(rows.append_column(BY_PRODUCER, pa.array([True] * ROWS)), until))
    last = Topic(owner).records([(TOPIC, "0", ROWS - 1, ROWS)])[0]

    owner.start()
    owner.flow.begin(edges(owner), broker=Topic(owner))

    for change in ({"key": None}, {"value": b"{}"}):
        with pytest.raises(SourceError, match=f"another record at {ROWS - 1} than was read"):
            owner.flow.begin(edges(owner), broker=Topic(owner, other=replace(last, **change)))


@pytest.mark.parametrize("low", [0, ROWS - 1])
@pytest.mark.parametrize("change", [{"time": 0}, {"key": None}, {"value": b"{}"}])
def test_one_other_record_tells_another_log(owner: ArrowOwner, low: int, change: dict[str, Any]) -> None:
    """However long it is; also if it is the only record that can be compared."""
    last = Topic(owner).records([(TOPIC, "0", ROWS - 1, ROWS)])[0]
    other = replace(last, **change)

    with pytest.raises(SourceError, match=f"another record at {ROWS - 1} than was read: it was made anew"):
        owner.flow.begin(edges(owner, low=low), broker=Topic(owner, other=other, low=low))


def test_record_where_none_was_read_tells_another_log(tmp_path: Path) -> None:
    """A marker of the old log and a record of the new one may have the same place, all along."""
    owner = ArrowOwner(Settings.load(ROOT, environment={}, data=tmp_path), "web")
    owner.log.send(view(number, user=0) for number in range(ROWS))
    odd = [row for row in owner.log.rows if int(str(row["offset"])) % 2]
    owner.log.rows = [row for row in owner.log.rows if row not in odd]
    owner.bronze()
    owner.flow.begin(edges(owner), broker=Topic(owner))

    owner.log.rows = odd
    with pytest.raises(SourceError, match="another record"):
        owner.flow.begin(edges(owner), broker=Topic(owner))


def test_record_that_the_broker_has_no_more_tells_nothing(owner: ArrowOwner) -> None:
    """Compaction takes some away."""
    del owner.log.rows[-3:]

    assert owner.flow.begin(edges(owner), broker=Topic(owner))[TOPIC]["0"] == ROWS


def test_record_far_below_the_position_is_not_looked_at(owner: ArrowOwner) -> None:
    """What is read at each start is bounded."""
    first = Topic(owner).records([(TOPIC, "0", 0, 1)])[0]
    broker = Topic(owner, other=replace(first, value=b"{}"))

    owner.flow.begin(edges(owner), broker=broker)

    spans = [(low, upto) for topic, partition, low, upto in broker.asked if (topic, partition) == (TOPIC, "0")]
    assert spans == [(ROWS - OFFSETS_COMPARED_MAX, ROWS)]


def test_log_of_which_one_batch_was_taken_is_refused_still(owner: ArrowOwner) -> None:
    """A broker that hears late of a new topic vouches for it; what is right before the position is of the new one."""
    owner.log.send(view(number, user=0) for number in range(ROWS, 3 * ROWS))
    owner.bronze()
    owner.flow.begin(edges(owner), broker=Topic(owner))
    last = Topic(owner).records([(TOPIC, "0", ROWS - 1, ROWS)])[0]

    for change in ({"time": 0}, {"key": None}, {"value": b"{}"}):
        with pytest.raises(SourceError, match=f"another record at {ROWS - 1} than was read: it was made anew"):
            owner.flow.begin(edges(owner), broker=Topic(owner, other=replace(last, **change)))


def test_topic_without_a_partition_that_was_read_is_refused(owner: ArrowOwner) -> None:
    """One of which nothing was read may go."""
    with pytest.raises(SourceError, match="partition 0: is gone"):
        owner.flow.begin(edges(owner, partitions=[1]), broker=None)

    owner.flow.begin(edges(owner, partitions=[0]), broker=None)


def test_topic_that_was_never_read_and_begins_earlier_is_refused(owner: ArrowOwner) -> None:
    """It was empty, and is read from its begin: one that begins earlier has records that would be passed over."""
    never = {topic: {"7": Edge(100, 100)} for topic in owner.flow.topics}
    owner.flow.begin({topic: parts | never[topic] for topic, parts in edges(owner).items()}, broker=None)
    owner.log.send([view(ROWS, user=0)])
    owner.bronze()
    assert owner.flow.bronze[0].table.entry.position.offsets[TOPIC]["7"] == 100

    assert "7" not in owner.flow.begin(edges(owner), broker=None)[TOPIC]
    lines = Ledger(owner.catalog, owner.settings.lake).lines(edges(owner))
    assert {line.verdict for line in lines if line.partition == 7} == {"ok"}
    anew = {topic: parts | {"7": Edge(0, 150)} for topic, parts in edges(owner).items()}
    with pytest.raises(SourceError, match="partition 7: begins at offset 0, it began at 100"):
        owner.flow.begin(anew, broker=None)


def test_records_that_were_gone_and_come_back_tell_nothing(owner: ArrowOwner) -> None:
    """A broker that is killed forgets what it was last told to delete; another record in a row's place tells still."""
    owner.log.send(view(number, user=0) for number in range(ROWS, ROWS + 5))
    gone = owner.log.rows[ROWS:]
    del owner.log.rows[ROWS:]
    owner.flow.begin(edges(owner, low=ROWS + 5), broker=None)
    owner.log.send([view(ROWS + 5, user=0)])
    owner.bronze()
    assert owner.flow.bronze[0].table.entry.position.lost[TOPIC]["0"] == len(gone) == 5

    owner.log.rows[ROWS:ROWS] = gone
    for low in (0, ROWS):
        owner.flow.begin(edges(owner, low=low), broker=Topic(owner, low=low))
    last = Topic(owner).records([(TOPIC, "0", ROWS - 1, ROWS)])[0]
    with pytest.raises(SourceError, match=f"another record at {ROWS - 1}"):
        owner.flow.begin(edges(owner), broker=Topic(owner, other=replace(last, value=b"{}")))
    with pytest.raises(SourceError, match=f"another record at {ROWS}"):  # the same, and nothing beside it that was read
        owner.flow.begin(edges(owner, low=ROWS), broker=Topic(owner, low=ROWS, without=ROWS + 5))


@pytest.mark.parametrize("found", [{"high": ROWS - 1}, {"partitions": [1]}])
def test_topic_that_ends_too_early_is_red(owner: ArrowOwner, found: dict[str, Any]) -> None:
    """One without the partition ends there at 0."""
    lines = Ledger(owner.catalog, owner.settings.lake).lines(edges(owner, **found))

    line = next(one for one in lines if (one.topic, one.partition) == (TOPIC, 0))

    assert line.verdict.startswith("RED: the topic ends before what was read")


def test_batch_that_nobody_vouches_for_stays_out_of_bronze(owner: ArrowOwner) -> None:
    """Only a table that has rows to commit, or gaps to book, asks."""

    def refuse(_: float) -> None:
        raise SourceError("topic", "it was made anew", "Look")

    for writer in owner.flow.bronze:
        writer.before_commit = refuse
    owner.bronze()
    owner.flow.settle()
    before = [writer.table.version for writer in owner.flow.bronze]

    owner.log.send([view(ROWS, user=0)])
    with pytest.raises(SourceError, match="topic: it was made anew"):
        owner.bronze()
    owner.flow.bronze[0].explained.append(GAP)
    with pytest.raises(SourceError, match="topic: it was made anew"):
        owner.flow.settle()
    assert [writer.table.version for writer in owner.flow.bronze] == before


def test_gaps_are_booked_later_when_the_broker_does_not_answer(owner: ArrowOwner) -> None:
    """An app that settles or stops meanwhile goes on; what nobody has vouched for is not booked."""
    bronze = next(one for one in owner.flow.bronze if TOPIC in one.declared.topics)
    later = replace(GAP, first=GAP.upto, upto=GAP.upto + 1)

    def away(_: float) -> None:
        raise NoAnswerError("the broker", "does not answer", "Look")

    def answer(_: float) -> None:
        bronze.explained.append(later)  # another thread does, while the question runs

    bronze.explained.append(GAP)
    bronze.before_commit = away
    owner.flow.settle()
    assert bronze.table.entry.position.asked == {}

    bronze.before_commit = answer
    owner.flow.settle()
    assert bronze.table.entry.position.asked == {TOPIC: {"0": GAP.upto}}
    assert list(bronze.explained) == [later]


class Told:
    """A broker that tells these ids and leaders."""

    def __init__(self, **known: Identity) -> None:
        """Tell them until they are changed."""
        self.known = known

    def identities(self, topics: Collection[str], *, seconds_max: float) -> dict[str, Identity]:
        """As a broker does that answers."""
        assert seconds_max > 0
        return {topic: known for topic, known in self.known.items() if topic in topics}


def test_topic_with_another_id_is_another_topic() -> None:
    """One that is not there for now, or has no id yet, tells nothing; one that got its id later is held to it."""
    one, two = Identity("one", {"0": 0}), Identity("two", {"0": 0})
    broker = Told(read=one, nameless=Identity(None, {"0": 0}))
    same = SameTopics(broker, ["read", "quiet", "nameless"])

    broker.known = {}
    same.check(1)
    broker.known = {"read": one, "quiet": two, "another": two, "nameless": one}
    same.check(1)
    broker.known = {"read": Identity(None, {"0": 0})}
    same.check(1)
    for topic in ("read", "quiet", "nameless"):
        broker.known = {topic: Identity("three", {"0": 1})}
        with pytest.raises(SourceError, match=f"topic {topic}: has id three.* made anew"):
            same.check(1)


def test_partition_with_another_leader_may_have_lost_its_end() -> None:
    """Nothing is committed that was read under one leader or the other, until somebody has looked: not once only."""
    broker = Told(read=Identity("one", {"0": 3, "1": 7}))
    same = SameTopics(broker, ["read"])

    broker.known = {"read": Identity("one", {"1": 7})}  # one that answers has not heard of all
    same.check(1)
    new = {"0": 3, "1": 7, "2": 0}  # a new partition is read from a new look on as well
    for epochs, told in (({"0": 4, "1": 7}, "0: has another leader .* 4, not 3"), (new, "2: is new")):
        broker.known = {"read": Identity("one", epochs)}
        for _ in range(2):
            with pytest.raises(LeadersMovedError, match=f"topic read partition {told}"):
                same.check(1)
    SameTopics(broker, ["read"]).check(1)
