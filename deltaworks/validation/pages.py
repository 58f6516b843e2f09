"""Data Docs for a browser: read-only, on loopback. No Great Expectations here.

Its pages have their styles from hosts of others, and its index lists nothing without scripts of theirs. So that the
browser asks nobody, pages have a few styles of ours, and the index is made here, of the results.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from html import escape
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

HOST = "127.0.0.1"
LISTED_MAX = 1_000
"""Of results the newest so many."""
_NOBODY = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_OWN = f"default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; {_NOBODY}"
_OF_OTHERS = f"default-src 'self' data: 'unsafe-inline' https:; {_NOBODY}"
_HOSTS = frozenset({HOST, "localhost"})
_CSS = Path(__file__).with_name("pages.css")


def server(folder: Path, *, results: Path, port: int, styles: bool = False) -> ThreadingHTTPServer:
    """What serves the pages of a folder until it is shut down, and an index of the results; port 0: any that is free.

    With `styles` the pages are as Great Expectations made them, its own index too, and the browser asks others.
    """
    handler = partial(_Pages, folder=folder, results=results, policy=_OF_OTHERS if styles else _OWN, styles=styles)
    return ThreadingHTTPServer((HOST, port), handler)


@dataclass(frozen=True, kw_only=True)
class _Result:
    suite: str
    day: str
    judged_at: datetime
    counts: str
    verdict: str
    page: str


def index(results: Path) -> str:
    """A page that lists results, newest first."""
    rows = [
        f'<tr><td><a href="{escape(one.page, quote=True)}">{escape(one.suite)}</a></td><td>{escape(one.day)}</td>'
        f"<td>{one.judged_at:%Y-%m-%d %H:%M:%S}</td><td>{one.counts}</td>"
        f'<td class="{escape(one.verdict, quote=True)}">{escape(one.verdict)}</td></tr>'
        for one in sorted(_results(results), key=lambda one: one.judged_at, reverse=True)
    ]
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Data Docs</title></head><body>',
            "<h1>Data Docs: what came of each validation</h1>",
            "<table><tr><th>suite</th><th>day</th><th>judged at (UTC)</th><th>met</th><th>what is critical</th></tr>",
            *rows,
            "</table></body></html>",
        ]
    )


def _results(folder: Path) -> Iterator[_Result]:
    """The newest; a file that goes meanwhile, is just being written, or is none of these, is left out."""
    # a result lies in a folder that is named by its time
    for file in sorted(folder.rglob("*.json"), key=lambda path: path.parent.name, reverse=True)[:LISTED_MAX]:
        try:
            told = json.loads(file.read_bytes())
            counts, run = told["statistics"], told["meta"]["run_id"]
            yield _Result(
                suite=str(told["suite_name"]),
                day=str(run["run_name"] or ""),
                judged_at=datetime.fromisoformat(run["run_time"]).astimezone(UTC),
                counts=f"{counts['successful_expectations']:d} of {counts['evaluated_expectations']:d}",
                verdict=str(told["meta"]["verdict"]),
                page=quote(f"validations/{file.relative_to(folder).with_suffix('.html').as_posix()}"),
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
        root = Path(self.directory).resolve()
        try:
            file = Path(self.translate_path(self.path)).resolve()
            if file in (root, root / "index.html"):
                return self._page(index(self._results))
            if not file.is_relative_to(root) or not file.is_file():
                raise FileNotFoundError
            if file.suffix == ".html":
                return self._page(file.read_text(encoding="utf-8", errors="replace"))
        except (OSError, ValueError):  # it has gone, or is no name of a file
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
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
