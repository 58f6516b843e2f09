"""What a notification is made of, how an answer is judged, and what the inbox knows again; on real servers."""

import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from email import message_from_bytes
from email.policy import default as policy
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psycopg
import pytest
import urllib3
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from msgspec import structs

from shop.inbox import Inbox
from shop.notify import channels
from shop.notify.channels import Mail, RefusedError, TemporaryError, Webhook
from shop.notify.confirmation import Confirmation, Letter, MalformedError, read
from shop.notify.delivery import Delivery
from shop.notify.records import Records
from tests.ports import free_ports
from tests.scratch_postgres import ScratchPostgres

ORDER = Confirmation(
    order_id=17, customer_id=3, name="Ada", email="ada@shop.example", amount=Decimal("12.50"),
    placed_at=datetime(2026, 11, 22, 10, tzinfo=UTC),
)  # fmt: skip
VALUE = {"order_id": 17, "customer_id": 3, "name": "Ada", "email": "ada@shop.example", "amount": "12.50"}
VALUE |= {"placed_at": "2026-11-22T10:00:00.000000Z"}


class Web:
    """A server that answers each POST with the next status."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.seen: list[tuple[bytes, bytes]] = []
        web = self

        class Page(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                web.seen.append((self.headers["Idempotency-Key"].encode("latin-1"), body))
                self.send_response(web.statuses.pop(0))
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "1")  # which never comes
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Page)
        self.url = f"http://127.0.0.1:{self.server.server_port}/orders"


class Answers:
    """What a mail server says to a recipient, to the data and at the end."""

    def __init__(self) -> None:
        self.recipient, self.data, self.farewell = "250 OK", "250 OK", "221 Bye"
        self.mails: list[bytes] = []

    async def handle_RCPT(  # noqa: N802  # aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Answer as set."""
        del server, session, options
        envelope.rcpt_tos.append(address)
        return self.recipient

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802  # as above
        """Keep the mail, and answer as set."""
        del server, session
        assert isinstance(envelope.content, bytes)
        self.mails.append(envelope.content)
        return self.data

    async def handle_QUIT(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802  # as above
        """Answer as set."""
        del server, session, envelope
        return self.farewell


@pytest.fixture
def web() -> Iterator[Web]:
    """Give a web server."""
    web = Web()
    thread = threading.Thread(target=web.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield web
    web.server.shutdown()
    web.server.server_close()
    thread.join()


@pytest.fixture
def post() -> Iterator[tuple[Mail, Answers]]:
    """Give a channel and the mail server behind it."""
    answers, (port,) = Answers(), free_ports(1)
    controller = Controller(answers, hostname="127.0.0.1", port=port, enable_SMTPUTF8=False)
    controller.start()
    yield Mail("127.0.0.1", port), answers
    controller.stop()


@pytest.fixture
def database(postgres: ScratchPostgres) -> str:
    """Address of an empty database whose server knows the role of readers."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        if connection.execute("select from pg_roles where rolname = 'reader'").fetchone() is None:
            connection.execute("create role reader")
    return postgres.database(f"notify_{uuid.uuid4().hex}")


@contextmanager
def trickling(begin: bytes, *, more: bytes = b"a", pause: float = 0.02) -> Iterator[int]:
    """A server whose answer never ends, some bytes now and then; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle() -> None:
            line, _ = server.accept()
            with line, suppress(OSError):  # the other side has left
                line.sendall(begin)
                while True:
                    line.sendall(more)
                    time.sleep(pause)  # slower than any reader, as a server that keeps a line busy

        thread = threading.Thread(target=trickle)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def letter(payload: bytes, key: str | None = "an-id") -> Letter:
    """A message of the topic."""
    return Letter(topic="t", partition=1, offset=2, id=key, payload=payload)


def test_unknown_fields_of_a_message_are_ignored() -> None:
    """A table that publishes more columns tells nobody more."""
    assert read(letter(json.dumps(VALUE | {"status": "paid"}).encode())) == ORDER


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"amount": "many"}, r"Invalid decimal string - at `\$.amount`"),
        ({"amount": "NaN"}, "amount is no number"),
        ({"order_id": "17"}, r"Expected `int`, got `str` - at `\$.order_id`"),
        ({"placed_at": "2026-11-22T10:00:00"}, r"Expected `datetime` with a timezone component"),
        ({"name": "\ud800"}, "JSON is malformed"),
    ],
)
def test_a_message_that_is_none_says_why_and_shows_no_value(value: dict[str, object], reason: str) -> None:
    """Field and finding."""
    with pytest.raises(MalformedError, match=reason) as refused:
        read(letter(json.dumps(VALUE | value).encode()))

    assert "Ada" not in str(refused.value)


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{}", b"\xff", b"{" * 10_000])
def test_any_bytes_are_refused_in_words(payload: bytes) -> None:
    """Whatever a producer writes."""
    with pytest.raises(MalformedError, match="value: "):
        read(letter(payload))


def test_webhook_hands_over_what_is_known_with_the_key(web: Web) -> None:
    """The key is any UTF-8, the body the message without what is unknown."""
    web.statuses = [200, 204]

    Webhook(web.url).tell("größe-1", ORDER)
    Webhook(web.url).tell("größe-1", ORDER)

    assert [key.decode() for key, _ in web.seen] == ["größe-1"] * 2
    assert json.loads(web.seen[0][1]) == VALUE | {"placed_at": "2026-11-22T10:00:00Z"}


@pytest.mark.parametrize(
    ("status", "error"),
    [
        *((status, RefusedError) for status in (400, 404, 410, 422)),
        *((status, TemporaryError) for status in (302, 408, 429, 500, 503)),
    ],
)
def test_answer_of_a_webhook_is_judged_by_its_status(web: Web, status: int, error: type[Exception]) -> None:
    """4xx is for good but for the two that say "later"; a redirect is not followed: that would be another request."""
    web.statuses = [status]

    with pytest.raises(error, match=f"answered {status}"):
        Webhook(web.url).tell("a", ORDER)

    assert len(web.seen) == 1


def test_servers_that_are_away_may_come_back() -> None:
    """A refused connection is temporary for both channels."""
    port, other = free_ports(2)

    for channel in (Webhook(f"http://127.0.0.1:{port}/"), Mail("127.0.0.1", other)):
        with pytest.raises(TemporaryError, match="no answer"):
            channel.tell("a", ORDER)


@pytest.mark.parametrize(
    ("begin", "more", "pause"),
    [
        (b"HTTP/1.1 ", b"a", 0.02),
        (b"220-", b"a", 0.02),
        (b"220 hello\r\n250-", b"a", 0.02),
        (b"HTTP/1.1 ", b"100 Continue\r\n\r\nHTTP/1.1 ", 0),  # there is always more to read
        (b"220-", b"hello\r\n220-", 0),
    ],
)
def test_an_answer_that_never_ends_is_none(
    begin: bytes, more: bytes, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a channel does has one deadline, however often a byte comes: the member has to go on polling."""
    monkeypatch.setattr(channels, "_TELL_SECONDS", 0.3)

    with (
        trickling(begin, more=more, pause=pause) as port,
        pytest.raises(TemporaryError, match=r"no answer \(TimeoutError\)"),
    ):
        channel = Webhook(f"http://127.0.0.1:{port}/") if begin.startswith(b"HTTP") else Mail("127.0.0.1", port)
        channel.tell("a", ORDER)


def test_status_is_the_answer_though_the_rest_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken is not sent again, and what was refused neither, however fast the rest comes."""
    monkeypatch.setattr(channels, "_TELL_SECONDS", 1.0)

    for _ in range(3):
        with (
            trickling(b"HTTP/1.1 410 Gone\r\nServer: ", pause=0.001) as port,
            pytest.raises(RefusedError, match="answered 410"),
        ):
            Webhook(f"http://127.0.0.1:{port}/").tell("a", ORDER)


@pytest.mark.parametrize("url", ["ftp://x.example/", "x.example", "http://", "http://x.example:70000/", "https:///x"])
def test_url_that_is_none_is_refused_at_the_start(url: str) -> None:
    """Else each message would be a dead letter."""
    with pytest.raises(ValueError, match=re.escape(url)):
        Webhook(url)


def test_mail_that_was_taken_is_told_whatever_the_server_says_then(post: tuple[Mail, Answers]) -> None:
    """Else it would be sent again."""
    channel, answers = post
    answers.farewell = "421 busy"

    channel.tell("a", ORDER)

    assert len(answers.mails) == 1


def test_mail_is_plain_and_its_id_follows_from_the_key(post: tuple[Mail, Answers]) -> None:
    """The same key gives the same Message-ID, another one another; a name of any kind stays in the text."""
    channel, answers = post
    strange = structs.replace(ORDER, name="Ödön\r\n.\r\nBcc: all")

    for key, order in (("a", ORDER), ("a", ORDER), ("b", strange)):
        channel.tell(key, order)

    mails = [message_from_bytes(raw, policy=policy) for raw in answers.mails]
    assert mails[0]["Message-ID"] == mails[1]["Message-ID"] != mails[2]["Message-ID"]
    assert mails[0]["Message-ID"].endswith("@deltaworks.invalid>")
    assert (mails[0]["Subject"], mails[0]["To"]) == ("Your order 17", "ada@shop.example")
    assert "order 17 of 2026-11-22 10:00 UTC over 12.50" in mails[0].get_content()
    assert "Dear Ödön" in mails[2].get_content()
    assert mails[2]["Bcc"] is None


@pytest.mark.parametrize(
    ("recipient", "data", "error", "reason"),
    [
        ("550 5.1.1 nobody ada@shop.example", "250 OK", RefusedError, "recipient refused with 550 5.1.1"),
        ("451 4.7.1 later, ada@shop.example", "250 OK", TemporaryError, "recipient refused with 451 4.7.1"),
        ("250 OK", "554 no", RefusedError, "mail refused with 554"),
        ("250 OK", "452 4.3.1 full", TemporaryError, "mail refused with 452 4.3.1"),
    ],
)
def test_answer_of_a_mail_server_is_judged_by_its_code(
    post: tuple[Mail, Answers], recipient: str, data: str, error: type[Exception], reason: str
) -> None:
    """5yz is for good, 4yz is not; the address that the server repeats is not told."""
    channel, answers = post
    answers.recipient, answers.data = recipient, data

    with pytest.raises(error) as failed:
        channel.tell("a", ORDER)

    assert str(failed.value) == reason


@pytest.mark.parametrize(
    "email",
    ["", "ada", "@", "a b@c.example", "a@b\r\nBcc: c@d", "a@b,c@d", "<a@b>", "a\x00@b.c", "=?utf-8?q?a=0A?=@b.c"],
)
def test_address_that_is_none_is_refused_before_the_server_is_asked(email: str) -> None:
    """It would be another mail, or none."""
    order = structs.replace(ORDER, email=email)

    with pytest.raises(RefusedError, match="not of the form"):
        Mail("127.0.0.1", free_ports(1)[0]).tell("a", order)


def test_address_beyond_ascii_is_refused_by_a_server_that_takes_none(post: tuple[Mail, Answers]) -> None:
    """It is about the address, so waiting would not help."""
    order = structs.replace(ORDER, email="ödön@x.example")

    with pytest.raises(RefusedError, match="beyond ASCII"):
        post[0].tell("a", order)


class Defect:
    """A channel with a defect."""

    name = "webhook"

    def tell(self, key: str, confirmation: Confirmation) -> None:
        """Fail as nobody thought of."""
        raise LookupError(key, confirmation.email)


class Told:
    """A channel that counts what it was told."""

    name = "webhook"

    def __init__(self) -> None:
        self.keys: list[str] = []

    def tell(self, key: str, confirmation: Confirmation) -> None:
        """Take it."""
        del confirmation
        self.keys.append(key)


def test_each_group_tells_what_another_one_has_told(database: str) -> None:
    """Groups do not know of each other: neither what is delivered nor what is dead."""
    told, good, bad = Told(), letter(json.dumps(VALUE).encode()), letter(b"", "bad")
    with Records(database, group="a", name="test") as first, Records(database, group="b", name="test") as second:
        for records in (first, second, first, second):
            Delivery(channels=[told], records=records).deliver(good)
            Delivery(channels=[told], records=records).deliver(bad)

        discarded = first.discard("bad", "a test")

        assert told.keys == ["an-id", "an-id"]
        assert discarded == 1
        assert [[one.id for one in records.dead()] for records in (first, second)] == [[], ["bad"]]


def test_a_letter_that_is_off_the_list_is_not_delivered_again(database: str) -> None:
    """Another retry, or a decision, may come between the list and the retry."""
    told = Told()
    with Records(database, group="a", name="test") as records:
        records.bury(letter(json.dumps(VALUE).encode()), "webhook", "a test")

        for _ in range(2):
            Delivery(channels=[told], records=records).retry("an-id")

    assert told.keys == ["an-id"]


def test_defect_of_a_channel_sets_the_message_aside_without_its_values(database: str) -> None:
    """Else the same message would end each member that takes it over."""
    with Records(database, group="a", name="test") as records:
        Delivery(channels=[Defect()], records=records).deliver(letter(json.dumps(VALUE).encode()))

        (dead,) = records.dead()

    assert re.fullmatch(r"unexpected LookupError in test_notify.py:\d+", dead.reason)
    assert dead.letter == letter(json.dumps(VALUE).encode())


def test_inbox_keeps_the_first_and_knows_it_after_a_restart(tmp_path: Path) -> None:
    """Files in the order of arrival, nobody else can read them; what cannot be known again is refused."""
    counts, refused = [], []
    for _ in range(2):
        web_port, smtp_port = free_ports(2)
        stopping = threading.Event()
        inbox = Inbox(webhook_port=web_port, smtp_port=smtp_port, folder=tmp_path, refused=frozenset({"no.invalid"}))
        serving = threading.Thread(target=inbox.serve, args=(stopping,))
        serving.start()
        webhook, mail = Webhook(f"http://127.0.0.1:{web_port}/"), Mail("127.0.0.1", smtp_port)
        for key in ("größe", "b", "b"):
            webhook.tell(key, ORDER)
            mail.tell(key, ORDER)
        refused.append(urllib3.request("POST", f"http://127.0.0.1:{web_port}/", body=b"{}", retries=False).status)
        counts.append(inbox.counts())
        stopping.set()
        serving.join()

    files = sorted(path for path in tmp_path.glob("*/*"))
    assert [(count["webhooks"], count["mails"]) for count in counts] == [(2, 2)] * 2
    assert [(count["webhooks_repeated"], count["mails_repeated"]) for count in counts] == [(1, 1), (3, 3)]
    assert [json.loads(path.read_text())["key"] for path in files if path.suffix == ".json"] == ["größe", "b"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert refused == [400, 400]
