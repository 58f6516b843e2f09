"""What a wrong clock has set aside is used after its mark was revised, and all of it is proved."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.checker import Picture, check
from deltaworks.engine.prove import prove
from deltaworks.engine.rebuild import stage
from deltaworks.errors import CommandError
from tests.broken_rules import command
from tests.flows import START, Log, Owner, carry_out
from tests.spells import GAP, project, record
from tests.unit.test_wrong_clocks import micros

NOTES, SPELLS = "silver.notes", "gold.spells"
TOMORROW = START + timedelta(days=1)


def test_a_stateful_table_gets_what_a_wrong_clock_has_kept_from_it(spark: SparkSession, tmp_path: Path) -> None:
    """A note of tomorrow makes an honest one late, and its own spell over; who comes after the revision is in time."""
    owner, log = Owner(spark, project(tmp_path, "side_output"), "tiny", only=(NOTES, SPELLS)), Log()
    for number, at in enumerate((TOMORROW, START + GAP)):
        log.send([record("notes", number, 1, at)])
        owner.take(log.batch())
    assert [row["begun"].day for row in owner.rows(SPELLS)] == [TOMORROW.day]

    done = carry_out(owner, command("revise_mark", NOTES, number=1, to_micros=micros(START + GAP)))
    log.send([record("notes", 2, 1, START + 3 * GAP)])
    owner.take(log.batch())
    used = carry_out(owner, command("apply_late_rows", SPELLS, number=2))

    assert (done["was"], used) == (f"{TOMORROW:%Y-%m-%dT%H:%M:%S.%fZ}", {"used": 1})
    begun = [row["begun"].replace(tzinfo=START.tzinfo) for row in owner.rows(SPELLS)]
    assert begun == [START + GAP, START + 3 * GAP, TOMORROW]
    assert owner.verdicts() == {"ok"}
    owner.flow.settle()
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert [one for one in check(picture, at_rest=False) if one.place in (NOTES, SPELLS)] == []
    for name in (NOTES, SPELLS):
        anew = owner.settings.changed(data=tmp_path / name)
        proof = prove(name, catalog=owner.catalog, lake=owner.settings.lake, spark=spark, anew=anew, keys_min=1)
        assert proof.verdict == "proved"


def test_a_rebuild_keeps_what_a_revision_has_decided(spark: SparkSession, tmp_path: Path) -> None:
    """One that was laid out before it is not published; one after it has the same lateness, and goes on from there."""
    owner, log = Owner(spark, project(tmp_path, "side_output"), "tiny"), Log()
    for number, at in enumerate((TOMORROW, START + GAP)):
        log.send([record("notes", number, 1, at)])
        owner.take(log.batch())
    laid_out(owner, "before")
    carry_out(owner, command("revise_mark", NOTES, number=1, to_micros=micros(START + GAP)))
    with pytest.raises(CommandError, match=r"command 1 has changed silver\.notes since it was staged"):
        carry_out(owner, command("publish", NOTES, number=2, folder="before"))
    log.send([record("notes", 2, 1, START + 3 * GAP)])
    owner.take(log.batch())
    table = owner.flow.inputs[NOTES].table
    before, position = late(owner), table.entry.position

    laid_out(owner, "after")
    done = carry_out(owner, command("publish", NOTES, number=3, folder="after"))
    owner.turn()

    assert done["tables"] >= 2
    assert late(owner) == before
    assert before["n1"] > 0 == before["n2"]
    assert (table.entry.position.mark, table.entry.position.closed) == (position.mark, position.closed)
    log.send([record("notes", 3, 1, START + 4 * GAP)])
    owner.take(log.batch())
    assert late(owner)["n3"] == 0
    owner.flow.settle()
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert [one for one in check(picture, at_rest=False) if one.place in (NOTES, SPELLS)] == []
    anew = owner.settings.changed(data=tmp_path / "anew")
    proof = prove(NOTES, catalog=owner.catalog, lake=owner.settings.lake, spark=spark, anew=anew, keys_min=1)
    assert proof.verdict == "proved"


def laid_out(owner: Owner, name: str) -> None:
    """The notes, and what is computed from them, computed again where an order finds them."""
    folder = owner.settings.data / "staged" / name
    folder.mkdir(parents=True)
    anew = owner.settings.changed(data=folder)
    stage(NOTES, catalog=owner.catalog, lake=owner.settings.lake, spark=owner.spark, anew=anew)


def late(owner: Owner) -> dict[str, int]:
    """How late each note is."""
    rows = owner.flow.inputs[NOTES].table.read(["note_id", "_late_by"]).to_pylist()
    return {row["note_id"]: row["_late_by"] for row in rows}
