"""Order confirmations on the real Kafka and Postgres, told to a real webhook and mail server, whatever is killed."""

import json
import os
import re
import signal
import subprocess
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as policy
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import OFFSET_END, Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from deltaworks.local import stack as local_stack
from deltaworks.settings import ROOT, Settings
from shop.notify.member import TOPIC
from tests.ports import free_ports
from tests.running_stack import part, running_stack, wait_until

StartParts = Callable[..., Settings]
PARTITIONS = 4


class Inbox:
    """The other side: `python -m shop.inbox` on free ports."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.folder = folder
        self._settings = settings
        self._web, self._smtp = free_ports(2)
        self.webhook, self.smtp = f"http://127.0.0.1:{self._web}/orders", f"127.0.0.1:{self._smtp}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start it, on the same ports and with the same folder as before."""
        ports = ("--webhook-port", str(self._web), "--smtp-port", str(self._smtp))
        command = [str(self._settings.spark_python), "-m", "shop.inbox", *ports, "--folder", str(self.folder), *more]
        self._process = subprocess.Popen(command, cwd=ROOT, env=self._settings.inherited())
        wait_until(self._answers, what="the inbox answers")

    def stop(self) -> None:
        """End it in good order, if it runs."""
        if self._process is not None:
            self._process.terminate()
            assert self._process.wait(timeout=30) == 0
        self._process = None

    def counts(self) -> Counter[str]:
        """What it kept, and what came again since its start."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/") as answer:
            return Counter(json.loads(answer.read()))

    def webhooks(self) -> list[dict[str, Any]]:
        """What was posted, in the order of arrival, each as key and body."""
        return [json.loads(path.read_text()) for path in sorted((self.folder / "webhooks").glob("*.json"))]

    def mails(self) -> list[EmailMessage]:
        """The mails in the order of arrival."""
        paths = sorted((self.folder / "mails").glob("*.eml"))
        return [message_from_bytes(path.read_bytes(), policy=policy) for path in paths]

    def _answers(self) -> bool:
        try:
            return bool(self.counts() is not None)
        except OSError:
            return False


class Group:
    """A consumer group of its own for a test: its members, what is sent to them, and what the broker knows of them."""

    def __init__(self, settings: Settings, inbox: Inbox, folder: Path, *, mail: Inbox | None = None) -> None:
        self.name = uuid.uuid4().hex
        self.members: dict[str, subprocess.Popen[bytes]] = {}
        self._settings, self._folder = settings, folder
        self._to = ("--webhook", inbox.webhook, "--smtp", (mail or inbox).smtp)
        self._admin = AdminClient({"bootstrap.servers": settings.kafka, "log_level": 0})

    def start(self, *names: str) -> None:
        """Start members and wait until each has partitions."""
        for name in names:
            with (self._folder / f"{name}.log").open("ab") as log:
                command = self._command("--group", self.name, "--member", name)
                self.members[name] = subprocess.Popen(command, cwd=ROOT, env=self._settings.inherited(), stderr=log)
        wait_until(lambda: self._shared(len(self.members)), what=f"{len(self.members)} members share the partitions")

    def end(self, name: str, how: signal.Signals) -> int:
        """End a member; returns its exit code."""
        process = self.members.pop(name)
        process.send_signal(how)
        return process.wait(timeout=30)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run one of the small commands."""
        return subprocess.run(
            self._command("--group", self.name, *command), cwd=ROOT, env=self._settings.inherited(),
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def dead(self, ids: set[str]) -> list[dict[str, Any]]:
        """The dead letters among these ids."""
        return [one for one in json.loads(self.run("list-dead", "--json").stdout) if one["id"] in ids]

    def log(self, name: str) -> str:
        """What a member wrote."""
        return (self._folder / f"{name}.log").read_text()

    def shares(self) -> dict[str, int]:
        """How many partitions each member has, by its id in the group, which is new when it had to join again."""
        found = self._described()
        members = found.members if found and found.state == ConsumerGroupState.STABLE else ()
        return {one.member_id: len(one.assignment.topic_partitions) for one in members}

    def is_empty(self) -> bool:
        """Whether nobody is in the group, not even one who is only believed to be there."""
        found = self._described()
        return found is not None and not found.members

    def _described(self) -> Any:
        """What the broker says of the group, None while it cannot: its coordinator may still be loading."""
        try:
            return self._admin.describe_consumer_groups([self.name])[self.name].result(timeout=30)
        except (KafkaException, TimeoutError):
            return None

    def lag(self) -> int | None:
        """Messages that are not acknowledged; None while the broker cannot say."""
        consumer = Consumer({"bootstrap.servers": self._settings.kafka, "group.id": self.name, "log_level": 0})
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        try:
            committed = consumer.committed(places, timeout=10)
            there = [consumer.get_watermark_offsets(one, timeout=10) for one in places]
        except KafkaException:
            return None
        finally:
            consumer.close()
        return sum(end - max(one.offset, first) for (first, end), one in zip(there, committed, strict=True))

    def _shared(self, members: int) -> bool:
        shares = self.shares()
        return len(shares) == members and min(shares.values()) > 0 and sum(shares.values()) == PARTITIONS

    def _command(self, *more: str) -> list[str]:
        return [str(self._settings.spark_python), "-m", "shop.notify", *self._to, *more]


@pytest.fixture
def services(stack: StartParts) -> Settings:
    """Give the settings of a running broker, whose topic is empty, and control server."""
    settings = stack(parts=("kafka", "control"))
    empty(settings)
    return settings


@pytest.fixture
def inbox(services: Settings, tmp_path: Path) -> Iterator[Inbox]:
    """Give an inbox that listens."""
    inbox = Inbox(services, tmp_path / "inbox")
    inbox.start()
    yield inbox
    inbox.stop()


@pytest.fixture
def group(services: Settings, inbox: Inbox, tmp_path: Path) -> Iterator[Group]:
    """Give a group without members that tells the inbox."""
    group = Group(services, inbox, tmp_path)
    yield group
    for process in group.members.values():
        process.kill()
        process.wait()


def empty(settings: Settings) -> None:
    """Delete what is in the topic, as retention does."""
    admin = AdminClient({"bootstrap.servers": settings.kafka, "log_level": 0})
    places = [TopicPartition(TOPIC, number, OFFSET_END) for number in range(PARTITIONS)]

    def deleted() -> bool:
        try:
            return all(one.result(timeout=30) for one in admin.delete_records(places).values())
        except KafkaException:  # a topic that was just made has no leader yet
            return False

    wait_until(deleted, what="the topic is empty")


def order(order_id: int, **values: object) -> dict[str, object]:
    """A confirmation as a table publishes it."""
    given = {"order_id": order_id, "customer_id": 3, "name": "Ada", "email": f"ada{order_id}@shop.example"}
    return given | {"amount": "12.50", "placed_at": "2026-11-22T10:00:00.000000Z", "unknown": 1} | values


def send(settings: Settings, *messages: tuple[int, str | None, bytes | None]) -> None:
    """Send messages, each an order's number, an id and a value."""
    producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})
    for order_id, key, value in messages:
        headers: dict[str, str | bytes | None] = {} if key is None else {"id": key.encode()}
        producer.produce(TOPIC, value, key=str(order_id), headers=headers)
    assert producer.flush(30) == 0


def sent(settings: Settings, first: int, count: int, **values: object) -> list[str]:
    """Send confirmations of numbered orders; returns their ids."""
    ids = [f"{uuid.uuid4()}" for _ in range(count)]
    orders = enumerate(ids, start=first)
    send(settings, *((number, key, json.dumps(order(number, **values)).encode()) for number, key in orders))
    return ids


def posted(inbox: Inbox, ids: list[str]) -> Counter[str]:
    """How often each id is among the kept webhooks."""
    return Counter(one["key"] for one in inbox.webhooks() if one["key"] in {*ids})


@contextmanager
def held_up(settings: Settings) -> Iterator[Callable[[], tuple[int, str]]]:
    """Nobody can record meanwhile; gives what waits until a member wants to, and tells its session and its name."""
    waiting = (
        "select pid, application_name from pg_stat_activity where wait_event_type = 'Lock' and datname = 'serving'"
    )
    with (
        psycopg.connect(settings.serving_dsn()) as lock,
        psycopg.connect(settings.serving_dsn(), autocommit=True) as watch,
    ):

        def first() -> tuple[int, str]:
            wait_until(lambda: watch.execute(waiting).fetchone() is not None, what="a member waits for the records")
            session, name = watch.execute(waiting).fetchone() or (0, "")
            return session, name.removeprefix("shop.notify ")

        lock.execute("lock table notify.delivered in exclusive mode")
        yield first


def killed_between_telling_and_recording(settings: Settings, group: Group, held: tuple[int, str]) -> None:
    """End a member that waits, as well as its session at the server, which would record it yet."""
    session, name = held
    assert group.end(name, signal.SIGKILL) == -signal.SIGKILL
    with psycopg.connect(settings.serving_dsn(), autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s, 5000)", (session,))


def test_killed_member_is_replaced_by_the_others_and_each_is_told_once(
    services: Settings, inbox: Inbox, group: Group
) -> None:
    """Three share four partitions, one dies between telling and recording; what comes again is known here or there."""
    group.start("one", "two", "three")
    ids = sent(services, 0, 30)
    bad = sent(services, 30, 1, email="nobody@refused.invalid")
    wait_until(lambda: group.lag() == 0, what="they are at work")

    with held_up(services) as first_waiting:
        ids += sent(services, 31, 60)
        killed_between_telling_and_recording(services, group, first_waiting())
        assert group.lag() == 60
    ids += sent(services, 91, 30)
    send(services, *((number, key, json.dumps(order(number)).encode()) for number, key in enumerate(ids[:20])))

    wait_until(lambda: group.lag() == 0, what="all is acknowledged", seconds_max=120)
    assert posted(inbox, [*ids, *bad]) == Counter([*ids, *bad])
    assert len(inbox.mails()) == len({mail["To"] for mail in inbox.mails()}) == len(ids) == 120
    counts = inbox.counts()
    repeated = counts["webhooks_repeated"] + counts["mails_repeated"]
    assert 1 <= repeated < 20, "what nobody had recorded was told again, the copies were not"
    assert sorted(group.shares().values()) == [2, 2]
    reason = "recipient refused with 550 5.1.1"
    assert [(one["id"], one["channel"], one["reason"]) for one in group.dead({*bad})] == [(bad[0], "mail", reason)]

    still = group.run("retry-dead", bad[0])
    inbox.stop()
    inbox.start("--refuse", "other.invalid")
    mended = group.run("retry-dead", bad[0])
    gone = group.run("retry-dead", bad[0])

    assert [one.returncode for one in (still, mended, gone)] == [1, 0, 3]
    assert reason in still.stdout
    assert [mail["To"] for mail in inbox.mails()][120:] == ["nobody@refused.invalid"]
    assert group.dead({*bad}) == []
    assert inbox.counts()["webhooks_repeated"] == 0


def test_webhook_that_is_down_holds_up_and_loses_nothing(services: Settings, inbox: Inbox, tmp_path: Path) -> None:
    """The members wait longer and longer and stay in the group; then each order's messages come in their order."""
    other = Inbox(services, tmp_path / "mail")
    other.start()
    group = Group(services, inbox, tmp_path, mail=other)
    try:
        group.start("one", "two")
        before = group.shares()
        inbox.stop()
        ids = [key for round_ in range(6) for key in sent(services, 1000, 10, amount=f"{round_}.00")]
        wait_until(lambda: "waits for 2.0 s" in group.log("one") + group.log("two"), what="a third try")

        inbox.start()
        wait_until(lambda: group.lag() == 0, what="all is acknowledged", seconds_max=120)

        shares = group.shares()
        codes = [group.end(name, signal.SIGTERM) for name in ("one", "two")]
    finally:
        for process in group.members.values():
            process.kill()
            process.wait()
        other_counts = other.counts()
        mails = other.mails()
        other.stop()
    assert shares == before
    assert codes == [0, 0]
    assert posted(inbox, ids) == Counter(ids)
    amounts: dict[int, list[str]] = {}
    for one in inbox.webhooks():
        if one["key"] in {*ids}:
            amounts.setdefault(one["body"]["order_id"], []).append(one["body"]["amount"])
    assert amounts == {number: [f"{round_}.00" for round_ in range(6)] for number in range(1000, 1010)}
    assert len(mails) == 60
    assert other_counts["mails_repeated"] == 0
    assert inbox.counts()["webhooks_repeated"] == 0


@pytest.mark.parametrize("name", ["kafka", "control"])
def test_broker_and_records_may_be_killed(services: Settings, inbox: Inbox, group: Group, name: str) -> None:
    """The members go on when they are back; nothing is lost, and what comes again is known."""
    group.start("one", "two")
    ids = sent(services, 2000, 60)
    wait_until(lambda: len(posted(inbox, ids)) >= 5, what="they are at work")
    killed = part(services, name).pid
    assert killed is not None

    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: part(services, name).pid not in {None, killed}, what=f"{name} is started again")
    wait_until(lambda: part(services, name).state == "ready", what=f"{name} is ready")
    ids += sent(services, 2060, 20)

    wait_until(lambda: len(posted(inbox, ids)) == 80, what="each is told", seconds_max=120)
    wait_until(lambda: group.lag() == 0, what="all is acknowledged", seconds_max=120)
    assert posted(inbox, ids) == Counter(ids)
    ours = {f"ada{number}@shop.example" for number in range(2000, 2080)}
    # a killed broker may have those of earlier tests again: it writes down now and then only what was deleted
    assert Counter(to for mail in inbox.mails() if (to := str(mail["To"])) in ours) == Counter(ours)


def test_what_is_no_confirmation_becomes_a_dead_letter(services: Settings, inbox: Inbox, group: Group) -> None:
    """Each with its reason, and the next one goes on. A tombstone is none; one without an id may be told after all."""
    value = json.dumps(order(3000)).encode()
    garbage, lacking, good = (f"{uuid.uuid4()}" for _ in range(3))
    group.start("one")

    send(
        services,
        (3000, None, value),
        (3000, garbage, b"garbage"),
        (3000, lacking, json.dumps(order(3000, email=None)).encode()),
        (3000, f"{uuid.uuid4()}", None),
        (3000, good, value),
    )
    wait_until(lambda: group.lag() == 0, what="all is acknowledged")

    found = [one for one in json.loads(group.run("list-dead", "--json").stdout) if one["channel"] == "all"]
    nameless = next(one["id"] for one in found if one["id"] == one["place"])
    assert {one["id"]: one["reason"] for one in found} == {
        nameless: "header id: missing, or not 1 to 200 printable characters of UTF-8",
        garbage: "value: JSON is malformed: invalid character (byte 0)",
        lacking: "value: Expected `str`, got `null` - at `$.email`",
    }
    assert [one["key"] for one in inbox.webhooks()] == [good]
    assert group.run("retry-dead", nameless).returncode == 0
    assert group.run("retry-dead", garbage).returncode == 1
    assert [group.run("discard-dead", key, "--reason", "a test").returncode for key in (garbage, lacking)] == [0, 0]
    assert group.dead({nameless, garbage, lacking}) == []
    assert [one["key"] for one in inbox.webhooks()] == [good, nameless]


def test_stopped_member_acknowledges_and_leaves(services: Settings, inbox: Inbox, group: Group) -> None:
    """SIGTERM in the middle: exit code 0, gone from the group at once, and the next one goes on where it ended."""
    group.start("one")
    ids = sent(services, 4000, 20)
    wait_until(lambda: group.lag() == 0, what="it is at work")

    with held_up(services) as first_waiting:
        ids += sent(services, 4020, 40)
        assert first_waiting()[1] == "one"
        group.members["one"].send_signal(signal.SIGTERM)
    code = group.end("one", signal.SIGTERM)
    alone = group.is_empty()
    told, lag = len(posted(inbox, ids)), group.lag()
    group.start("two")
    wait_until(lambda: group.lag() == 0, what="all is acknowledged")

    assert code == 0
    assert alone
    assert told == 21, "it ends the one that it has begun, and begins no other"
    assert lag == 60 - told
    assert posted(inbox, ids) == Counter(ids)
    assert inbox.counts()["webhooks_repeated"] == inbox.counts()["mails_repeated"] == 0
    assert "came again" not in group.log("two").partition("got 4 partitions")[2]


def test_group_overrun_by_retention_says_how_many_it_lost(services: Settings, inbox: Inbox, group: Group) -> None:
    """It goes on with what is left, and the log has the number."""
    group.start("one")
    sent(services, 5000, 20)
    wait_until(lambda: group.lag() == 0, what="each partition has an acknowledged offset")
    group.end("one", signal.SIGTERM)
    lost = sent(services, 5020, 10)
    empty(services)

    group.start("two")
    left = sent(services, 5030, 5)
    wait_until(lambda: group.lag() == 0, what="what is left is acknowledged")

    assert posted(inbox, [*lost, *left]) == Counter(left)
    assert "retention" not in group.log("one")
    assert sum(map(int, re.findall(r"retention has deleted (\d+) unread", group.log("two")))) == len(lost)


def test_stack_runs_the_members_and_the_inbox() -> None:
    """`up notify` starts what the project declares and what that needs; all of it is stopped with the rest."""
    with running_stack(parts=("notify",), project=ROOT) as settings:
        parts = local_stack.state(settings).parts
        ids = sent(settings, 1, 20)

        kept = settings.data / "inbox" / "webhooks"
        wait_until(lambda: len(list(kept.glob("*.json"))) == len(ids), what="the inbox has them")

        assert {name for name, one in parts.items() if not one.step} == {
            "notify-1", "notify-2", "inbox", "kafka", "control"
        }  # fmt: skip
        assert parts["inbox"].port == settings.ports["port_inbox_webhook"]
        assert {(settings.logs / f"{name}.log").exists() for name in ("notify-1", "notify-2", "inbox")} == {True}
