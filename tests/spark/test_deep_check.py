"""`table check --deep`: what only Spark's analysis finds wrong with a transform."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.catalog import Finding, check, load
from deltaworks.catalog.new_table import new_table
from deltaworks.engine.deep_check import deep_findings, transforms
from deltaworks.settings import ROOT
from tests.mistakes import CITIES_TRANSFORM, DAYS_TRANSFORM, Edit, Mistake
from tests.tiny_project import TINY, Project
from tests.unit.test_table_new import WISHES


@pytest.fixture(autouse=True)
def lines_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the session of the command: PySpark remembers for the whole process what the first session wanted."""
    monkeypatch.setattr("pyspark.errors.utils._enable_debugging_cache", True)


LAST = """        F.max("written_at").alias("last"),
    )
"""
GROUPED = """    return notes.groupBy(F.to_date("written_at").alias("day")).agg(
        F.count("*").alias("notes"),
        F.sum("words").alias("words"),
        F.min("words").alias("shortest"),
        F.max("written_at").alias("last"),
    )"""
UNGROUPED = """    return notes.select(
        F.to_date("written_at").alias("day"),
        F.lit(1).cast("bigint").alias("notes"),
        F.col("words").cast("bigint"),
        F.col("words").alias("shortest"),
        F.col("written_at").alias("last"),
    )"""
MISTAKES = [
    Mistake(
        "unknown column",
        [Edit(DAYS_TRANSFORM, 'F.sum("words")', 'F.sum("word")')],
        [Finding(place=f"{DAYS_TRANSFORM}:9", finding="there is no column word", next_step="The nearest is words")],
    ),
    Mistake(
        "unknown column in an expression of several lines",
        [Edit(DAYS_TRANSFORM, 'F.min("words")', 'F.min(F.col("words") + F.col("wrods"))')],
        [Finding(place=f"{DAYS_TRANSFORM}:12", finding="there is no column wrods", next_step="The nearest is words")],
    ),
    Mistake(
        "unknown attribute of a frame",
        [Edit(DAYS_TRANSFORM, 'F.min("words")', "F.min(notes.wrods)")],
        [Finding(place=f"{DAYS_TRANSFORM}:12", finding="there is no column wrods", next_step="The nearest is words")],
    ),
    Mistake(
        "unknown function",
        [Edit(DAYS_TRANSFORM, 'F.min("words")', 'F.minn("words")')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:12",
                finding="pyspark.sql.functions has no minn",
                next_step="The nearest is min",
            )
        ],
    ),
    Mistake(
        "unknown name",
        [Edit(DAYS_TRANSFORM, 'F.min("words")', "F.min(wordz)")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:12",
                finding="NameError: name 'wordz' is not defined",
                next_step="Mend the line",
            )
        ],
    ),
    Mistake(
        "SQL that does not parse",
        [Edit(DAYS_TRANSFORM, 'F.min("words")', 'F.min(F.expr("words +"))')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:9", finding="Syntax error at or near end of input.", next_step="Mend the line"
            )
        ],
    ),
    Mistake(
        "a type that cannot be cast",
        [Edit(DAYS_TRANSFORM, 'F.min("words")', 'F.min(F.col("words").cast("date"))')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:12",
                finding='Cannot resolve "CAST(words AS DATE)" due to data type mismatch: cannot cast "INT" to "DATE".',
                next_step="Mend the line",
            )
        ],
    ),
    Mistake(
        "an error of its own",
        [Edit(DAYS_TRANSFORM, "    return notes", "    1 / 0\n    return notes")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:9", finding="ZeroDivisionError: division by zero", next_step="Mend the line"
            )
        ],
    ),
    Mistake(
        "no import",
        [Edit(DAYS_TRANSFORM, "from pyspark.sql import functions as F", "from pyspark.sql import function as F")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:4",
                finding="ImportError: cannot import name 'function' from 'pyspark.sql'",
                next_step="Mend the line",
            )
        ],
    ),
    Mistake(
        "nothing returned",
        [Edit(DAYS_TRANSFORM, "    return notes", "    notes")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="transform gives NoneType, no DataFrame",
                next_step="Return a DataFrame",
            )
        ],
    ),
    Mistake(
        "another type",
        [Edit(DAYS_TRANSFORM, 'F.sum("words").alias', 'F.sum("words").cast("int").alias')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="words: found int, declared bigint",
                next_step='Write .cast("bigint"), or mend the declaration',
            )
        ],
    ),
    Mistake(
        "another name",
        [Edit(DAYS_TRANSFORM, '.alias("shortest")', '.alias("shortst")')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="transform gives shortst, which is not declared",
                next_step="The nearest is shortest",
            ),
            Finding(
                place=f"{DAYS_TRANSFORM}:7", finding="transform does not give shortest", next_step="Give it as int"
            ),
        ],
    ),
    Mistake(
        "a column more",
        [
            Edit(
                DAYS_TRANSFORM,
                LAST,
                '        F.max("written_at").alias("last"),\n        F.count("*").alias("more"),\n    )\n',
            )
        ],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="transform gives more, which is not declared",
                next_step="Take it out, or declare it",
            )
        ],
    ),
    Mistake(
        "a column twice",
        [
            Edit(
                CITIES_TRANSFORM,
                'F.count("*").alias("members"), ',
                'F.count("*").alias("members"), F.count("*").alias("members"), ',
            )
        ],
        [Finding(place=f"{CITIES_TRANSFORM}:7", finding="transform gives members twice", next_step="Give it once")],
    ),
    Mistake(
        "a column less",
        [Edit(CITIES_TRANSFORM, 'F.count("*").alias("members"), ', "")],
        [
            Finding(
                place=f"{CITIES_TRANSFORM}:7", finding="transform does not give members", next_step="Give it as bigint"
            )
        ],
    ),
    Mistake(
        "no aggregation",
        [Edit(DAYS_TRANSFORM, GROUPED, UNGROUPED)],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7", finding="there is no aggregation", next_step="Write groupBy(...).agg(...)"
            )
        ],
    ),
    Mistake(
        "groups filtered after counting",
        [Edit(DAYS_TRANSFORM, LAST, LAST.rstrip() + '.where("notes > 1")\n')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="Filter over the aggregation: a batch holds only a part of each group",
                next_step="Move it into a view that reads this table, or below the aggregation",
            )
        ],
    ),
    Mistake(
        "two aggregations",
        [Edit(DAYS_TRANSFORM, "notes.groupBy", 'notes.groupBy("written_at", "words").count().groupBy')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="there are two aggregations",
                next_step="Keep one: a part of a group cannot be grouped again",
            )
        ],
    ),
    Mistake(
        "distinct rows before counting",
        [Edit(DAYS_TRANSFORM, "notes.groupBy", "notes.distinct().groupBy")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="Deduplicate under the aggregation: only filters, projections and explodes combine",
                next_step="Take it out, or keep the table as view(...)",
            )
        ],
    ),
    Mistake(
        "joined with itself",
        [Edit(DAYS_TRANSFORM, "notes.groupBy", 'notes.join(notes.select("note_id"), "note_id").groupBy')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="Join under the aggregation: only filters, projections and explodes combine",
                next_step="Take it out, or keep the table as view(...)",
            )
        ],
    ),
    Mistake(
        "another function than combine",
        [Edit(DAYS_TRANSFORM, 'F.min("words")', 'F.max("words")')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="shortest is combined by least, computed by max",
                next_step="Compute it by min, or combine it another way",
            )
        ],
    ),
    Mistake(
        "distinct counted",
        [Edit(DAYS_TRANSFORM, 'F.count("*")', 'F.count_distinct("member_id")')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="notes counts distinct values: two batches may share one",
                next_step="Keep the table as view(...)",
            )
        ],
    ),
    Mistake(
        "an average added",
        [Edit(DAYS_TRANSFORM, 'F.sum("words").alias', 'F.avg("words").cast("bigint").alias')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="words is combined by add, computed by average",
                next_step="Compute it by sum, count or count_if, or combine it another way",
            )
        ],
    ),
    Mistake(
        "a ratio added",
        [Edit(DAYS_TRANSFORM, 'F.sum("words").alias', '(F.sum("words") / F.count("*")).cast("bigint").alias')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="words is computed from Divide, not by sum, count or count_if alone",
                next_step="Keep the parts in columns of their own, and compute it in a view or a query",
            )
        ],
    ),
    Mistake(
        "doubles added",
        [
            Edit(
                DAYS_TRANSFORM,
                'F.sum("words").alias',
                'F.sum(F.col("words") * F.lit(1.5).cast("double")).cast("bigint").alias',
            )
        ],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="words is a sum of doubles, rounded in each batch",
                next_step="Cast inside: sum(x.cast(...))",
            )
        ],
    ),
    Mistake(
        "least hidden by coalesce",
        [Edit(DAYS_TRANSFORM, 'F.min("words").alias', 'F.coalesce(F.min("words"), F.lit(0)).alias')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="shortest is computed from Coalesce, not by min alone",
                next_step="Keep the parts in columns of their own, and compute it in a view or a query",
            )
        ],
    ),
    Mistake(
        "a group that is no key",
        [Edit(DAYS_TRANSFORM, '.alias("day"))', '.alias("day"), "member_id")')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="transform gives member_id, which is not declared",
                next_step="Take it out, or declare it",
            ),
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="grouped by member_id, which no key holds",
                next_step="Make it a key, or group without it",
            ),
        ],
    ),
    Mistake(
        "a key made after grouping",
        [
            Edit(DAYS_TRANSFORM, 'notes.groupBy(F.to_date("written_at").alias("day"))', 'notes.groupBy("written_at")'),
            Edit(
                DAYS_TRANSFORM,
                LAST,
                LAST.rstrip() + '.select(F.to_date("written_at").alias("day"), "notes", "words", "shortest", "last")\n',
            ),
        ],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="key day is computed after grouping: groups may share it",
                next_step="Group by the very expression",
            )
        ],
    ),
    Mistake(
        "chance in a filter",
        [Edit(DAYS_TRANSFORM, "notes.groupBy", "notes.where(F.expr('rand() > 0.5')).groupBy")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="Rand gives something else in a replay",
                next_step="Use a column of the input: times and ids come with the rows",
            )
        ],
    ),
    Mistake(
        "a text that a cast takes for the time of its reading",
        [Edit(DAYS_TRANSFORM, 'F.max("written_at")', 'F.max(F.lit(" today ").cast("timestamp"))')],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="a cast of 'today' gives something else in a replay",
                next_step="Use a column of the input: times and ids come with the rows",
            )
        ],
    ),
    Mistake(
        "clock in keys_from",
        [
            Edit(
                CITIES_TRANSFORM,
                'members.select("city")',
                'members.select(F.expr("cast(now() as string)").alias("city"))',
            )
        ],
        [
            Finding(
                place=f"{CITIES_TRANSFORM}:12",
                finding="Now gives something else in a replay",
                next_step="Use a column of the input: times and ids come with the rows",
            )
        ],
    ),
    Mistake(
        "keys_from with more",
        [Edit(CITIES_TRANSFORM, 'members.select("city")', 'members.select("city", "name")')],
        [
            Finding(
                place=f"{CITIES_TRANSFORM}:12", finding="keys_from gives name, which is no key", next_step="Take it out"
            )
        ],
    ),
    Mistake(
        "keys_from of another type",
        [Edit(CITIES_TRANSFORM, 'members.select("city")', 'members.select(F.length("city").alias("city"))')],
        [
            Finding(
                place=f"{CITIES_TRANSFORM}:12",
                finding="city: found int, declared string",
                next_step='Write .cast("string"), or mend the declaration',
            )
        ],
    ),
    Mistake(
        "keys_from of another name",
        [Edit(CITIES_TRANSFORM, 'members.select("city")', 'members.select(F.col("city").alias("town"))')],
        [
            Finding(
                place=f"{CITIES_TRANSFORM}:12",
                finding="keys_from gives town, which is no key",
                next_step="Known columns are city",
            ),
            Finding(
                place=f"{CITIES_TRANSFORM}:12", finding="keys_from does not give city", next_step="Give it as string"
            ),
        ],
    ),
    Mistake(
        "keys_from with an unknown column",
        [Edit(CITIES_TRANSFORM, 'members.select("city")', 'members.select("town")')],
        [
            Finding(
                place=f"{CITIES_TRANSFORM}:14",
                finding="there is no column town",
                next_step="Known columns are city, dues, joined, member_id, name",
            )
        ],
    ),
]


@pytest.mark.parametrize("folder", [ROOT, TINY], ids=["shop", "tiny"])
def test_our_transforms_are_right(folder: Path, spark: SparkSession) -> None:
    """What we hand out gives the declared columns."""
    catalog = load(folder)

    assert transforms(catalog) > 0
    assert deep_findings(catalog, spark) == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_mistake_in_a_transform_is_found(
    mistake: Mistake, tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    """The finding has file and line, what is wrong, and the next step; nothing of the JVM is printed."""
    project = Project(tmp_path / "project")
    mistake.make(project)
    assert check(project.folder) == []

    findings = deep_findings(load(project.folder), spark)

    assert findings == mistake.findings
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", [name for name, wish in WISHES.items() if wish.name.startswith("gold.")])
def test_transform_of_a_new_table_is_right(name: str, tmp_path: Path, spark: SparkSession) -> None:
    """What `table new` writes passes the deep check too."""
    project = Project(tmp_path / "project")
    new_table(project.folder, WISHES[name])

    assert deep_findings(load(project.folder), spark) == []
