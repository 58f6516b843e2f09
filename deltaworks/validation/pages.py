"""Data Docs for a browser: read-only, on loopback. No Great Expectations here."""

from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
_OWN = "default-src 'self' data: 'unsafe-inline'; form-action 'none'; frame-ancestors 'none'"
_STYLES = (
    "; style-src 'self' 'unsafe-inline' https:; script-src 'self' 'unsafe-inline' https:; font-src 'self' data: https:"
)
_HOSTS = frozenset({HOST, "localhost"})


def server(folder: Path, *, port: int, styles: bool = False) -> ThreadingHTTPServer:
    """What serves the pages of a folder until it is shut down; port 0: any that is free.

    Great Expectations' pages have their styles and scripts from hosts of others. A browser asks none of them
    unless `styles` is wanted: without, the pages are plain.
    """
    policy = f"{_OWN}{_STYLES if styles else ''}"
    return ThreadingHTTPServer((HOST, port), partial(_Pages, folder=folder, policy=policy))


class _Pages(SimpleHTTPRequestHandler):
    """Gives files of one folder, lists none, and tells the browser whom it may ask."""

    server_version = "deltaworks"
    sys_version = ""

    def __init__(self, *args: Any, folder: Path, policy: str) -> None:
        self._policy = policy
        super().__init__(*args, directory=str(folder))

    def send_head(self) -> Any:
        """Begin an answer; a page of another site, which has a name for this address, gets none."""
        if self.headers.get("Host", "").rpartition(":")[0] not in _HOSTS:
            self.send_error(HTTPStatus.FORBIDDEN)
            return None
        return super().send_head()

    def list_directory(self, path: Any) -> None:  # noqa: ARG002  # the signature is the library's
        """Refuse: the index has what there is."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        """Say with each answer what its page may do."""
        self.send_header("Content-Security-Policy", self._policy)
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name
        """Say nothing for each request."""
