"""What is judged of many rows is what Great Expectations says of them by itself: drawn rows, drawn arguments.

Between the two stand a version read from the lake, columns of the engine's own, days cut out of it, a suite of many,
and a store that takes values out of results: none of it may change a verdict. Left out is what is about declarations
alone, or names another table: test_every_expectation.py has each type once.
"""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import fmean, median, stdev
from typing import Any

import great_expectations as gx
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.settings import Settings
from deltaworks.suites import shown_path
from deltaworks.validation.run import validate
from shop.part import FIRST, part_of_shop
from tests.chance import Share, seeded

TABLE = "gold.page_views_per_minute"
PAGES = ("/", "/a", "/b", "/cart")
BEGIN = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
DAYS = 3
_COLUMNS = ["page", "minute", "views"]
Kwargs = dict[str, Any]


def _rows(chance: Random, count: int) -> pa.Table:
    """Minutes of three days, some of them twice, with a column that is none of the table's declared ones."""
    minutes = [BEGIN + dt.timedelta(minutes=chance.randrange(60), days=chance.randrange(DAYS)) for _ in range(count)]
    return pa.table(
        {
            "page": [chance.choice(PAGES) for _ in range(count)],
            "minute": pa.array(minutes, pa.timestamp("us", "UTC")),
            "views": pa.array([chance.randint(1, 9) for _ in range(count)], pa.int64()),
            "_seq": pa.array(range(count), pa.int64()),
        }
    )


def _bounds(chance: Random, value: float) -> Kwargs:
    """A minimum or a maximum, 60 to 140 % of a value; for a day, which has fewer, another verdict may be right."""
    return {chance.choice(["min_value", "max_value"]): round(value * chance.uniform(0.6, 1.4), 3)}


def _of_views(statistic: Callable[[list[int]], float]) -> Callable[[Random, pa.Table], Kwargs]:
    return lambda chance, rows: {"column": "views", **_bounds(chance, statistic(rows["views"].to_pylist()))}


def _of_set(column: str, values: tuple[Any, ...]) -> Callable[[Random, pa.Table], Kwargs]:
    """All values or all but one, with one more at times."""

    def drawn(chance: Random, _: pa.Table) -> Kwargs:
        left_out = chance.choice([None, chance.choice(values)])
        kept = [one for one in values if one != left_out]
        return {"column": column, "value_set": [*kept, *chance.choice([[], [type(values[0])()]])]}

    return drawn


def _quantiles(chance: Random, _: pa.Table) -> Kwargs:
    ranges = [sorted(chance.sample(range(10), 2)) for _ in range(2)]
    return {"column": "views", "quantile_ranges": {"quantiles": [0.25, 0.75], "value_ranges": ranges}}


def _divergence(chance: Random, _: pa.Table) -> Kwargs:
    weights = [chance.uniform(0.1, 1) for _ in PAGES]
    of_pages = {"values": list(PAGES), "weights": [one / sum(weights) for one in weights]}
    return {"column": "page", "partition_object": of_pages, "threshold": chance.uniform(0.01, 0.3)}


def _mostly(chance: Random, _: pa.Table) -> Kwargs:
    return {"column": "page", "value_set": list(PAGES[:2]), "mostly": chance.choice([0.2, 0.4, 0.5, 0.6])}


def _of_some_rows(chance: Random, _: pa.Table) -> Kwargs:
    some = f"page = '{chance.choice(PAGES)}'"
    bound = {"column": "views", "max_value": chance.randint(7, 9)}
    return {**bound, "row_condition": some, "condition_parser": "spark"}


def _query(chance: Random, _: pa.Table) -> Kwargs:
    many = chance.choice([40, 400, 4000])
    return {"unexpected_rows_query": f"select page from {{batch}} group by page having sum(views) > {many}"}


def _unique(chance: Random, _: pa.Table) -> Kwargs:
    return {"column": chance.choice(_COLUMNS)}


def _unique_together(chance: Random, _: pa.Table) -> Kwargs:
    return {"column_list": chance.sample(_COLUMNS, 2)}


def _scores(chance: Random, _: pa.Table) -> Kwargs:
    given = {"threshold": chance.choice([1, 1.5, 3]), "mostly": chance.choice([0.6, 1])}
    return {"column": "views", "double_sided": True, **given}


def _count(chance: Random, rows: pa.Table) -> Kwargs:
    return _bounds(chance, len(rows) / chance.choice([1, DAYS]))


def _columns(chance: Random, _: pa.Table) -> Kwargs:
    return {"column_set": chance.sample(_COLUMNS, chance.choice([2, 3]))}


KINDS: tuple[tuple[str, Callable[[Random, pa.Table], Kwargs]], ...] = (
    ("expect_column_max_to_be_between", _of_views(max)),
    ("expect_column_min_to_be_between", _of_views(min)),
    ("expect_column_mean_to_be_between", _of_views(fmean)),
    ("expect_column_median_to_be_between", _of_views(median)),
    ("expect_column_stdev_to_be_between", _of_views(stdev)),
    ("expect_column_sum_to_be_between", _of_views(sum)),
    ("expect_column_unique_value_count_to_be_between", _of_views(lambda views: len({*views}))),
    ("expect_column_proportion_of_unique_values_to_be_between", _of_views(lambda views: len({*views}) / len(views))),
    ("expect_column_quantile_values_to_be_between", _quantiles),
    ("expect_column_distinct_values_to_be_in_set", _of_set("page", PAGES)),
    ("expect_column_distinct_values_to_contain_set", _of_set("views", tuple(range(1, 10)))),
    ("expect_column_distinct_values_to_equal_set", _of_set("page", PAGES)),
    ("expect_column_most_common_value_to_be_in_set", _of_set("page", PAGES[:2])),
    ("expect_column_kl_divergence_to_be_less_than", _divergence),
    ("expect_column_values_to_be_unique", _unique),
    ("expect_compound_columns_to_be_unique", _unique_together),
    ("expect_column_value_z_scores_to_be_less_than", _scores),
    ("expect_table_row_count_to_be_between", _count),
    ("expect_table_columns_to_match_set", _columns),
    ("expect_column_values_to_be_in_set", _mostly),
    ("expect_column_values_to_be_between", _of_some_rows),
    ("unexpected_rows_expectation", _query),
)


def _alone(spark: SparkSession, rows: pa.Table, kind: str, kwargs: Kwargs) -> str:
    """The verdict of Great Expectations, asked for this one alone."""
    asset = gx.get_context(mode="ephemeral").data_sources.add_spark("alone").add_dataframe_asset("rows")
    whole = asset.add_batch_definition_whole_dataframe("all")
    batch = whole.get_batch(batch_parameters={"dataframe": spark.createDataFrame(rows)})
    result = batch.validate(ExpectationConfiguration(type=kind, kwargs=kwargs).to_domain_obj())
    raised = any(one.get("raised_exception") for one in (result.exception_info, *result.exception_info.values())
                 if isinstance(one, dict))  # fmt: skip
    return "unknown" if raised else "passed" if result.success else "failed"


def test_verdicts_over_many_rows_are_those_of_great_expectations(
    spark: SparkSession, tmp_path: Path, share: Share
) -> None:
    """Of the whole table and of each of two days; a third of the kinds in each run, all of them with `--whole`."""
    chance = seeded()
    rows = _rows(chance, 240)
    drawn = [(kind, make(chance, rows)) for kind, make in (KINDS[at] for at in share(range(len(KINDS))))]
    drawn.append(("expect_table_row_count_to_equal", {"value": len(rows)}))  # met by all rows, by those of a day not
    settings = Settings.load(part_of_shop(tmp_path / "project", *FIRST), environment={}, data=tmp_path / "data")
    listed = [
        {"type": kind, "kwargs": kwargs, "severity": "warning", "meta": meta}
        for kind, kwargs in drawn
        for meta in ({}, {"when": "day"})
    ]
    (settings.project / shown_path(TABLE)).write_text(json.dumps({"expectations": listed}))
    write_deltalake(settings.lake / "gold" / "page_views_per_minute", rows)
    days = [(BEGIN + dt.timedelta(days=number)).date() for number in range(DAYS)]

    outcome = validate(spark, settings, catalog.load(settings.project), TABLE, days=[str(day) for day in days[:2]])

    found = {
        (one.expectation.type, json.dumps(dict(one.expectation.kwargs), sort_keys=True), one.day): one.verdict
        for one in outcome.judged
        if one.where == "at rest"
    }
    declared = rows.select(_COLUMNS)
    parts: dict[str | None, pa.Table] = {None: declared}
    parts |= {str(day): declared.filter(pc.equal(pc.cast(declared["minute"], pa.date32()), day)) for day in days[:2]}
    expected = {
        (kind, json.dumps(kwargs, sort_keys=True), day): _alone(spark, part, kind, kwargs)
        for kind, kwargs in drawn
        for day, part in parts.items()
    }
    assert len(found) == len(drawn) * len(parts)
    assert found == expected
    assert {"passed", "failed"} == {*expected.values()}
    if len(drawn) > len(KINDS):
        of_kinds = {verdict for (kind, *_), verdict in expected.items() if kind in dict(KINDS)}
        assert of_kinds == {"passed", "failed"}
