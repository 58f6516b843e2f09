"""An emulator of AWS on loopback: moto as a program of its own, and a stand-in for what moto does not have."""

import dataclasses
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_START_SECONDS_MAX = 90
_STOP_SECONDS_MAX = 10
_JSON, _FORM = "application/x-amz-json-1.1", "application/x-www-form-urlencoded"
SERVICES = ("ec2", "iam", "s3", "secretsmanager", "ssm", "sns", "kms", "cloudwatch", "sts")
"""What moto answers. All else of the provider would go to the real AWS, and its credentials are none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Emulator:
    """Where the emulator listens."""

    url: str
    snapshots_url: str
    policies: Mapping[str, Any]
    """Life-cycle policies that are there now, by id."""

    def provider(self) -> str:
        """An override file that leads the environment's provider here."""
        endpoints = [f'    {service} = "{self.url}"' for service in SERVICES] + [f'    dlm = "{self.snapshots_url}"']
        return "\n".join((
            'provider "aws" {', '  access_key = "none"', '  secret_key = "none"', "  s3_use_path_style = true",
            "  skip_credentials_validation = true", "  skip_metadata_api_check = true",
            "  skip_region_validation = true", "  endpoints {", *endpoints, "  }", "}", "",
        ))  # fmt: skip

    def backend(self, bucket: str) -> str:
        """A backend.hcl that keeps the state here."""
        return "\n".join((
            f'bucket = "{bucket}"', 'key = "one-host.tfstate"', 'region = "eu-central-1"', "encrypt = true",
            "use_lockfile = true", "use_path_style = true", 'access_key = "none"', 'secret_key = "none"',
            "skip_credentials_validation = true", "skip_requesting_account_id = true",
            "skip_metadata_api_check = true", f'endpoints = {{ s3 = "{self.url}" }}', "",
        ))  # fmt: skip

    def ask(
        self, service: str, path: str = "/", *, method: str = "GET", target: str = "", body: object = None
    ) -> bytes:
        """One request as a client of that service would send it, unsigned."""
        scope = f"AWS4-HMAC-SHA256 Credential=none/20260101/eu-central-1/{service}/aws4_request"
        headers = {"Authorization": scope, "Content-Type": _FORM if service == "ec2" else _JSON}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if target:
            headers["X-Amz-Target"] = target
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=120)
        try:
            connection.request(method, path, body=data, headers=headers)
            answer = connection.getresponse()
            told = answer.read()
        finally:
            connection.close()
        assert answer.status == HTTPStatus.OK, told
        return told


@contextmanager
def running(log: Path) -> Iterator[Emulator]:
    """The emulator, for a while; it holds everything in memory."""
    port = _free_port()
    command = [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as sink, _snapshots() as (snapshots_url, policies):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)
        try:
            _wait(process, port, log)
            yield Emulator(url=f"http://127.0.0.1:{port}", snapshots_url=snapshots_url, policies=policies)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < until:
        assert process.poll() is None, f"the emulator ended: {log.read_text()[-500:]}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"the emulator did not answer in {_START_SECONDS_MAX} s: {log.read_text()[-500:]}")


@contextmanager
def _snapshots() -> Iterator[tuple[str, dict[str, Any]]]:
    """Data Lifecycle Manager, as far as the provider asks it: policies are kept and given back as they came."""
    policies: dict[str, Any] = {}

    class Handler(_Policies):
        kept = policies

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", policies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Policies(BaseHTTPRequestHandler):
    """The REST interface of Data Lifecycle Manager: /policies, /policies/ID, /tags/ARN."""

    kept: dict[str, Any]

    def do_POST(self) -> None:
        given = self._body()
        if self.path.startswith("/tags/"):
            self._of_tags().update(given["Tags"])
            self._answer(204)
            return
        name = f"policy-{len(self.kept):017x}"
        arn = f"arn:aws:dlm:eu-central-1:123456789012:policy/{name}"
        self.kept[name] = {"Tags": {}, **given, "PolicyId": name, "PolicyArn": arn}
        self._answer(200, {"PolicyId": name})

    def do_GET(self) -> None:
        if self.path.startswith("/tags/"):
            self._answer(200, {"Tags": self._of_tags()})
        elif (name := self._name()) in self.kept:
            self._answer(200, {"Policy": self.kept[name]})
        else:
            self._answer(404, {"Message": "no such policy", "ResourceType": "policy"})

    def do_PATCH(self) -> None:
        self.kept[self._name()].update(self._body())
        self._answer(200, {})

    def do_DELETE(self) -> None:
        there = self.kept.pop(self._name(), None)
        self._answer(200, {}) if there else self._answer(404, {"Message": "no such policy"})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that http.server gives it
        """Say nothing."""

    def _name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    def _of_tags(self) -> dict[str, str]:
        found = re.search(r"policy/([\w-]+)", unquote(self.path))
        assert found, self.path
        tags: dict[str, str] = self.kept[found[1]]["Tags"]
        return tags

    def _body(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        return told

    def _answer(self, code: int, body: object = None) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(code)
        if code == 404:
            self.send_header("X-Amzn-ErrorType", "ResourceNotFoundException")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
