"""A driver without Spark: takes the lease, beats, obeys commands, drains; its manners are told by data/manners.

Called as `stand_in_driver.py IGNORED --app NAME --project DIR`; with `--command N` it obeys up to that one, and ends.
"""

import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from deltaworks import processes
from deltaworks.control import Lease, Store
from deltaworks.errors import LeaseHeldError, LeaseLostError
from deltaworks.settings import Settings

LEASE_SECONDS = 5.0


def main(app: str, project: Path) -> int:
    """Behave as told: `works`, `crashes` at once, `fails` once it owns the app, `hangs` silently, `listens` to all."""
    settings = Settings.load(project)
    manners = settings.data / "manners"
    manner = manners.read_text().strip() if manners.exists() else "works"
    # as Spark's Python workers: of this session, not of this process group
    worker = subprocess.Popen(["sleep", "1000"], process_group=0)
    sys.stdout.write(f"stand-in of {app}: {manner}\n")
    if manner == "crashes":
        sys.stdout.write("no such table: a reason in the log\n")
        return 1
    if manner == "listens":
        door = socket.create_server(("127.0.0.2", 0))  # not the one address that is allowed, and still of this machine
        (settings.data / "port").write_text(str(door.getsockname()[1]))
    with Store(settings.control_dsn()) as store:
        started = processes.started(os.getpid()) or ""
        try:
            lease = store.acquire(
                app, owner="stand-in", seconds=LEASE_SECONDS, pid=os.getpid(), process_started=started,
                host=socket.gethostname(),
            )  # fmt: skip
        except LeaseHeldError as error:
            sys.stdout.write(f"{error}\n")
            return 75
        if manner == "fails":
            store.beat(lease, state="failed", progress={"error": "poison in silver.orders"})
            return 1
        if manner == "hangs":
            time.sleep(1000)
        code = _obey(store, lease) if "--command" in sys.argv else _work(store, lease)
    worker.kill()  # who ends in good order leaves nothing
    return code


def _obey(store: Store, lease: Lease) -> int:
    last = int(sys.argv[sys.argv.index("--command") + 1])
    while not store.command(last).finished:
        command = store.take(lease.app, epoch=lease.epoch)
        assert command is not None
        store.finish(command.id, {"files_before": 9, "files_after": 1, "rows": 100})
    store.release(lease)
    return 0


def _work(store: Store, lease: Lease) -> int:
    batches = 0
    while store.app(lease.app).desired == "running":
        batches += 1
        try:
            store.renew(lease, seconds=LEASE_SECONDS)
            store.beat(lease, state="running", progress=_progress(batches))
        except LeaseLostError as error:
            sys.stdout.write(f"{error}\n")
            return 75
        if (command := store.take(lease.app, epoch=lease.epoch)) is not None:
            store.report(command.id, {"files_done": 3})
            time.sleep(0.3)
            store.finish(command.id, {"files_before": 9, "files_after": 1, "rows": 100})
        time.sleep(0.2)
    store.beat(lease, state="stopped", progress=_progress(batches))
    store.release(lease)
    return 0


def _progress(batches: int) -> dict[str, object]:
    now = datetime.now(UTC).isoformat()
    times = {"last_batch_at": now, "last_commit_at": now}
    return {"batches": batches, "rows_per_second": 10, "lag": {"t": {"0": 0}}, **times}


if __name__ == "__main__":
    sys.exit(main(sys.argv[sys.argv.index("--app") + 1], Path(sys.argv[sys.argv.index("--project") + 1])))
