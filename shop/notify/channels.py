"""The ways to tell somebody. Each says who it is to them, so that they know a message that comes again.

A failure is temporary (it may go well later: TemporaryError) or for good (RefusedError). Neither's text holds a
personal value: what the other side answers is told by its codes alone.
"""

import hashlib
import http.client
import re
import smtplib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Protocol

import msgspec
from urllib3.util import parse_url

from shop.notify.confirmation import Confirmation

_TELL_SECONDS = 4.0  # for all that one channel does; a member that stops has 15 s, and may be at the first of two
_REST_SECONDS = 1.0  # after that, for reading what has come by then
_CONNECT_SECONDS = 2.0  # for each address of a name, and for what TLS says first; the resolver has its own bounds
_KINDS: dict[str, type[http.client.HTTPConnection]] = {
    "http": http.client.HTTPConnection,
    "https": http.client.HTTPSConnection,
}
_AGAIN = (408, 429)  # RFC 9110 15.5.9, RFC 6585 4: the request may come again as it is
# no encoded word (RFC 2047), which would be another address once it is decoded
_ADDRESS = re.compile(r"(?!.*=\?)[^\s@<>()\[\]:;,\\\"]+@[^\s@<>()\[\]:;,\\\"]+")
_ENHANCED = re.compile(rb"\s*([245]\.\d{1,3}\.\d{1,3})\b")  # RFC 3463
_DOMAIN = "deltaworks.invalid"  # RFC 2606: nobody's


class TemporaryError(Exception):
    """Not told now; the same may go well later."""


class RefusedError(Exception):
    """Will never be told like this: somebody has to mend the cause."""


class Channel(Protocol):
    """One way to tell somebody."""

    name: str

    def tell(self, key: str, confirmation: Confirmation) -> None:
        """Return when the other side has taken it over; raises TemporaryError or RefusedError.

        `key` is the same whenever the same message is told.
        """


class Webhook:
    """HTTP POST of the confirmation as JSON, with the message's id as Idempotency-Key."""

    name = "webhook"

    def __init__(self, url: str) -> None:
        """Connecting happens for each message; raises ValueError if the URL is not of http or https."""
        self._to = parse_url(url)
        if self._to.scheme not in _KINDS or not self._to.host:
            raise ValueError(url)

    def tell(self, key: str, confirmation: Confirmation) -> None:
        """2xx: taken. 4xx but 408 and 429: refused. Everything else, redirects too, may be better later."""
        try:
            status = self._status(key, msgspec.json.encode(confirmation))
        except (http.client.HTTPException, OSError) as error:
            raise TemporaryError(f"no answer ({type(error).__name__})") from None
        if 200 <= status < 300:
            return
        told = f"answered {status}"
        raise RefusedError(told) if 400 <= status < 500 and status not in _AGAIN else TemporaryError(told)

    def _status(self, key: str, body: bytes) -> int:
        """Post; what comes after the answer's headers is not waited for."""
        # http.client writes headers as Latin-1: so the bytes of any UTF-8 come through
        headers = {"Content-Type": "application/json", "Idempotency-Key": key.encode().decode("latin-1")}
        until = time.monotonic() + _TELL_SECONDS
        kind, host = _KINDS[self._to.scheme or ""], self._to.host or ""
        with closing(kind(host, self._to.port, timeout=_CONNECT_SECONDS)) as connection:
            connection.connect()
            with _cut_at(until, connection.sock):
                connection.request("POST", self._to.request_uri, body=body, headers=headers)
                with connection.getresponse() as answer:
                    return answer.status


class Mail:
    """A plain mail to the customer, whose Message-ID is made of the message's id."""

    name = "mail"

    def __init__(self, host: str, port: int) -> None:
        """Connecting happens for each mail."""
        self._host, self._port = host, port

    def tell(self, key: str, confirmation: Confirmation) -> None:
        """250 after the data: taken. 5yz to this mail: refused. Everything else may be better later."""
        if not (_ADDRESS.fullmatch(confirmation.email) and confirmation.email.isprintable()):
            raise RefusedError("the address is not of the form name@domain")
        try:
            self._send(_mail(key, confirmation), confirmation.email)
        except smtplib.SMTPNotSupportedError:
            raise RefusedError("the server does not take addresses beyond ASCII") from None
        except smtplib.SMTPRecipientsRefused as error:
            (code, text) = next(iter(error.recipients.values()))
            raise _judged("recipient", code, text) from None
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
            raise _judged("mail", error.smtp_code, error.smtp_error) from None
        except (smtplib.SMTPException, OSError) as error:  # a 5yz to the greeting is about the server, not the mail
            raise TemporaryError(f"no answer ({type(error).__name__})") from None

    def _send(self, mail: EmailMessage, address: str) -> None:
        until = time.monotonic() + _TELL_SECONDS
        with (
            closing(socket.create_connection((self._host, self._port), timeout=_CONNECT_SECONDS)) as line,
            closing(smtplib.SMTP(local_hostname="localhost")) as server,  # its name would be looked up in the DNS
            _cut_at(until, line),
        ):
            server.sock = line  # its own `connect` waits for the greeting too
            code, text = server.getreply()
            if code != 220:
                raise smtplib.SMTPConnectError(code, text)
            server.send_message(mail, to_addrs=[address])
            with suppress(OSError):  # it has the mail, whatever it says now
                server.quit()


@contextmanager
def _cut_at(until: float, line: socket.socket) -> Iterator[None]:
    """Cut a connection at a moment. A socket's timeout bounds each read: a byte now and then would go on for ever."""
    late, over = threading.Event(), threading.Event()

    def cut() -> None:
        late.set()
        with suppress(OSError):  # closed meanwhile
            line.shutdown(socket.SHUT_RD)  # what came before is still read: a reset would take the status with it
            if not over.wait(_REST_SECONDS):
                line.shutdown(socket.SHUT_RDWR)  # it always had more to say

    left = max(until - time.monotonic(), 0.0)
    line.settimeout(left + _REST_SECONDS)  # the cut comes first
    timer = threading.Timer(left, cut)
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException):
        if late.is_set():
            raise TimeoutError from None
        raise
    finally:
        over.set()
        timer.cancel()


def _judged(what: str, code: int, text: bytes | str) -> TemporaryError | RefusedError:
    enhanced = _ENHANCED.match(text.encode() if isinstance(text, str) else text)
    told = f"{what} refused with {code}" + (f" {enhanced[1].decode()}" if enhanced else "")
    return RefusedError(told) if code >= 500 else TemporaryError(told)


def _mail(key: str, confirmation: Confirmation) -> EmailMessage:
    mail = EmailMessage()
    mail["From"] = f"The shop <shop@{_DOMAIN}>"
    mail["To"] = confirmation.email
    mail["Subject"] = f"Your order {confirmation.order_id}"
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail["Message-ID"] = f"<{hashlib.sha256(key.encode()).hexdigest()[:40]}@{_DOMAIN}>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's out-of-office note answers
    mail.set_content(
        f"Dear {confirmation.name},\n\n"
        f"thank you for your order {confirmation.order_id} of {confirmation.placed_at:%Y-%m-%d %H:%M} UTC"
        f" over {confirmation.amount}.\n\nThe shop\n"
    )
    return mail
