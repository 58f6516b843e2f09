"""Orders to the owner of a table, carried out between micro-batches."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from deltaworks.control.commands import Command
from deltaworks.control.store import Store
from deltaworks.engine import maintenance
from deltaworks.engine.flow import Flow
from deltaworks.errors import CommandError, DeltaworksError, LeaseLostError

log = logging.getLogger("deltaworks.commands")
Report = Callable[[Mapping[str, Any]], None]


def obey(command: Command, *, store: Store, flow: Flow) -> None:
    """Carry out one command and write its result or its error; only the loss of the lease ends the driver."""
    log.info("command %s: %s %s", command.id, command.kind, command.table_name)
    try:
        result = _carry_out(command, flow, lambda progress: store.report(command.id, progress, epoch=flow.epoch))
    except LeaseLostError:
        raise
    except DeltaworksError as error:
        store.fail(command.id, str(error), epoch=flow.epoch)
    except Exception as error:
        log.exception("command %s failed", command.id)
        store.fail(command.id, f"{type(error).__name__}: {error}", epoch=flow.epoch)
    else:
        store.finish(command.id, result, epoch=flow.epoch)


def _carry_out(command: Command, flow: Flow, report: Report) -> dict[str, Any]:
    match command.kind:
        case "compact":
            table = _table(command, flow)
            return maintenance.compact(table, command=command.id, guard=flow.guard, report=report)
        case kind:
            raise CommandError(f"command {command.id}", f"unknown kind {kind!r}", 'Known is "compact"')


def _table(command: Command, flow: Flow) -> Any:
    for table in flow.tables():
        if table.name == command.table_name:
            return table
    raise CommandError(
        f"command {command.id}", f"app {flow.app} has no table {command.table_name}", 'Run "deltaworks table list"'
    )
