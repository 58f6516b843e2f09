"""Data Docs for a browser: read-only, on loopback. No Great Expectations here.

Its pages have their styles from hosts of others, and its index lists nothing without scripts of theirs. So that the
browser asks nobody, pages have a few styles of ours, and the index is made here, of the results.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from html import escape
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
LISTED_MAX = 1_000
"""Of results the newest so many."""
_OWN = "default-src 'self' data: 'unsafe-inline'; form-action 'none'; frame-ancestors 'none'"
_STYLES = (
    "; style-src 'self' 'unsafe-inline' https:; script-src 'self' 'unsafe-inline' https:; font-src 'self' data: https:"
)
_HOSTS = frozenset({HOST, "localhost"})
_INDEX = ("/", "/index.html")
_CSS = Path(__file__).with_name("pages.css")


def server(folder: Path, *, results: Path, port: int, styles: bool = False) -> ThreadingHTTPServer:
    """What serves the pages of a folder until it is shut down, and an index of the results; port 0: any that is free.

    With `styles` the pages are as Great Expectations made them, its own index too, and the browser asks others.
    """
    policy = f"{_OWN}{_STYLES if styles else ''}"
    handler = partial(_Pages, folder=folder, results=results, policy=policy, styles=styles)
    return ThreadingHTTPServer((HOST, port), handler)


@dataclass(frozen=True, kw_only=True)
class _Result:
    suite: str
    judged_at: str
    evaluated: int
    met: int
    page: str

    @property
    def verdict(self) -> str:
        return "passed" if self.met == self.evaluated else "failed"


def index(results: Path) -> str:
    """A page that lists results, newest first."""
    found = sorted(_results(results), key=lambda one: one.judged_at, reverse=True)
    rows = [
        f'<tr><td><a href="{escape(one.page, quote=True)}">{escape(one.suite)}</a></td><td>{escape(one.judged_at)}</td>'
        f'<td>{one.met} of {one.evaluated}</td><td class="{one.verdict}">{one.verdict}</td></tr>'
        for one in found[:LISTED_MAX]
    ]
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Data Docs</title></head><body>',
            "<h1>Data Docs: what came of each validation</h1>",
            "<table><tr><th>suite</th><th>judged at (UTC)</th><th>met</th><th></th></tr>",
            *rows,
            "</table></body></html>",
        ]
    )


def _results(folder: Path) -> Iterator[_Result]:
    """What is there; a file that goes meanwhile, or is just being written, is left out."""
    for file in folder.rglob("*.json"):
        try:
            told = json.loads(file.read_bytes())
            counts = told["statistics"]
            yield _Result(
                suite=told["suite_name"],
                judged_at=told["meta"]["run_id"]["run_time"][:19].replace("T", " "),
                evaluated=counts["evaluated_expectations"],
                met=counts["successful_expectations"],
                page=f"validations/{file.relative_to(folder).with_suffix('.html').as_posix()}",
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue


class _Pages(SimpleHTTPRequestHandler):
    """Gives files of one folder, lists none, and tells the browser whom it may ask."""

    server_version = "deltaworks"
    sys_version = ""

    def __init__(self, *args: Any, folder: Path, results: Path, policy: str, styles: bool) -> None:
        self._results, self._policy, self._styles = results, policy, styles
        super().__init__(*args, directory=str(folder))

    def send_head(self) -> Any:
        """Begin an answer; a page of another site, which has a name for this address, gets none."""
        if self.headers.get("Host", "").rpartition(":")[0] not in _HOSTS:
            self.send_error(HTTPStatus.FORBIDDEN)
            return None
        if self._styles:
            return super().send_head()
        path = self.path.partition("?")[0]
        if path in _INDEX:
            return self._page(index(self._results))
        file = Path(self.translate_path(path))
        if file.suffix == ".html" and file.is_file():
            return self._page(file.read_text(encoding="utf-8"))
        return super().send_head()

    def _page(self, text: str) -> BytesIO:
        """Answer with a page, with our styles in it."""
        told = text.replace("</head>", f"<style>{_CSS.read_text(encoding='utf-8')}</style></head>", 1).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        return BytesIO(told)

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
