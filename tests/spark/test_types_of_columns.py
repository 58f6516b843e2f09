"""Which expectations can be judged of which type of column: held against Great Expectations itself."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import great_expectations as gx
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from great_expectations.compatibility.pydantic import ValidationError
from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.expectation_types import TYPES
from deltaworks.quality.on_spark import OF_TYPES, not_of_column, not_on_spark
from deltaworks.settings import Settings
from deltaworks.suites import Expectation
from deltaworks.validation.run import validate
from deltaworks.validation.stores import as_theirs
from deltaworks.words.types import parse
from tests.chance import Share
from tests.tiny_project import Project

MICROS = pa.timestamp("us", "UTC")
ROWS: dict[str, tuple[pa.Array, Any, Any]] = {
    "boolean": (pa.array([True, False, True, None]), False, True),
    "int": (pa.array([1, 2, 2, None], pa.int32()), 1, 2),
    "bigint": (pa.array([1, 2, 2, None], pa.int64()), 1, 2),
    "double": (pa.array([1.0, 2.0, 2.0, None]), 1.0, 2.0),
    "string": (pa.array(['"a"', '"b"', '"b"', None]), '"a"', '"b"'),  # JSON, and no numbers
    "binary": (pa.array([b"a", b"b", b"b", None]), "a", "b"),
    "date": (pa.array([dt.date(2026, 11, day) for day in (1, 2, 2)] + [None]), "2026-11-01", "2026-11-02"),
    "timestamp": (
        pa.array([*(dt.datetime(2026, 11, day, 5, tzinfo=dt.UTC) for day in (1, 2, 2)), None], MICROS),
        "2026-11-01T05:00:00", "2026-11-02T05:00:00",
    ),
    "decimal(12,2)": (pa.array([Decimal(1), Decimal(2), Decimal(2), None], pa.decimal128(12, 2)), 1, 2),
}  # fmt: skip
"""By type a column, the least and the greatest of its values as a suite has them."""


TABLE = '''"""A column of every type."""

from deltaworks.words import Column, Table, append, hours, json

TABLE = Table(
    app="tiny",
    reads=json("bronze.letters", topic="notes"),
    kept_as=append(dedupe_by=("event_id",), within=hours(1)),
    columns=(
        Column("event_id", "string", null=False, doc="Its name."),
{columns}    ),
    event_time="a_timestamp",
    owner="tests",
)
'''


def arguments(kind: str, least: Any, greatest: Any) -> dict[str, Any] | None:
    """Arguments that a column of these values meets; None where the type is about no single column's type."""
    both = {"min_value": least, "max_value": greatest}
    spread = {"values": [least, greatest], "weights": [0.33, 0.67]}
    positive = {"min_value": 0}
    known: dict[str, dict[str, Any]] = {
        "expect_column_max_to_be_between": both,
        "expect_column_min_to_be_between": both,
        "expect_column_values_to_be_between": {**both, "mostly": 0.5},
        "expect_column_mean_to_be_between": positive,
        "expect_column_median_to_be_between": positive,
        "expect_column_stdev_to_be_between": positive,
        "expect_column_sum_to_be_between": positive,
        "expect_column_quantile_values_to_be_between": {
            "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[least, greatest]]}
        },
        "expect_column_value_z_scores_to_be_less_than": {"double_sided": True, "threshold": 3},
        "expect_column_values_to_not_be_outliers": {"method": "iqr", "multiplier": 3},
        "expect_column_distinct_values_to_be_in_set": {"value_set": [least, greatest]},
        "expect_column_distinct_values_to_contain_set": {"value_set": [least, greatest]},
        "expect_column_distinct_values_to_equal_set": {"value_set": [least, greatest]},
        "expect_column_most_common_value_to_be_in_set": {"value_set": [greatest]},
        "expect_column_kl_divergence_to_be_less_than": {"partition_object": spread, "threshold": 9},
        "expect_column_unique_value_count_to_be_between": {"min_value": 1, "max_value": 9},
        "expect_column_proportion_of_unique_values_to_be_between": positive,
        "expect_column_proportion_of_non_null_values_to_be_between": positive,
        "expect_column_values_to_be_in_set": {"value_set": [least, greatest], "mostly": 0.5},
        "expect_column_values_to_not_be_in_set": {"value_set": [least], "mostly": 0.1},
        "expect_column_values_to_be_null": {"mostly": 0.1},
        "expect_column_values_to_not_be_null": {"mostly": 0.5},
        "expect_column_values_to_be_unique": {"mostly": 0.1},
        "expect_column_value_lengths_to_be_between": {"min_value": 0, "max_value": 99, "mostly": 0.5},
        "expect_column_value_lengths_to_equal": {"value": 1, "mostly": 0},
        "expect_column_values_to_match_regex": {"regex": ".", "mostly": 0.5},
        "expect_column_values_to_match_regex_list": {"regex_list": ["."], "mostly": 0.5},
        "expect_column_values_to_not_match_regex": {"regex": "zz", "mostly": 0.5},
        "expect_column_values_to_not_match_regex_list": {"regex_list": ["zz"], "mostly": 0.5},
        "expect_column_values_to_match_strftime_format": {"strftime_format": "%Y", "mostly": 0},
        "expect_column_values_to_be_json_parseable": {"mostly": 0},
        "expect_column_values_to_match_json_schema": {"json_schema": {}, "mostly": 0},
    }
    return known.get(kind)


def test_all_types_about_a_column_are_known_here() -> None:
    """But those that are about no values: whether it exists, what its type is."""
    about_types = {
        "expect_column_to_exist", "expect_column_type_to_be", "expect_column_values_to_be_of_type",
        "expect_column_values_to_be_in_type_list",
    }  # fmt: skip
    of_one = {kind for kind, (required, _) in TYPES.items() if "column" in required.split()}

    here = {kind for kind in TYPES if arguments(kind, 1, 2) is not None}

    assert here == of_one - about_types - {kind for kind in of_one if not_on_spark(kind)}
    assert OF_TYPES.keys() <= here


def test_what_is_let_through_is_judged_and_what_is_refused_cannot_be(
    spark: SparkSession, tmp_path: Path, share: Share
) -> None:
    """Each type of expectation of each type of column: met by these rows, it passes, or `table check` refuses it."""
    kinds = [kind for kind in TYPES if arguments(kind, 1, 2) is not None]
    chosen = [kinds[at] for at in share(share(range(len(kinds))))]  # a ninth: only another release changes it
    project = Project(tmp_path / "project")
    columns = "".join(f"        Column({name!r}, {type_!r}, doc='Of it.'),\n" for type_, name in names().items())
    project.write("tables/silver/kinds/table.py", TABLE.format(columns=columns))
    types = {names()[type_]: parse(type_) for type_ in ROWS}
    listed = [
        Expectation(
            type=kind, severity="warning", meta={},
            kwargs={"column": names()[type_], **(arguments(kind, *ROWS[type_][1:]) or {})},
        )
        for kind in chosen
        for type_ in ROWS
    ]  # fmt: skip
    refused = [one for one in listed if not_of_column(one.type, one.kwargs, types)]
    let_through = [one for one in listed if one not in refused]
    written = [{"type": one.type, "kwargs": dict(one.kwargs), "severity": "warning"} for one in let_through]
    project.write("expectations/silver/kinds.yml", json.dumps({"expectations": written}))
    settings = Settings.load(project.folder, environment={}, data=tmp_path / "data")
    rows = pa.table({name: ROWS[type_][0] for type_, name in names().items()})
    write_deltalake(settings.lake / "silver/kinds", rows.append_column("event_id", pa.array(["1", "2", "3", "4"])))

    outcome = validate(spark, settings, catalog.load(project.folder), "silver.kinds")

    assert not {one.name: (one.verdict, one.result) for one in outcome.judged if one.verdict != "passed"}
    assert len(outcome.judged) == len(let_through) > len(chosen)
    assert [one for one in refused if passes(spark, one, rows)] == []


def names() -> dict[str, str]:
    """By type the name of its column."""
    return {type_: f"a_{type_.partition('(')[0]}" for type_ in ROWS}


def passes(spark: SparkSession, one: Expectation, rows: pa.Table) -> bool:
    """Whether Great Expectations judges it and finds it met."""
    try:
        expectation = as_theirs(one).to_domain_obj()
    except ValidationError:  # it takes no such arguments
        return False
    context = gx.get_context(mode="ephemeral")
    asset = context.data_sources.add_spark("s").add_dataframe_asset("a").add_batch_definition_whole_dataframe("b")
    told = asset.get_batch(batch_parameters={"dataframe": spark.createDataFrame(rows)}).validate(expectation)
    return bool(told.success)


@pytest.mark.parametrize(
    ("type_", "bound", "fits"),
    [
        ("int", 5, True), ("int", "5", False), ("double", 0.5, True), ("date", "2026-11-21", True), ("date", 5, False),
        ("date", "2026-11-21T00:00:00", False), ("date", "2026-02-30", False), ("date", "2026-W48-1", False),
        ("timestamp", "2026-11-21", False), ("timestamp", 20261122, False), ("timestamp", "20261122T100000", False),
        ("timestamp", "2026-11-21T10:00:00", True), ("timestamp", "2026-11-21T10:00:00Z", False),
        ("timestamp", "noon", False), ("string", "a", False),
    ],
)  # fmt: skip
def test_bounds_fit_the_column(type_: str, bound: object, fits: bool) -> None:
    """What would raise an error each night is refused with what to write."""
    kwargs = {"column": "c", "max_value": bound}

    found = not_of_column("expect_column_max_to_be_between", kwargs, {"c": parse(type_)})

    assert (found is None) == fits


def test_moments_are_added_up_as_seconds() -> None:
    """So bounds of their sum are numbers."""
    of_moments, kind = {"c": parse("timestamp")}, "expect_column_sum_to_be_between"

    assert not_of_column(kind, {"column": "c", "min_value": 0}, of_moments) is None
    assert not_of_column(kind, {"column": "c", "min_value": "2026-11-21T10:00:00"}, of_moments) is not None
