"""Orders to the owner of a table, carried out between micro-batches."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from deltaworks.control.commands import Command
from deltaworks.control.store import Store
from deltaworks.engine import maintenance
from deltaworks.engine.flow import Flow
from deltaworks.errors import CommandError, ControlError, DeltaworksError, LeaseLostError

log = logging.getLogger("deltaworks.commands")
RETRY_SECONDS = 1.0  # between two questions to a control store that is away: it may be for minutes
Report = Callable[[Mapping[str, Any]], None]


def obey(command: Command, *, store: Store, flow: Flow) -> None:
    """Carry out one command and write its result or its error; only the loss of the lease ends the driver."""
    log.info("command %s: %s %s", command.id, command.kind, command.table_name)
    number, epoch = command.id, flow.epoch

    def report(progress: Mapping[str, Any]) -> None:
        try:
            store.report(number, progress, epoch=epoch)
        except LeaseLostError:
            raise
        except ControlError as error:  # the work goes on, somebody just cannot watch it
            log.warning("command %s: %s", number, error)

    def fail(finding: str) -> None:
        _tell(lambda: store.fail(number, finding, epoch=epoch), flow)

    try:
        result = _carry_out(command, flow, report)
    except LeaseLostError:
        raise
    except DeltaworksError as error:
        fail(str(error))
    except Exception as error:
        log.exception("command %s failed", number)
        fail(f"{type(error).__name__}: {error}")
    else:
        _tell(lambda: store.finish(number, result, epoch=epoch), flow)


def _tell(end: Callable[[], None], flow: Flow) -> None:
    """Write how the command ended; while the control store is away, wait for it as every commit does."""
    while True:
        try:
            end()
        except LeaseLostError:
            raise
        except ControlError as error:
            log.warning("%s", error)
            flow.guard()
            time.sleep(RETRY_SECONDS)
        else:
            return


def _carry_out(command: Command, flow: Flow, report: Report) -> dict[str, Any]:
    match command.kind:
        case "compact":
            table = _table(command, flow)
            for side in flow.sides.get(table.name, {}).values():
                maintenance.compact(side, command=command.id, guard=flow.guard, report=lambda _: None)
            return maintenance.compact(table, command=command.id, guard=flow.guard, report=report)
        case "rebuild" if command.table_name == flow.book.table.name:
            return {"commits": flow.rebuild_book()}
        case "accept_bad_rows":
            return flow.accept_bad(_table(command, flow).name, command=command.id)
        case kind:
            known = 'Known are "compact", "accept_bad_rows", and "rebuild" of ops.ledger'
            raise CommandError(f"command {command.id}", f"unknown kind {kind!r}", known)


def _table(command: Command, flow: Flow) -> Any:
    for table in flow.tables():
        if table.name == command.table_name:
            return table
    raise CommandError(
        f"command {command.id}", f"app {flow.app} has no table {command.table_name}", 'Run "deltaworks table list"'
    )
