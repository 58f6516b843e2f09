"""A Postgres server of its own for tests: real, started in about a second, gone at the end.

    with scratch_postgres() as server:
        dsn = server.database("mine")

`unit/conftest.py` starts one per test session and makes a database per test.
"""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql

from deltaworks.local.postgres import binaries
from tests.ports import free_ports

START_SECONDS_MAX = 30  # initdb and start take about one second; the rest is for a busy machine
STOP_SECONDS_MAX = 10
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # the data lives as long as the test
    "shared_buffers": "16MB",
    "max_connections": "60",
    "timezone": "Asia/Kolkata",  # nobody may rely on the server's own zone
}


class ScratchPostgres:
    """One server: made in a folder, started, stopped and started again on the same port."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """Create the cluster; `settings` are added to those of postgresql.conf."""
        self.folder, self.port, self.password = folder, free_ports(1)[0], secrets.token_urlsafe(16)
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {**_SETTINGS, **(settings or {}), "port": str(self.port)}
        self._initdb()

    @property
    def dsn(self) -> str:
        """Address of the database `postgres`, as the superuser."""
        return self.dsn_of("postgres")

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def dsn_of(self, database: str) -> str:
        """Address of a database, as the superuser."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{database}"

    def database(self, name: str) -> str:
        """Create an empty database and return its address."""
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=5) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return self.dsn_of(name)

    def role(self, name: str, words: LiteralString = "") -> None:
        """Create a role unless it is there. It stays: other tests' databases grant it things."""
        with psycopg.connect(self.dsn, autocommit=True) as connection, suppress(psycopg.errors.DuplicateObject):
            connection.execute(sql.SQL("create role {} ").format(sql.Identifier(name)) + sql.SQL(words))

    def start(self) -> None:
        """Start the server and wait until it answers. Call it from the main thread: the server dies with its thread."""
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [*_as_server_user(), str(binaries() / "postgres"), "-D", str(self.folder / "data")],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.dsn, connect_timeout=2).close()
                return
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"Postgres did not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends its sessions and writes a checkpoint, SIGQUIT is a crash."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children end by themselves when they see it gone
            self._process.wait()
        self._process = None

    def _initdb(self) -> None:
        password = self.folder / "password"
        password.write_text(self.password)
        _give(self.folder)
        _give(password)
        command = [
            *_as_server_user(), str(binaries() / "initdb"), "-D", str(self.folder / "data"), "-U", "postgres",
            "--auth=scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--locale=C.UTF-8",
            "--no-instructions", "--no-sync",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"initdb: {done.stderr[-2000:]}")
        with (self.folder / "data" / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())


@contextmanager
def scratch_postgres(settings: Mapping[str, str] | None = None) -> Iterator[ScratchPostgres]:
    """Give a running server in a folder under the system's temporary one; both are gone afterwards."""
    # not pytest's tmp_path: user nobody, whom root's servers run as, may not enter it
    folder = Path(tempfile.mkdtemp(prefix="scratch-postgres-"))
    try:
        server = ScratchPostgres(folder, settings)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_server_user() -> list[str]:
    """Words before a command: Postgres refuses root; and it shall die with us however we end (Linux)."""
    if shutil.which("setpriv") is None:
        return []
    nobody = ["--reuid=nobody", f"--regid={pwd.getpwnam('nobody').pw_gid}", "--clear-groups"]
    return ["setpriv", "--pdeathsig", "QUIT", *(nobody if os.geteuid() == 0 else []), "--"]


def _give(path: Path) -> None:
    if os.geteuid() == 0:
        entry = pwd.getpwnam("nobody")
        os.chown(path, entry.pw_uid, entry.pw_gid)
