"""The page views of the simulator: the same for the same seed, with faults in the asked shares."""

import hashlib
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random

import pytest

from shop.faults import Faults
from shop.page_views import SPOILERS, Kind, PageView, page_views
from shop.wellformed import page_view

START = datetime(2026, 11, 21, 23, 59, 50, tzinfo=UTC)
FAULTS = Faults(duplicates=0.02, out_of_order=0.05, late=0.05, malformed=0.01)


def made(count: int, *, seed: int = 1, run: str = "r", faults: Faults = FAULTS) -> list[PageView]:
    """The first messages of a run at 1,000 page views a second."""
    endless = page_views(random=Random(seed), run=run, start=START, rate=1000, users=50, products=10, faults=faults)
    return list(islice(endless, count))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    """A run can be repeated: key, value and due time of each message follow from the arguments alone."""
    first, again, other = made(5_000), made(5_000), made(5_000, seed=2)

    assert len(first) == 5_000
    assert first == again
    assert first != other


def test_a_seed_gives_the_page_views_that_it_always_gave() -> None:
    """Benchmarks compare runs of different days: what is added to the simulator draws from a chance of its own."""
    told = hashlib.sha256(repr([tuple(view) for view in made(10_000)]).encode()).hexdigest()

    assert told == "33a637738c91ae989446c931d20b63e31c5f87263058726909604869f88e0afb"


def test_another_run_name_gives_other_event_ids() -> None:
    """Two starts against the same topic never share an event id, even with one seed."""
    one = {json.loads(view.value)["event_id"] for view in made(1_000, run="a", faults=Faults())}
    two = {json.loads(view.value)["event_id"] for view in made(1_000, run="b", faults=Faults())}

    assert len(one) == len(two) == 1_000
    assert not one & two


def test_faults_come_in_the_asked_shares() -> None:
    """Of 50,000 positions each fault has its share, within what chance allows (five standard deviations)."""
    views = made(50_000)
    kinds = Counter(view.kind for view in views)
    positions = len(views) - kinds["copy"]

    assert positions > 48_000
    asked: dict[Kind, float] = {"copy": 0.02, "out_of_order": 0.05, "late": 0.05, "malformed": 0.01}
    for kind, share in asked.items():
        deviation = (share * (1 - share) / positions) ** 0.5
        assert abs(kinds[kind] / positions - share) < 5 * deviation + 0.001, f"{kind}: {kinds[kind]} of {positions}"


def test_without_faults_each_message_is_a_view_of_its_time() -> None:
    """By default nothing is wrong: event times are the due times, also over midnight."""
    views = made(20_000, faults=Faults())

    assert {view.kind for view in views} == {"view"}
    for view in views:
        sent = page_view(view.value)
        assert sent is not None
        assert sent.event_time == START + timedelta(microseconds=view.due_us)


def test_the_kind_of_each_message_can_be_seen_in_its_bytes() -> None:
    """Malformed ones are refused by the validator, copies repeat earlier bytes, late ones are over 10 minutes late."""
    seen: set[bytes] = set()
    kinds: Counter[str] = Counter()

    for view in made(30_000):
        sent = page_view(view.value)
        kinds[view.kind] += 1
        assert (sent is None) == (view.kind == "malformed"), view
        assert (view.value in seen) == (view.kind == "copy") or view.kind == "malformed", view
        seen.add(view.value)
        if sent is None or view.kind == "copy":
            continue
        late_by = START + timedelta(microseconds=view.due_us) - sent.event_time
        bounds = {"view": (0, 0), "out_of_order": (1, 30), "late": (11 * 60, 120 * 60)}[view.kind]
        assert bounds[0] <= late_by.total_seconds() <= bounds[1], view

    assert set(kinds) == {"view", "copy", "out_of_order", "late", "malformed"}


def test_messages_are_keyed_by_user_and_copies_have_their_originals_key() -> None:
    """Copies meet their original in one partition, after it: that makes the first copy well defined."""
    key_of: dict[str, bytes] = {}

    for view in made(20_000):
        sent = page_view(view.value)
        if sent is not None:
            assert view.key == str(sent.user_id).encode()
            assert key_of.setdefault(sent.event_id, view.key) == view.key

    assert len(key_of) > 15_000


def test_messages_come_in_order_of_the_time_they_are_due() -> None:
    """The pacing can sleep from one message to the next."""
    due = [view.due_us for view in made(20_000)]

    assert due == sorted(due)
    assert due[-1] > 18_000_000


@pytest.mark.parametrize("number", range(len(SPOILERS)))
def test_every_way_to_spoil_a_view_makes_it_malformed(number: int) -> None:
    """No way to spoil leaves a view that a strict reader would take."""
    for view in made(200, faults=Faults()):
        assert page_view(view.value) is not None
        assert page_view(SPOILERS[number](view.value)) is None


@pytest.mark.parametrize("shares", [{"late": -0.1}, {"duplicates": 1.5}, {"late": 0.6, "malformed": 0.6}])
def test_impossible_shares_are_refused(shares: dict[str, float]) -> None:
    """Shares lie between 0 and 1, and those that exclude each other add up to 1 at most."""
    with pytest.raises(ValueError, match="shares"):
        Faults(**shares)
