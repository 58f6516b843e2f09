"""A new life of the source: the connector reads every table anew, and what it sends counts as newer than all before.

The life is counted where every record repeats it: at the end of `topic.prefix`, which Debezium writes into each change
as `source.name`. It names the connector's offsets too, so a raised one makes the connector take a snapshot.
"""

import json
import re
from pathlib import Path

import psycopg
from msgspec import Struct
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from deltaworks.errors import StackError
from deltaworks.local import connect
from deltaworks.settings import Settings

SECONDS_MAX = 5
LIVES_MAX = 999_999
_COUNTED = re.compile(r"(?P<name>.*?)(?P<dash>[-_])(?P<life>[0-9]{1,6})", re.DOTALL)


class Life(Struct, frozen=True, kw_only=True):
    """What names a life of the source: the connector's prefix and its replication slot."""

    prefix: str
    slot: str


def resnapshot(settings: Settings) -> tuple[Life, Life]:
    """Raise the source's life in the connector's file, let Connect begin anew, drop the slot of the life before.

    Gives the life before and the new one. Raises StackError if Connect or the source is away, or if the connector's
    routing would not know the new prefix.
    """
    _, _, path = connect.answering(settings)
    before, after = raise_life(path)
    connect.register_connector(settings)
    _drop(settings, before.slot)
    return before, after


def raise_life(path: Path) -> tuple[Life, Life]:
    """Count up in the connector's file; nothing else of it changes."""
    text = path.read_text()
    config = json.loads(text)["config"]
    before = Life(prefix=config["topic.prefix"], slot=config.get("slot.name", "debezium"))
    life = _life(before.prefix)[1] + 1
    if life > LIVES_MAX:
        raise StackError(str(path), f"{before.prefix}: no life is left to count", "Take another prefix")
    after = Life(prefix=f"{_life(before.prefix)[0]}-{life}", slot=f"{_life(before.slot)[0]}_{life}")
    _refuse_unrouted(path, config, after.prefix)
    if "slot.name" not in config:
        raise StackError(str(path), "names no slot", f'Write "slot.name": "{before.slot}"')
    text = _with(path, text, "topic.prefix", after.prefix)
    path.write_text(_with(path, text, "slot.name", after.slot))
    return before, after


def _with(path: Path, text: str, name: str, value: str) -> str:
    """The file's text with another value under this name."""
    made, count = re.subn(rf'("{re.escape(name)}"\s*:\s*)"[^"\\]*"', lambda found: found[1] + json.dumps(value), text)
    if count != 1:
        raise StackError(str(path), f"{name} is there {count} times", "Write it once, as plain text")
    return made


def _life(name: str) -> tuple[str, int]:
    found = _COUNTED.fullmatch(name)
    return (found["name"], int(found["life"])) if found else (name, 0)


def _refuse_unrouted(path: Path, config: dict[str, str], prefix: str) -> None:
    """Records that no route takes to the change topic would never be read."""
    route = config.get("transforms.route.regex")
    table = config.get("table.include.list", "").split(",")[0].strip()
    if route is not None and table and not re.fullmatch(route, f"{prefix}.{table}"):
        wish = "Let it take a prefix with a number behind it, as in shop(-[0-9]+)?"
        raise StackError(str(path), f"transforms.route.regex does not fit {prefix}.{table}", wish)


@retry(
    retry=retry_if_exception_type(psycopg.errors.ObjectInUse),
    stop=stop_after_delay(60),
    wait=wait_fixed(0.5),
    reraise=True,
)
def _drop(settings: Settings, slot: str) -> None:
    """A slot that nobody reads any more holds WAL back."""
    with psycopg.connect(settings.dsn("source_admin"), connect_timeout=SECONDS_MAX, autocommit=True) as connection:
        query = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s"
        connection.execute(query, (slot,))
