"""Requests to the agent that starts drivers where the lake is, and what it tells of them."""

import dataclasses
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from deltaworks.control.apps import Apps
from deltaworks.control.database import Shape
from deltaworks.control.payload import payload

REQUEST_SECONDS_MAX = 60
"""So long a request may wait to be taken; who asked for it has given up by then."""
RequestKind = Literal["start", "drain", "owner", "kill", "log", "judge"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """Something that a supervisor wants of an app's driver; `answer` or `error` once it was done."""

    id: int
    app: str
    kind: RequestKind
    arguments: dict[str, Any]
    taken_at: datetime | None
    answer: dict[str, Any] | None
    error: dict[str, Any] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverThere:
    """What the agent told last of an app's driver.

    `running` is the living one, `lingering` one whose lease is over, each as pid and start time; `launch` the last
    start; `age_seconds` by the database's clock of the moment when it was read.
    """

    app: str
    host: str
    told_at: datetime
    running: list[Any] | None
    lingering: list[Any] | None
    launch: dict[str, Any] | None
    log_bytes: int
    age_seconds: float


_REQUEST = Shape(LaunchRequest, "id, app, kind, arguments, taken_at, answer, error")
_DRIVER = Shape(
    DriverThere,
    """app, host, told_at, running, lingering, launch, log_bytes,
    extract(epoch from now() - told_at)::float8 as age_seconds""",
)


class Launching(Apps):
    """What is asked of the agent, and what it tells."""

    def ask_agent(self, app: str, kind: RequestKind, arguments: Mapping[str, object], *, call: uuid.UUID) -> int:
        """Ask for something; under the same call it is the same request. Raises ControlError for an unknown app."""
        insert = """
            insert into launch_requests (app, kind, arguments, call)
            select name, %(kind)s, %(arguments)s, %(call)s from apps where name = %(app)s
            on conflict (call) do update set call = excluded.call returning {columns}"""
        values = {"app": app, "kind": kind, "arguments": payload(arguments), "call": call}
        asked = self._one(insert, values, _REQUEST)
        if asked is None:
            raise self._unknown(app)
        return asked.id

    def launch_request(self, request: int) -> LaunchRequest | None:
        """Return a request; None once it is forgotten."""
        return self._one("select {columns} from launch_requests where id = %(id)s", {"id": request}, _REQUEST)

    def withdraw_request(self, request: int) -> bool:
        """Take back a request that nobody has taken; False if it was taken."""
        withdraw = "delete from launch_requests where id = %(id)s and taken_at is null returning {columns}"
        return self._one(withdraw, {"id": request}, _REQUEST) is not None or self.launch_request(request) is None

    def take_request(self, *, call: uuid.UUID) -> LaunchRequest | None:
        """Take the oldest request that still waits; the same call takes the same one again."""
        take = """
            update launch_requests set taken_at = coalesce(taken_at, now()), taken_by = %(call)s where id = (
                select id from launch_requests
                where taken_by = %(call)s
                    or (taken_at is null and asked_at > now() - make_interval(secs => %(seconds)s))
                order by taken_by is null, id limit 1 for update skip locked)
            returning {columns}"""
        return self._one(take, {"call": call, "seconds": REQUEST_SECONDS_MAX}, _REQUEST)

    def answer_request(
        self, request: int, *, answer: Mapping[str, object] | None = None, error: Mapping[str, object] | None = None
    ) -> None:
        """Say what came of a request; an answer given later is added to the one before."""
        values = {
            "id": request,
            "answer": None if answer is None else payload(answer),
            "error": None if error is None else payload(error),
        }
        tell = """
            update launch_requests set error = %(error)s::jsonb, answer = case
                when %(answer)s::jsonb is null then answer else coalesce(answer, '{{}}') || %(answer)s::jsonb end
            where id = %(id)s returning {columns}"""
        self._all(tell, values, _REQUEST)

    def forget_requests(self, *, lost_owners: int | None = None) -> None:
        """Forget requests of yesterday; give processes of which nobody knows the end any more this exit code."""
        if lost_owners is not None:
            end = """
                update launch_requests set answer = answer || jsonb_build_object('code', %(code)s::int)
                where kind in ('owner', 'judge') and answer is not null and not answer ? 'code' returning {columns}"""
            self._all(end, {"code": lost_owners}, _REQUEST)
        old = "delete from launch_requests where asked_at < now() - interval '1 day' returning {columns}"
        self._all(old, {}, _REQUEST)

    def tell_driver(
        self, app: str, *, host: str, running: tuple[int, str] | None, lingering: tuple[int, str] | None,
        launch: Mapping[str, object] | None, log_bytes: int,
    ) -> None:  # fmt: skip
        """Replace what is known of an app's driver."""
        tell = """
            insert into drivers (app, host, told_at, running, lingering, launch, log_bytes)
            select name, %(host)s, now(), %(known)s -> 'running', %(known)s -> 'lingering', %(known)s -> 'launch',
                %(log_bytes)s
            from apps where name = %(app)s
            on conflict (app) do update set host = excluded.host, told_at = now(), running = excluded.running,
                lingering = excluded.lingering, launch = excluded.launch, log_bytes = excluded.log_bytes
            returning {columns}"""
        known = {"running": running, "lingering": lingering, "launch": launch}
        told = {name: value for name, value in known.items() if value is not None}
        self._all(tell, {"app": app, "host": host, "known": payload(told), "log_bytes": log_bytes}, _DRIVER)

    def driver_there(self, app: str) -> DriverThere | None:
        """Return what was told last of an app's driver; None if nobody ever told."""
        return self._one("select {columns} from drivers where app = %(app)s", {"app": app}, _DRIVER)
