"""How old rows are when a reader of the lake sees them."""

import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
from bench.age import Ages, Watch, added, percentile
from bench.marks import Marker, even
from bench.written import look, written
from deltalake import write_deltalake


class _Sender:
    """Keeps what it was told to send, and when."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, datetime, float]] = []

    def send(self, number: int, due: datetime) -> None:
        self.sent.append((number, due, time.monotonic()))


def _write(table: Path, *pages: str | None) -> None:
    rows = pa.table({"page": pa.array(pages, pa.string()), "part": [f"a b/{len(pages)}"] * len(pages)})
    write_deltalake(str(table), rows, mode="append", partition_by=["part"])


def test_percentile_is_a_value_that_was_measured() -> None:
    """Nearest rank: no value between two."""
    ordered = [float(number) for number in range(1, 11)]

    found = [percentile(ordered, percent) for percent in (1, 50, 95, 99, 100)]

    assert found == [1.0, 5.0, 10.0, 10.0, 10.0]


def test_ages_take_what_was_not_seen_for_the_oldest() -> None:
    """A percentile among them is none: a side that loses its slowest rows looks no faster."""
    assert Ages.of([3.0, 1.0, 2.0]) == Ages(count=3, unseen=0, p50=2.0, p95=3.0, p99=3.0)
    assert Ages.of([3.0, 1.0, 2.0], unseen=1) == Ages(count=3, unseen=1, p50=2.0, p95=None, p99=None)
    assert Ages.of([], unseen=1) == Ages(count=0, unseen=1, p50=None, p95=None, p99=None)
    assert Ages.of([]) == Ages(count=0, unseen=0, p50=None, p95=None, p99=None)


def test_added_files_have_the_names_of_the_file_system() -> None:
    """A log quotes names as in an address; what is removed, and what is no file, is left out."""
    entry = """{"commitInfo":{"operation":"MERGE"}}
{"remove":{"path":"old.parquet"}}
{"add":{"path":"part=a%20b/new.parquet","size":7}}
"""
    assert added(entry) == ["part=a b/new.parquet"]


def test_watch_sees_a_mark_when_its_version_is_there(tmp_path: Path) -> None:
    """It waits for a table that does not exist yet, reads every version once, and keeps when a mark came first."""
    watch = Watch(tmp_path / "table", column="page", prefix="/mark/")
    watch.poll()

    _write(tmp_path / "table", "/mark/1", "/", None)
    watch.poll()
    first = dict(watch.seen)
    _write(tmp_path / "table", "/mark/1", "/mark/2")
    watch.poll()

    assert first.keys() == {"/mark/1"}
    assert watch.seen.keys() == {"/mark/1", "/mark/2"}
    assert watch.seen["/mark/1"] == first["/mark/1"] < watch.seen["/mark/2"]


def test_written_is_what_came_between_two_looks(tmp_path: Path) -> None:
    """Files, entries and bytes of all tables, of a new one too, and of pasts; those of before are not counted."""
    _write(tmp_path / "silver" / "known", "/")
    begin = look(tmp_path)
    _write(tmp_path / "silver" / "known", "/")
    _write(tmp_path / "silver" / "known", "/cart")
    _write(tmp_path / "gold" / "new", "/")
    past = tmp_path / "silver" / "known" / "_past" / f"{0:020d}.{0:020d}.zip"
    past.parent.mkdir()
    past.write_bytes(b"segment")

    found = written(begin, look(tmp_path))

    files = [*(tmp_path / "silver").rglob("*.parquet"), *(tmp_path / "gold").rglob("*.parquet")]
    first = min(files, key=lambda file: file.stat().st_mtime_ns)
    logs = [log for log in tmp_path.rglob("*.json") if log.parent.parent.name == "new" or int(log.stem) > 0]
    assert (found.files, found.commits) == (3, 3)
    assert found.bytes == sum(file.stat().st_size for file in [*files, *logs, past]) - first.stat().st_size
    assert found.per_hour(1800).files == 6


def test_marks_fall_one_into_each_part_of_the_time() -> None:
    """The same seed gives the same times, and no two are in one part."""
    times = even(10.0, seconds=120, count=60, random=Random(7))

    assert times == even(10.0, seconds=120, count=60, random=Random(7))
    assert [int((at - 10.0) // 2) for at in times] == list(range(60))


def test_mark_is_due_when_it_was_planned_however_late_it_is_sent() -> None:
    """An open loop: what a sender loses is part of the age."""
    sender, stopping = _Sender(), threading.Event()
    marker = Marker(sender, prefix="/mark/")
    now = time.monotonic()
    marker.plan([now - 5, now + 0.05])
    thread = threading.Thread(target=marker.run, args=(stopping,))

    thread.start()
    deadline = now + 30
    while len(sender.sent) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    stopping.set()
    thread.join()

    assert marker.due == {"/mark/0": now - 5, "/mark/1": now + 0.05}
    assert marker.between(now, now + 1).keys() == {"/mark/1"}
    assert marker.late_seconds_max >= 5
    assert sender.sent[1][2] >= now + 0.05
    assert (datetime.now(UTC) - sender.sent[0][1]).total_seconds() >= 5
