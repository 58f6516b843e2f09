"""What keeps records from readers though the broker has them: transactions that do not end. No Spark here."""

from typing import TYPE_CHECKING

from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.engine.broker import OpenTransaction

SECONDS_WARN = 60
SECONDS_MAX = 15 * 60
"""transaction.max.timeout.ms of brokers: what is open for longer, no coordinator ends any more."""
_STEP = "End or restart its sender; of an id that nobody uses any more: kafka-transactions.sh find-hanging, abort"


def look(settings: Settings) -> list[dict[str, object]]:
    """A row as the doctor's for each transaction that holds a topic of the project up, or one that there is none."""
    from deltaworks import catalog
    from deltaworks.engine.broker import Broker
    from deltaworks.errors import DeltaworksError
    from deltaworks.local import stack

    if "kafka" not in stack.state(settings).parts:
        return []
    broker = Broker(bootstrap=settings.kafka, group="deltaworks.doctor", timeout_seconds=5)
    try:
        tables = catalog.readable(settings.project).values()
        topics = list(dict.fromkeys(topic for declared in tables for topic in declared.topics))
        if not topics:
            return []
        found = [one for one in broker.open_transactions(broker.edges(topics)) if one.seconds > SECONDS_WARN]
    except DeltaworksError as error:
        return [_row("fail", f"{error.place}: {error.finding}", error.next_step)]
    finally:
        broker.close()
    if not found:
        return [_row("ok", f"none is open for more than {SECONDS_WARN} s", "")]
    return [_row("fail" if one.seconds > SECONDS_MAX else "warn", told(one), _STEP) for one in found]


def told(one: "OpenTransaction") -> str:
    """Where it is, for how long, and what waits."""
    since = f"{one.topic}/{one.partition}: one is open since offset {one.first} for {one.seconds:,.0f} s"
    return f"{since}; {one.waiting:,} offsets wait"


def _row(verdict: str, finding: str, next_step: str) -> dict[str, object]:
    return {"check": "transactions", "verdict": verdict, "finding": finding, "next step": next_step}
