"""The right to own an app: a lease with an epoch that only rises (the fencing token of Kleppmann's lease pattern)."""

import dataclasses
import socket
import uuid
from datetime import datetime

from deltaworks.control.apps import Apps
from deltaworks.control.database import Shape
from deltaworks.errors import LeaseHeldError, LeaseLostError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lease:
    """The last right to own an app, by the database's clock of the moment when it was read.

    `process_started` is the operating system's own text, so that a recycled pid is not taken for the owner.
    """

    app: str
    owner: str
    epoch: int
    until: datetime
    pid: int
    process_started: str
    host: str
    acquired_at: datetime
    released_at: datetime | None
    seconds_left: float

    @property
    def live(self) -> bool:
        """Whether it was still valid when it was read."""
        return self.seconds_left > 0


_LEASE = Shape(
    Lease,
    """app, owner, epoch, until, pid, process_started, host, acquired_at, released_at,
    extract(epoch from until - now())::float8 as seconds_left""",
)


class Leases(Apps):
    """Who owns each app."""

    def acquire(
        self, app: str, *, owner: str, seconds: float, pid: int, process_started: str, host: str | None = None
    ) -> Lease:
        """Take an app that is free, in one atomic statement, with an epoch one higher than any before.

        Raises LeaseHeldError while anybody's lease is valid, be it the same owner's.
        """
        take = """
            insert into leases as held (app, owner, epoch, until, pid, process_started, host, call)
            select name, %(owner)s, 1, now() + make_interval(secs => %(seconds)s), %(pid)s, %(process_started)s,
                %(host)s, %(call)s from apps where name = %(app)s
            on conflict (app) do update set owner = excluded.owner, until = excluded.until, pid = excluded.pid,
                process_started = excluded.process_started, host = excluded.host, call = excluded.call,
                epoch = held.epoch + case when held.call = excluded.call then 0 else 1 end,
                acquired_at = now(), released_at = null
            where held.until <= now() or held.call = excluded.call
            returning {columns}"""
        values = {"app": app, "owner": owner, "seconds": seconds, "pid": pid, "process_started": process_started}
        # the call's own id: sent again over a new connection, it finds its own lease and not a stranger's
        values |= {"host": host or socket.gethostname(), "call": uuid.uuid4()}
        taken = self._one(take, values, _LEASE)
        if taken is not None:
            return taken
        held = self.lease(app)
        if held is None:
            raise self._unknown(app)
        holder = f"{held.owner} (pid {held.pid} on {held.host}, epoch {held.epoch})"
        finding = f"owned by {holder} for {max(held.seconds_left, 0):.0f} s more"
        raise LeaseHeldError(f"app {app}", finding, f'Wait, or stop it with "deltaworks app stop {app}"')

    def renew(self, lease: Lease, *, seconds: float) -> Lease:
        """Prolong a lease to now + seconds, also one that ran out while nobody took the app.

        Raises LeaseLostError if there is a newer epoch or the lease was released.
        """
        prolong = """
            update leases set until = now() + make_interval(secs => %(seconds)s)
            where app = %(app)s and epoch = %(epoch)s and released_at is null returning {columns}"""
        renewed = self._one(prolong, {"app": lease.app, "epoch": lease.epoch, "seconds": seconds}, _LEASE)
        if renewed is None:
            raise lost(lease, self.lease(lease.app))
        return renewed

    def check(self, lease: Lease) -> None:
        """Ask in one round trip whether the lease still holds; raises LeaseLostError if it is taken or has run out."""
        now = self.lease(lease.app)
        if now is None or now.epoch != lease.epoch or not now.live:
            raise lost(lease, now)

    def release(self, lease: Lease) -> None:
        """Give the app back at once; without effect if it is somebody else's already. The epoch stays."""
        free = """
            update leases set until = least(until, now()), released_at = coalesce(released_at, now())
            where app = %(app)s and epoch = %(epoch)s returning {columns}"""
        self._all(free, {"app": lease.app, "epoch": lease.epoch}, _LEASE)

    def lease(self, app: str) -> Lease | None:
        """Return the app's last lease, `live` or not (its process may still be there); None if it never had one."""
        return self._one("select {columns} from leases where app = %(app)s", {"app": app}, _LEASE)


def lost(lease: Lease, now: Lease | None) -> LeaseLostError:
    """Say why a lease does not hold, from what the store has now."""
    if now is None or now.epoch == lease.epoch:
        finding = "was released" if now is not None and now.released_at else "has run out"
        return LeaseLostError(f"app {lease.app}", f"epoch {lease.epoch} {finding}", "Stop committing and exit")
    finding = f"epoch {lease.epoch} is over, {now.owner} (pid {now.pid} on {now.host}) has epoch {now.epoch}"
    return LeaseLostError(f"app {lease.app}", finding, "Stop committing and exit")
