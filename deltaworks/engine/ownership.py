"""The right to commit: a lease on the app, renewed while this process lives, checked before every commit."""

import logging
import os
import socket
import threading
import time

from deltaworks import processes
from deltaworks.control.leases import Lease
from deltaworks.control.store import Store
from deltaworks.errors import ControlError, LeaseHeldError, LeaseLostError

WAIT_SECONDS = 0.25
log = logging.getLogger("deltaworks.ownership")


class Ownership:
    """One app's lease in this process. Used by the batches' thread and by the heart's."""

    def __init__(self, store: Store, *, app: str, seconds: float) -> None:
        """Own nothing yet."""
        self.store, self.app, self.seconds = store, app, seconds
        self._turn = threading.Lock()
        self._lease: Lease | None = None
        self._ends = 0.0  # of this process's own steady clock, counted from before the question was sent

    @property
    def lease(self) -> Lease:
        """The lease that was taken last."""
        assert self._lease is not None, "take() comes first"
        return self._lease

    @property
    def epoch(self) -> int:
        """The epoch that this process owns the app with."""
        return self.lease.epoch

    def take(self) -> None:
        """Take the lease; raises LeaseHeldError while another owner lives.

        An owner of this machine that is seen dead cannot commit any more: its lease is given back for it.
        """
        patience = time.monotonic() + self.seconds + 1
        while True:
            try:
                self._acquire()
            except LeaseHeldError:
                held = self.store.lease(self.app)
                if held is None or held.host != socket.gethostname():
                    raise
                if processes.lives(held.pid, held.process_started) or time.monotonic() > patience:
                    raise
                self.store.release(held)
                time.sleep(WAIT_SECONDS)
            else:
                return

    def guard(self) -> None:
        """Called before every commit: raises LeaseLostError if a newer owner may have begun."""
        if time.monotonic() > self._ends - self.seconds / 3:  # else renewed lately: nobody can have taken it since
            self.renew(wait=True)

    def renew(self, *, wait: bool = False) -> None:
        """Renew the lease. While the control store is away the lease is used up; then, with `wait`, wait for the store.

        Raises LeaseLostError when a newer epoch owns the app.
        """
        while True:
            asked = time.monotonic()
            try:
                renewed = self.store.renew(self.lease, seconds=self.seconds)
            except LeaseLostError:
                raise
            except ControlError as error:
                if not wait or time.monotonic() < self._ends:
                    return
                log.warning("the lease has ended, waiting for the control store: %s", error)
                time.sleep(1)
            else:
                with self._turn:
                    self._lease, self._ends = renewed, max(self._ends, asked + self.seconds)
                return

    def superseded(self) -> LeaseLostError | None:
        """Why this process owns the app no longer, as far as the control store can be asked; None if it does."""
        if self._lease is None:
            return None
        try:
            self.renew()
        except LeaseLostError as error:
            return error
        return None

    def give_back(self) -> None:
        """Release the lease, for a successor to start at once; without the store it just ends."""
        if self._lease is None:
            return
        try:
            self.store.release(self.lease)
        except ControlError as error:
            log.warning("%s", error)

    def _acquire(self) -> None:
        pid, asked = os.getpid(), time.monotonic()
        lease = self.store.acquire(
            self.app,
            owner=f"driver {pid}",
            seconds=self.seconds,
            pid=pid,
            process_started=processes.started(pid) or "",
        )
        with self._turn:
            self._lease, self._ends = lease, asked + self.seconds
