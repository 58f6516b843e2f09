"""The tables that are drawn for the workload through Debezium: Postgres makes them, and the catalog finds nothing."""

import shutil
from pathlib import Path

import psycopg
from psycopg import sql

from deltaworks import catalog
from tests.chance import seeded
from tests.chaos.changes import PROJECT
from tests.scratch_postgres import ScratchPostgres
from tests.shapes.drawn import drawn
from tests.shapes.kinds import KINDS
from tests.shapes.shape import ALL_KEYED, shapes


def test_forty_shapes_are_tables_and_declarations(tmp_path: Path, postgres: ScratchPostgres) -> None:
    """Of each kind of column and each way of keys some; the schema may be carried out twice, as each `up` does."""
    chance = seeded()
    made = shapes(chance, 40)
    project = Path(shutil.copytree(PROJECT, tmp_path / "project"))
    drawn(made)(project)
    schema = (project / "schema.sql").read_text()

    with psycopg.connect(postgres.database("shapes"), autocommit=True) as connection:
        if not connection.execute("select from pg_roles where rolname = 'debezium'").fetchone():
            connection.execute("create role debezium")
        for _ in range(2):
            connection.execute(schema)
        for shape in made:
            values = shape.values(chance)
            row = dict(zip(shape.keys, shape.key(1), strict=True)) | values
            connection.execute(
                sql.SQL("insert into {} ({}) values ({})").format(
                    shape.ident,
                    sql.SQL(", ").join(map(sql.Identifier, row)),
                    sql.SQL(", ").join([sql.Placeholder()] * len(row)),
                ),
                tuple(row.values()),
            )
            assert len(connection.execute(shape.shown()).fetchall()) == 1

    assert len(catalog.load(project).tables) == 1 + 2 * len(made)
    assert {one.kind for shape in made for one in shape.values_of} == {*KINDS}
    assert {shape.keyed for shape in made} == {*ALL_KEYED}
