"""How each driver says that it is alive and what it does."""

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from deltaworks.control.database import Shape
from deltaworks.control.leases import Lease, Leases, lost
from deltaworks.control.payload import payload

DriverState = Literal["starting", "running", "draining", "stopped", "failed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """The last word of an app's driver; `age_seconds` by the database's clock of the moment when it was read."""

    app: str
    epoch: int
    at: datetime
    state: DriverState
    progress: dict[str, Any]
    age_seconds: float


_HEARTBEAT = Shape(Heartbeat, "app, epoch, at, state, progress, extract(epoch from now() - at)::float8 as age_seconds")


class Heartbeats(Leases):
    """The last heartbeat of each app."""

    def beat(self, lease: Lease, *, state: DriverState, progress: Mapping[str, object]) -> Heartbeat:
        """Write the heartbeat of the epoch that owns the app, also after its release.

        Raises LeaseLostError if there is a newer epoch: its heartbeat is not written over.
        """
        write = """
            insert into heartbeats (app, epoch, at, state, progress)
            select app, epoch, now(), %(state)s, %(progress)s from leases where app = %(app)s and epoch = %(epoch)s
            on conflict (app) do update set epoch = excluded.epoch, at = now(), state = excluded.state,
                progress = excluded.progress
            where heartbeats.epoch <= excluded.epoch returning {columns}"""
        values = {"app": lease.app, "epoch": lease.epoch, "state": state, "progress": payload(progress)}
        written = self._one(write, values, _HEARTBEAT)
        if written is None:
            raise lost(lease, self.lease(lease.app))
        return written

    def heartbeat(self, app: str) -> Heartbeat | None:
        """Return the app's last heartbeat; None if it never had one."""
        return self._one(
            "select {columns} from heartbeats where app = %(app)s",
            {"app": app},
            _HEARTBEAT,
        )
