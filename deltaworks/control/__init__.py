"""The control store: what should run, who owns it, how it is doing, what it was told to do.

Every time in it is the database's own (`now()`): what a client's clock says never decides who owns an app.
"""

from deltaworks.control.apps import App, Desired
from deltaworks.control.commands import Command, CommandState
from deltaworks.control.heartbeats import DriverState, Heartbeat
from deltaworks.control.launching import DriverThere, LaunchRequest
from deltaworks.control.leases import Lease
from deltaworks.control.partitions import ClosedPartition
from deltaworks.control.store import Store

__all__ = [
    "App", "ClosedPartition", "Command", "CommandState", "Desired", "DriverState", "DriverThere", "Heartbeat",
    "LaunchRequest", "Lease", "Store",
]  # fmt: skip
