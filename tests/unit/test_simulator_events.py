"""The other events of the simulator: the same for the same seed, related to each other, with the asked faults."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import groupby, islice, pairwise
from random import Random
from typing import Any, get_args

import pytest

from deltaworks import catalog
from deltaworks.engine.parse import Parser, parser
from deltaworks.settings import ROOT
from deltaworks.words.reading import Json
from shop.events import TOPICS, Event, events
from shop.faults import Faults
from shop.visits import SPOILERS, Kind
from tests.bronze_rows import bronze

START = datetime(2026, 11, 21, 23, 59, 50, tzinfo=UTC)
FAULTS = Faults(duplicates=0.02, out_of_order=0.05, late=0.05, malformed=0.01)
KEYS = {
    "searches": "session_id",
    "search_clicks": "session_id",
    "ad_impressions": "impression_id",
    "ad_clicks": "impression_id",
    "purchases": "user_id",
    "api_requests": "client_id",
    "cart_commands": "cart_id",
}
IDS = {
    "searches": "search_id",
    "search_clicks": "click_id",
    "ad_impressions": "impression_id",
    "ad_clicks": "click_id",
    "purchases": "purchase_id",
    "api_requests": "request_id",
    "cart_commands": "command_id",
}
TIMES = {
    "searches": "searched_at",
    "search_clicks": "clicked_at",
    "ad_impressions": "shown_at",
    "ad_clicks": "clicked_at",
    "purchases": "bought_at",
    "api_requests": "requested_at",
    "cart_commands": "given_at",
}
HOUR, TEN_MINUTES = timedelta(hours=1), timedelta(minutes=10)


def endless(
    *, seed: int = 1, run: str = "r", faults: Faults = FAULTS, rate: float = 5, users: int = 50, products: int = 10
) -> Iterator[Event]:
    """A run without an end."""
    return events(random=Random(seed), run=run, start=START, rate=rate, users=users, products=products, faults=faults)


@pytest.fixture(scope="module")
def hours() -> list[Event]:
    """Give four hours with faults: what is held back for up to two hours comes as well."""
    return list(islice(endless(), 60_000))


@pytest.fixture(scope="module")
def healthy() -> dict[str, list[dict[str, Any]]]:
    """Give four hours without faults, read, by topic."""
    read = defaultdict(list)
    for event in islice(endless(faults=Faults()), 60_000):
        read[event.topic].append(fields(event))
    return read


def fields(event: Event) -> dict[str, Any]:
    """What a well-formed event says, its time as a moment under the name "moment"."""
    said: dict[str, Any] = json.loads(event.value)
    return said | {"moment": datetime.fromisoformat(said[TIMES[event.topic]])}


@cache
def readers(topic: str) -> dict[str, Parser]:
    """The strict parser of each table of the project that reads a topic."""
    found = {}
    for one in catalog.load(ROOT).tables.values():
        reads = one.table.reads
        if isinstance(reads, Json) and reads.topic == topic:
            found[one.name] = parser(reads, one.columns)
    return found


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    """A run can be repeated: topic, key, value and due time of each message follow from the arguments alone."""
    first, again, other = (list(islice(endless(seed=seed), 10_000)) for seed in (1, 1, 2))

    assert len(first) == 10_000
    assert first == again
    assert first != other


def test_another_run_name_gives_other_ids() -> None:
    """Two starts against the same topics never share an id, even with one seed."""
    runs = [islice(endless(run=run, faults=Faults()), 5_000) for run in ("a", "b")]
    one, two = ({(event.topic, fields(event)[IDS[event.topic]]) for event in run} for run in runs)

    assert len(one) == len(two) == 5_000
    assert not one & two


def test_positions_come_at_the_asked_rate_whatever_follows_from_what(hours: list[Event]) -> None:
    """All topics together: position n is due at n / rate; copies come with a position."""
    due = [event.due_us for event in hours]
    positions = [event.due_us for event in hours if event.kind != "copy"]

    assert due == sorted(due)
    assert positions == [n * 200_000 for n in range(len(positions))]
    assert {event.topic for event in hours} == set(TOPICS) == set(KEYS)


@pytest.mark.parametrize("topic", TOPICS)
def test_each_topic_has_the_asked_shares_of_faults(hours: list[Event], topic: str) -> None:
    """Of each topic's positions; wide bounds, for faults come in groups: half of what follows has its cause's."""
    kinds = Counter(event.kind for event in hours if event.topic == topic)
    positions = kinds.total() - kinds["copy"]

    assert positions > 2_500
    asked: dict[Kind, float] = {"copy": FAULTS.duplicates, "out_of_order": 0.05, "late": 0.05, "malformed": 0.01}
    for kind, share in asked.items():
        assert 0.65 * share < kinds[kind] / positions < 1.35 * share, f"{kind}: {kinds[kind]} of {positions}"


def test_each_kind_can_be_seen_in_time_and_bytes(hours: list[Event]) -> None:
    """Events are sent when they happen, or a few seconds later where many are due; no event is of the future."""
    seen: set[tuple[str, bytes]] = set()
    lags = {"event": (0, 10), "out_of_order": (1, 40), "late": (11 * 60, 120 * 60 + 10)}
    checked: Counter[str] = Counter()

    for event in hours:
        if event.kind == "malformed":
            continue
        assert ((event.topic, event.value) in seen) == (event.kind == "copy"), event
        seen.add((event.topic, event.value))
        if event.kind == "copy":
            continue
        lag = START + timedelta(microseconds=event.due_us) - fields(event)["moment"]
        low, high = lags[event.kind]
        assert low <= lag.total_seconds() <= high, event
        checked[event.kind] += 1

    assert min(checked.values()) > 2_000
    assert set(checked) == set(lags)


def test_ids_are_given_once_but_for_copies(hours: list[Event]) -> None:
    """The id of a topic's row is how its reader knows a copy."""
    whole = [event for event in hours if event.kind not in {"copy", "malformed"}]

    ids = {(event.topic, fields(event)[IDS[event.topic]]) for event in whole}

    assert len(ids) == len(whole) > 50_000


def test_keys_are_what_the_topics_are_declared_with(hours: list[Event]) -> None:
    """What belongs together keeps its order: in one partition."""
    for event in hours:
        if event.kind != "malformed":
            assert event.key == str(fields(event)[KEYS[event.topic]]).encode()


def test_late_events_come_early_in_a_run_too() -> None:
    """A minute of a demo has late causes and late effects, though nothing was held back so long."""
    late = Counter(
        event.topic for event in islice(endless(faults=replace(FAULTS, late=0.2)), 600) if event.kind == "late"
    )

    assert late["searches"] > 0
    assert late["search_clicks"] > 0


def test_a_click_names_an_earlier_search_of_its_visit(healthy: dict[str, list[dict[str, Any]]]) -> None:
    """Half of the searches are clicked, by the visitor who searched; now and then more than an hour later."""
    searches = {search["search_id"]: search for search in healthy["searches"]}
    soon = late = 0

    for click in healthy["search_clicks"]:
        search = searches[click["search_id"]]
        assert (click["session_id"], click["user_id"]) == (search["session_id"], search["user_id"])
        assert click["moment"] > search["moment"]
        soon += click["moment"] - search["moment"] < timedelta(minutes=5)
        late += click["moment"] - search["moment"] > HOUR

    clicked = {click["search_id"] for click in healthy["search_clicks"]}
    assert 0.47 < len(clicked) / len(searches) < 0.53
    assert soon > 4_000
    assert 0.01 < late / len(healthy["search_clicks"]) < 0.04


def test_a_click_names_an_earlier_impression(healthy: dict[str, list[dict[str, Any]]]) -> None:
    """By the same user, of the same advertisement, within ten minutes but for a few."""
    shown = {impression["impression_id"]: impression for impression in healthy["ad_impressions"]}
    soon = late = 0

    for click in healthy["ad_clicks"]:
        impression = shown[click["impression_id"]]
        assert (click["user_id"], click["ad_id"]) == (impression["user_id"], impression["ad_id"])
        assert click["moment"] > impression["moment"]
        soon += click["moment"] - impression["moment"] < timedelta(minutes=5)
        late += click["moment"] - impression["moment"] > TEN_MINUTES

    assert soon > 2_500
    assert 0.01 < late / len(healthy["ad_clicks"]) < 0.04


def test_some_clicks_on_advertisements_are_followed_by_a_purchase() -> None:
    """Of the same user within a minute, more often than chance would have it; others buy without any click."""
    clicked: dict[int, datetime] = {}
    soon = purchases = 0

    for event in islice(endless(faults=Faults(), users=1_000_000), 20_000):
        said = fields(event)
        if event.topic == "ad_clicks":
            clicked[said["user_id"]] = said["moment"]
        elif event.topic == "purchases":
            purchases += 1
            soon += said["moment"] - clicked.get(said["user_id"], START - HOUR) < timedelta(minutes=1)
            assert Decimal("0.99") <= Decimal(said["amount"]) < 300

    assert purchases > 1_000
    assert 0.2 < soon / purchases < 0.5


def test_effects_come_after_their_causes_with_faults_too(hours: list[Event]) -> None:
    """In event time, whatever was held back or lies before the run: else nothing would join."""
    whole = [(event.topic, fields(event)) for event in hours if event.kind not in {"copy", "malformed"}]
    causes = {said["search_id"]: said for topic, said in whole if topic == "searches"}
    causes |= {said["impression_id"]: said for topic, said in whole if topic == "ad_impressions"}
    joined = 0

    for topic, said in whole:
        if topic in {"search_clicks", "ad_clicks"}:
            cause = causes.get(said["search_id"] if topic == "search_clicks" else said["impression_id"])
            if cause is not None:  # it may be malformed, or still be held back
                joined += 1
                assert said["moment"] > cause["moment"]

    assert joined > 6_000


def test_carts_are_filled_changed_and_checked_out_and_three_in_a_hundred_commands_are_impossible(
    healthy: dict[str, list[dict[str, Any]]],
) -> None:
    """Judged by what the cart holds when a command comes, as table cart_events does it."""
    commands = sorted(healthy["cart_commands"], key=lambda command: (command["cart_id"], command["moment"]))
    done: Counter[str] = Counter()
    refused: Counter[str] = Counter()

    for _, cart in groupby(commands, key=lambda command: command["cart_id"]):
        told = list(cart)
        assert len({command["user_id"] for command in told}) == 1
        assert all(before["moment"] < after["moment"] for before, after in pairwise(told))
        for command, why in judged(told):
            (refused if why else done)[why or command] += 1

    assert set(done) == {"add", "remove", "change_quantity", "check_out"}
    assert min(done.values()) > 500
    assert set(refused) == {"closed", "empty", "not above zero", "not in the cart"}
    assert 0.02 < refused.total() / len(commands) < 0.045


def judged(cart: list[dict[str, Any]]) -> Iterator[tuple[str, str | None]]:
    """Each command of one cart, and why it is refused."""
    held: set[int] = set()
    closed = False
    for said in cart:
        command, product, quantity = said["command"], said["product_id"], said["quantity"]
        assert (product is None) == (command == "check_out")
        assert (quantity is None) == (command in {"check_out", "remove"})
        if closed:
            yield command, "closed"
        elif command == "check_out" and not held:
            yield command, "empty"
        elif quantity is not None and quantity <= 0:
            yield command, "not above zero"
        elif command in {"remove", "change_quantity"} and product not in held:
            yield command, "not in the cart"
        else:
            closed = command == "check_out"
            held = held - {product} if command == "remove" else held | {product}
            yield command, None


def test_requests_come_one_by_one_and_now_and_then_in_bursts(healthy: dict[str, list[dict[str, Any]]]) -> None:
    """A burst: ten requests and more of one program within fifteen seconds, of which the last are refused."""
    of_program = defaultdict(list)
    for request in healthy["api_requests"]:
        if not request["client_id"].startswith("2001:db8::"):
            of_program[request["client_id"]].append(request)

    refused = [request for client in of_program.values() for request in client if request["status"] == 429]

    assert 0.2 < sum(map(len, of_program.values())) / len(healthy["api_requests"]) < 0.8
    assert len(refused) > 500
    for request in refused[::50]:
        near = [
            other
            for other in of_program[request["client_id"]]
            if abs(other["moment"] - request["moment"]) < timedelta(seconds=15)
        ]
        assert len(near) >= 10


def test_users_and_products_are_those_of_the_shop() -> None:
    """Numbered from 1, so that clicks and carts find their customers and products."""
    users, products = set(), set()

    for event in islice(endless(faults=Faults(), users=7, products=3), 20_000):
        said = fields(event)
        users.add(said.get("user_id"))
        products.add(said.get("product_id"))
        if event.topic == "search_clicks":
            assert said["url"] in {"/products/1", "/products/2", "/products/3"}

    assert users - {None} == set(range(1, 8))
    assert products - {None} == {1, 2, 3}


@pytest.mark.parametrize("topic", TOPICS)
def test_the_tables_take_every_wellformed_event_and_refuse_every_malformed_one(hours: list[Event], topic: str) -> None:
    """Judged by the strict parser of each table that reads the topic; the fields are the columns, to the name."""
    of_topic = [event for event in hours if event.topic == topic]
    tables = readers(topic)

    assert {event.kind for event in of_topic} == set(get_args(Kind))
    assert f"silver.{topic}" in tables
    for name, strict in tables.items():
        rows = strict.parse(bronze([event.value for event in of_topic], topic=topic))
        for event, kind, reason in zip(of_topic, rows["_kind"].to_pylist(), rows["_reason"].to_pylist(), strict=True):
            assert kind == ("refused" if event.kind == "malformed" else "row"), f"{name}: {reason}: {event}"
    columns = {column.name for column in tables[f"silver.{topic}"].columns}
    assert set(json.loads(next(event.value for event in of_topic if event.kind == "event"))) == columns


@pytest.mark.parametrize("topic", TOPICS)
def test_every_way_to_spoil_an_event_makes_it_malformed(topic: str) -> None:
    """No way to spoil leaves an event that any reader of the topic would take."""
    whole = [event.value for event in islice(endless(faults=Faults()), 3_000) if event.topic == topic][:20]

    assert len(whole) == 20
    assert f"silver.{topic}" in readers(topic)
    for name, strict in readers(topic).items():
        for number, spoil in enumerate(SPOILERS[topic]):
            rows = strict.parse(bronze([*whole, *map(spoil, whole)], topic=topic))
            assert rows["_kind"].to_pylist() == ["row"] * 20 + ["refused"] * 20, f"{name} {number}"


def test_times_and_amounts_are_written_with_all_their_digits() -> None:
    """Times are ISO 8601 with Z and six digits, amounts texts with two decimals."""
    for event in islice(endless(faults=Faults()), 2_000):
        said = json.loads(event.value)
        assert said[TIMES[event.topic]].endswith("Z")
        assert len(said[TIMES[event.topic]]) == len("2026-11-21T23:59:50.000000Z")
        assert event.topic != "purchases" or said["amount"][-3] == "."
