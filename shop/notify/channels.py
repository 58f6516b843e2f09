"""The ways to tell somebody. Each says who it is to them, so that they know a message that comes again.

A failure is temporary (it may go well later: TemporaryError) or for good (RefusedError). Neither's text holds a
personal value: what the other side answers is told by its codes alone.
"""

import hashlib
import re
import smtplib
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Protocol

import msgspec
import urllib3

from shop.notify.confirmation import Confirmation

_ANSWER_SECONDS = 5.0  # for each answer of a server; a member that stops has 15 s
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
        """Connecting happens at the first message."""
        self._url = url
        self._pool = urllib3.PoolManager(timeout=urllib3.Timeout(_ANSWER_SECONDS), retries=False)

    def tell(self, key: str, confirmation: Confirmation) -> None:
        """2xx: taken. 4xx but 408 and 429: refused. Everything else, redirects too, may be better later."""
        # http.client writes headers as Latin-1: so the bytes of any UTF-8 come through
        headers = {"Content-Type": "application/json", "Idempotency-Key": key.encode().decode("latin-1")}
        body = msgspec.json.encode(confirmation)
        try:
            answer = self._pool.request("POST", self._url, body=body, headers=headers, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            raise TemporaryError(f"no answer ({type(error).__name__})") from None
        if 200 <= answer.status < 300:
            return
        told = f"answered {answer.status}"
        raise RefusedError(told) if 400 <= answer.status < 500 and answer.status not in _AGAIN else TemporaryError(told)


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
            # its own name would be looked up in the DNS
            with smtplib.SMTP(self._host, self._port, local_hostname="localhost", timeout=_ANSWER_SECONDS) as server:
                server.send_message(_mail(key, confirmation), to_addrs=[confirmation.email])
        except smtplib.SMTPNotSupportedError:
            raise RefusedError("the server does not take addresses beyond ASCII") from None
        except smtplib.SMTPRecipientsRefused as error:
            (code, text) = next(iter(error.recipients.values()))
            raise _judged("recipient", code, text) from None
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
            raise _judged("mail", error.smtp_code, error.smtp_error) from None
        except (smtplib.SMTPException, OSError) as error:  # a 5yz to the greeting is about the server, not the mail
            raise TemporaryError(f"no answer ({type(error).__name__})") from None


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
