"""Every type of expectation that `table check` lets through can be judged: held against Great Expectations itself."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.expectation_types import TYPES
from deltaworks.quality.every_type import every_type
from deltaworks.settings import Settings
from deltaworks.validation.run import validate
from tests.tiny_project import Project

NOTES: dict[str, Any] = {
    "note_id": ["1", "2", "3", "4"],
    "written_at": [dt.datetime(2026, 11, 20, hour, tzinfo=dt.UTC) for hour in range(4)],
    "member_id": [1, 2, 2, None],
    "words": pa.array([5, 5, 6, 7], pa.int32()),
}
WORDS = {"column": "words"}
BETWEEN = {"min_value": 1, "max_value": 10}
OF_WORDS = {**WORDS, **BETWEEN}
PAIR = {"column_A": "words", "column_B": "words"}
COLUMNS = ["note_id", "written_at", "member_id", "words"]
SCHEMA = {"type": "number"}
KWARGS: dict[str, dict[str, Any]] = {
    "expect_column_distinct_values_to_be_in_set": {**WORDS, "value_set": [5, 6, 7, 8]},
    "expect_column_distinct_values_to_contain_set": {**WORDS, "value_set": [5, 6]},
    "expect_column_distinct_values_to_equal_set": {**WORDS, "value_set": [5, 6, 7]},
    "expect_column_kl_divergence_to_be_less_than": {
        "column": "note_id",
        "partition_object": {"values": ["1", "2", "3", "4"], "weights": [0.25, 0.25, 0.25, 0.25]},
        "threshold": 0.1,
    },
    "expect_column_max_to_be_between": OF_WORDS,
    "expect_column_mean_to_be_between": OF_WORDS,
    "expect_column_median_to_be_between": OF_WORDS,
    "expect_column_min_to_be_between": OF_WORDS,
    "expect_column_most_common_value_to_be_in_set": {**WORDS, "value_set": [5]},
    "expect_column_pair_values_a_to_be_greater_than_b": {**PAIR, "or_equal": True},
    "expect_column_pair_values_to_be_equal": PAIR,
    "expect_column_pair_values_to_be_in_set": {**PAIR, "value_pairs_set": [[5, 5], [6, 6], [7, 7]]},
    "expect_column_proportion_of_non_null_values_to_be_between": {"column": "member_id", "min_value": 0.7},
    "expect_column_proportion_of_unique_values_to_be_between": {**WORDS, "min_value": 0.7},
    "expect_column_quantile_values_to_be_between": {
        **WORDS,
        "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[5, 6]]},
    },
    "expect_column_stdev_to_be_between": {**WORDS, "max_value": 2},
    "expect_column_sum_to_be_between": {**WORDS, "min_value": 23, "max_value": 23},
    "expect_column_to_exist": WORDS,
    "expect_column_type_to_be": {**WORDS, "type_": "IntegerType"},
    "expect_column_unique_value_count_to_be_between": {**WORDS, "min_value": 3, "max_value": 3},
    "expect_column_value_lengths_to_be_between": {"column": "note_id", **BETWEEN},
    "expect_column_value_lengths_to_equal": {"column": "note_id", "value": 1},
    "expect_column_value_z_scores_to_be_less_than": {**WORDS, "double_sided": True, "threshold": 3},
    "expect_column_values_to_be_between": OF_WORDS,
    "expect_column_values_to_be_in_set": {**WORDS, "value_set": [5, 6, 7]},
    "expect_column_values_to_be_in_type_list": {**WORDS, "type_list": ["IntegerType"]},
    "expect_column_values_to_be_json_parseable": {"column": "note_id", "mostly": 0},
    "expect_column_values_to_be_null": {"column": "member_id", "mostly": 0.25},
    "expect_column_values_to_be_of_type": {**WORDS, "type_": "IntegerType"},
    "expect_column_values_to_be_unique": {"column": "note_id"},
    "expect_column_values_to_match_json_schema": {"column": "note_id", "json_schema": SCHEMA},
    "expect_column_values_to_match_regex": {"column": "note_id", "regex": "^[1-4]$"},
    "expect_column_values_to_match_regex_list": {"column": "note_id", "regex_list": ["^[12]$", "^[34]$"]},
    "expect_column_values_to_match_strftime_format": {"column": "note_id", "strftime_format": "%Y", "mostly": 0},
    "expect_column_values_to_not_be_in_set": {**WORDS, "value_set": [8]},
    "expect_column_values_to_not_be_null": WORDS,
    "expect_column_values_to_not_be_outliers": {**WORDS, "method": "iqr", "multiplier": 3},
    "expect_column_values_to_not_match_regex": {"column": "note_id", "regex": "^[x-z]$"},
    "expect_column_values_to_not_match_regex_list": {"column": "note_id", "regex_list": ["^x$", "^y$"]},
    "expect_compound_columns_to_be_unique": {"column_list": ["note_id", "words"]},
    "expect_multicolumn_sum_to_equal": {"column_list": ["words", "words"], "sum_total": 10, "mostly": 0.5},
    "expect_multicolumn_values_to_be_equal": {"column_list": ["words", "words"]},
    "expect_select_column_values_to_be_unique_within_record": {"column_list": ["words", "member_id"]},
    "expect_table_column_count_to_be_between": BETWEEN,
    "expect_table_column_count_to_equal": {"value": 4},
    "expect_table_columns_to_match_ordered_list": {"column_list": COLUMNS},
    "expect_table_columns_to_match_set": {"column_set": COLUMNS},
    "expect_table_row_count_to_be_between": BETWEEN,
    "expect_table_row_count_to_equal": {"value": 4},
    "unexpected_rows_expectation": {
        "unexpected_rows_query": "select * from {batch} b left anti join {gold.notes_per_day} d on d.notes = b.words"
    },
}
"""Of each type arguments that these rows meet."""


def test_every_type_that_is_not_refused_is_judged(spark: SparkSession, tmp_path: Path) -> None:
    """No type is let through that Great Expectations cannot judge on Spark: each says `passed` of rows that meet it."""
    project = Project(tmp_path / "project")
    listed = [{"type": kind, "kwargs": kwargs, "severity": "warning"} for kind, kwargs in KWARGS.items()]
    project.write("expectations/silver/notes.yml", json.dumps({"expectations": listed}))
    settings = Settings.load(project.folder, environment={}, data=tmp_path / "data")
    write_deltalake(settings.lake / "silver/notes", pa.table(NOTES))
    days = {"day": [dt.date(2026, 11, 20)] * 3, "notes": [5, 6, 7], "words": [5, 6, 7], "shortest": [5, 5, 5]}
    last = pa.array([dt.datetime(2026, 11, 20, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC"))
    write_deltalake(settings.lake / "gold/notes_per_day", pa.table({**days, "last": last}))

    outcome = validate(spark, settings, catalog.load(project.folder), "silver.notes")

    assert {*KWARGS} == {one.type for one in every_type() if one.at_rest}
    assert {one.type for one in every_type() if not one.at_rest} == {*TYPES} - {*KWARGS}
    other = {one.name: (one.verdict, json.loads(one.result)) for one in outcome.judged if one.verdict != "passed"}
    assert not other
    assert len(outcome.judged) == len(KWARGS)
