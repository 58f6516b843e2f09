"""A project for drawn shapes: the source's schema, the connector, and for each shape a table of now and a history."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from tests.chaos.changes import PROJECT
from tests.running_stack import connector_for
from tests.shapes.shape import Shape

SIGNALS = "public.signals"


def drawn(shapes: Sequence[Shape]) -> Callable[[Path], None]:
    """Give what writes them into a copy of the project `tests/changes`."""

    def write(project: Path) -> None:
        shutil.rmtree(project / "tables/silver")
        shutil.rmtree(project / "expectations/silver")
        for shape in shapes:
            for name, kept in tables(shape).items():
                (project / "tables/silver" / name).mkdir(parents=True)
                (project / "tables/silver" / name / "table.py").write_text(shape.declaration(kept))
                (project / "expectations/silver").mkdir(exist_ok=True)
                (project / f"expectations/silver/{name}.yml").write_text("waived: a table of a test\n")
        (project / "schema.sql").write_text(_schema(shapes))
        (project / "connector.json").write_text(_connector(shapes))

    return write


def tables(shape: Shape) -> dict[str, Literal["latest", "history"]]:
    """The lake's tables over a shape, and as what they are kept."""
    return {shape.name: "latest", f"{shape.name}_then": "history"}


def _schema(shapes: Sequence[Shape]) -> str:
    """Like that of `tests/changes`, which makes the heartbeat's table and the publication; for other tables."""
    given = (PROJECT / "schema.sql").read_text()
    beat = given[given.index("create table if not exists public.heartbeat") : given.index("alter publication")]
    names = ", ".join([*(f"public.{shape.name}" for shape in shapes), SIGNALS])
    made = ["create type public.mood as enum ('calm', 'it''s', 'wild')"]
    made += [statement for shape in shapes for statement in shape.ddl()]
    made += [f"create table {SIGNALS} (id text primary key, type text not null, data text)"]
    once = ";\n".join(one.replace("$", "") for one in made)
    return f"""do $once$ begin if to_regclass('{SIGNALS}') is null then
{once};
end if; end $once$;
{beat}
alter publication shop_pub set table {names}, public.heartbeat;
alter publication shop_pub set (publish_via_partition_root = true);
grant usage on schema public to debezium;
grant select on {names}, public.heartbeat to debezium;
grant insert on {SIGNALS} to debezium;
grant update on public.heartbeat to debezium;
"""


def _connector(shapes: Sequence[Shape]) -> str:
    declared = json.loads(connector_for(*(shape.name for shape in shapes)))
    config = declared["config"]
    config["signal.data.collection"] = SIGNALS
    config["incremental.snapshot.chunk.size"] = "16"
    config["message.key.columns"] = ";".join(
        f"public.{shape.name}:{','.join(shape.keys)}" for shape in shapes if shape.keyed == "the connector"
    )
    if not config["message.key.columns"]:
        del config["message.key.columns"]
    return json.dumps(declared)
