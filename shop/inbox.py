"""The other side of the notifications, for demos and tests: a webhook and a mail server that know what comes again.

    python -m shop.inbox --webhook-port 18081 --smtp-port 18025 --folder .deltaworks/inbox

What comes for the first time is kept as a file, in the order of arrival; a repeated Idempotency-Key or Message-ID is
answered as well as the first, and only counted. `GET /` tells the counts.
"""

import hashlib
import json
import signal
import sys
import threading
from email import message_from_bytes
from email.policy import default as policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from deltaworks.cli.show import err
from deltaworks.errors import DeltaworksError, StackError
from deltaworks.local.private import private_folder, write_private
from deltaworks.settings import LOOPBACK

_BYTES_MAX = 2**20
_SILENCE_SECONDS_MAX = 10


class Kept:
    """Texts by key, a file each: 000017-<hash of the key>.<ending>. What was kept before a restart is known."""

    def __init__(self, folder: Path, ending: str) -> None:
        """Make the folder, or look through it."""
        private_folder(folder)
        self._folder, self._ending, self._turn = folder, ending, threading.Lock()
        self._known = {path.stem.partition("-")[2] for path in folder.glob(f"*.{ending}")}
        self.repeated = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._known)

    def take(self, key: str, text: str) -> bool:
        """Keep the text of a new key; False, and the key is counted, if it was there."""
        name = hashlib.sha256(key.encode()).hexdigest()[:40]
        with self._turn:
            if name in self._known:
                self.repeated += 1
                return False
            write_private(self._folder / f"{len(self._known) + 1:06d}-{name}.{self._ending}", text)
            self._known.add(name)
        return True


class Inbox:
    """Both servers; unless told otherwise each listens on this machine alone."""

    def __init__(
        self, *, webhook_port: int, smtp_port: int, folder: Path, refused: frozenset[str], listen: str = LOOPBACK
    ) -> None:
        """Begin to listen; raises StackError if a port is taken. `refused`: domains whose recipients get a 550."""
        private_folder(folder)
        self.webhooks, self.mails = Kept(folder / "webhooks", "json"), Kept(folder / "mails", "eml")
        self._mail_server = Controller(
            _Mails(self.mails, refused),
            hostname=listen,
            port=smtp_port,
            enable_SMTPUTF8=True,
            data_size_limit=_BYTES_MAX,
        )
        try:
            self._web_server = _WebServer(self, listen, webhook_port)
            self._mail_server.start()
        except OSError as error:
            raise StackError("inbox", error.strerror or str(error), "Give other ports") from None

    def serve(self, stopping: threading.Event) -> None:
        """Serve until told to stop."""
        serving = threading.Thread(target=self._web_server.serve_forever)
        serving.start()
        stopping.wait()
        self._web_server.shutdown()
        self._web_server.server_close()
        self._mail_server.stop()

    def counts(self) -> dict[str, int]:
        """How many were kept, and how many came again since the start."""
        return {
            "webhooks": len(self.webhooks), "webhooks_repeated": self.webhooks.repeated,
            "mails": len(self.mails), "mails_repeated": self.mails.repeated,
        }  # fmt: skip


class _WebServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, inbox: Inbox, listen: str, port: int) -> None:
        self.inbox = inbox
        super().__init__((listen, port), _Webhooks)


class _Webhooks(BaseHTTPRequestHandler):
    server: _WebServer
    timeout = _SILENCE_SECONDS_MAX

    def do_GET(self) -> None:
        self._answer(200, self.server.inbox.counts())

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _BYTES_MAX:
            self._answer(413, {"error": f"Content-Length: a number up to {_BYTES_MAX} is wanted"})
            return
        raw, key = self.rfile.read(int(length)), self.headers.get("Idempotency-Key", "")
        try:
            # http.client reads headers as Latin-1
            kept = {"key": key.encode("latin-1").decode(), "path": self.path, "body": json.loads(raw)}
        except ValueError:
            kept = {"key": ""}
        if not kept["key"]:
            self._answer(400, {"error": "an Idempotency-Key and a JSON body are wanted"})
            return
        first = self.server.inbox.webhooks.take(kept["key"], json.dumps(kept, indent=1) + "\n")
        self._answer(200, {"repeated": not first})

    def log_message(self, *_: object) -> None:
        """Say nothing: a busy day would fill the log."""

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Mails:
    def __init__(self, mails: Kept, refused: frozenset[str]) -> None:
        self._mails, self._refused = mails, refused

    async def handle_RCPT(  # noqa: N802  # aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        del server, session, options
        if address.rpartition("@")[2].lower() in self._refused:
            return "550 5.1.1 there is nobody of that name"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802  # as above
        del server, session
        content = envelope.content
        assert isinstance(content, bytes)
        key = message_from_bytes(content, policy=policy).get("Message-ID")
        if key is None:
            return "554 5.6.0 a Message-ID is wanted"
        first = self._mails.take(str(key), content.decode(errors="replace"))
        return "250 2.0.0 kept" if first else "250 2.0.0 known"


def main(
    webhook_port: Annotated[int, typer.Option(min=1, max=65535, help="Port for HTTP POST.")],
    smtp_port: Annotated[int, typer.Option(min=1, max=65535, help="Port for mail.")],
    folder: Annotated[Path, typer.Option(help="Keeps what came, in webhooks/ and mails/.")],
    listen: Annotated[str, typer.Option(help="Address to listen on.")] = LOOPBACK,
    refuse: Annotated[list[str] | None, typer.Option(help="Domains that nobody lives in.")] = None,
) -> None:
    """Take webhooks and mail on this machine, each once. Stops at Ctrl-C and SIGTERM."""
    refused = frozenset(["refused.invalid"] if refuse is None else refuse)
    inbox = Inbox(webhook_port=webhook_port, smtp_port=smtp_port, folder=folder, refused=refused, listen=listen)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    inbox.serve(stopping)


if __name__ == "__main__":
    try:
        typer.run(main)
    except DeltaworksError as error:
        err.print(str(error), style="red", soft_wrap=True, markup=False)
        sys.exit(3)
