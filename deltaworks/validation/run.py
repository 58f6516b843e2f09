"""A suite judged by a Checkpoint of Great Expectations over a version of a table."""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import great_expectations as gx
from great_expectations.checkpoint import UpdateDataDocsAction
from great_expectations.core import ExpectationSuite
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.data_context import EphemeralDataContext
from great_expectations.expectations.expectation import Expectation as Domain
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.catalog import Catalog
from deltaworks.quality.planning import When, planned, tables_named, with_views
from deltaworks.quality.verdict import Judged, Outcome, Verdict
from deltaworks.settings import Settings
from deltaworks.suites import Expectation
from deltaworks.validation.pinned import pinned
from deltaworks.validation.set_aside import judged_in_the_stream, setting_aside
from deltaworks.validation.site import SITE, clear, opened
from deltaworks.validation.stores import as_theirs

RESULT_FORMAT = {"result_format": "BASIC", "partial_unexpected_count": 0}
"""Counts; of rows that are not as expected it collects none."""


def validate(
    spark: SparkSession,
    settings: Settings,
    catalog: Catalog,
    table: str,
    *,
    days: Sequence[str] = (),
    occasion: When | None = None,
) -> Outcome:
    """Judge a suite over the newest version of a table; its pages are in Data Docs.

    Of the suite that which is judged on an occasion; all of it, where there is none. `days`: those that have closed.
    What is judged of a day's rows is judged of each, and where none is given of the newest that is through. What the
    stream has set aside by the suite's rules is told too. Raises LakeError where there is nothing to judge.
    """
    declared = catalog[table]
    plan = [
        one
        for one in planned(
            catalog.suite(table),
            declared.columns,
            later=declared.implied,
            parses=declared.parses,
            closes_days=declared.closes_days,
        )
        if (one.when if occasion is None else occasion in one.when)
    ]
    found = pinned(spark, settings, declared)
    context = opened(settings, catalog)
    views = _views(spark, settings, catalog, [one.expectation for one in plan])
    judge = partial(_judge, context, table, views=views, meta={"version": found.version})
    judged = judge(found.rows, [one.expectation for one in plan if not one.of_day])
    if daily := [one.expectation for one in plan if one.of_day]:
        time = F.to_date(str(declared.table.event_time))
        for day in days or _newest_through(found.rows, time):
            judged += judge(found.rows.where(time == F.lit(day).cast("date")), daily, day=day)
    now = datetime.now(UTC)
    judged += judged_in_the_stream(context, settings, declared, setting_aside(plan), version=found.version, at=now)
    clear(settings)
    return Outcome(
        run_id=str(uuid.uuid4()), judged_at=now, table=table, version=found.version, days=tuple(days), judged=judged
    )


def _newest_through(rows: DataFrame, time: SparkColumn) -> list[str]:
    """The last day but one that there are rows of, else the only one; none where there are no rows."""
    days = [str(row[0]) for row in rows.select(time).distinct().orderBy(time.desc_nulls_last()).limit(2).collect()]
    return [day for day in days if day != "None"][-1:]


def _judge(
    context: EphemeralDataContext,
    table: str,
    rows: DataFrame,
    expectations: Sequence[Expectation],
    *,
    views: Mapping[str, str],
    meta: Mapping[str, Any],
    day: str | None = None,
) -> list[Judged]:
    """Judge these expectations by a suite of that name, for a day under its name too."""
    once = {_key(one): _domain(one, views) for one in expectations}  # one that is there twice is judged once
    given = ExpectationSuite(name=f"{table}.{day}" if day else table, meta=dict(meta))
    for domain in once.values():
        if isinstance(domain, Domain):
            given.add_expectation(domain)
    results = _run(context, context.suites.add(given), rows) if given.expectations else {}
    return [_judged(one, once[_key(one)], results, day) for one in expectations]


def _run(
    context: EphemeralDataContext, suite: ExpectationSuite, rows: DataFrame
) -> Mapping[str | None, ExpectationValidationResult]:
    asset = context.data_sources.add_spark(suite.name).add_dataframe_asset(suite.name)
    data = asset.add_batch_definition_whole_dataframe("newest")
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=suite.name, data=data, suite=suite))
    checkpoint = gx.Checkpoint(
        name=suite.name,
        validation_definitions=[definition],
        actions=[UpdateDataDocsAction(name="docs", site_names=[SITE])],
        result_format=RESULT_FORMAT,
    )
    (results,) = context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": rows}).run_results.values()
    return {one.expectation_config.id: one for one in results.results if one.expectation_config is not None}


def _key(one: Expectation) -> str:
    return json.dumps([one.type, dict(one.kwargs)], sort_keys=True)


def _views(
    spark: SparkSession, settings: Settings, catalog: Catalog, expectations: Sequence[Expectation]
) -> Mapping[str, str]:
    """Views of the newest versions of all other tables that queries name, by table."""
    views: dict[str, str] = {}
    for name in dict.fromkeys(name for one in expectations for name in tables_named(one)):
        views[name] = name.replace(".", "__")
        pinned(spark, settings, catalog[name]).rows.createOrReplaceTempView(views[name])
    return views


def _domain(one: Expectation, views: Mapping[str, str]) -> Domain | str:
    """The expectation as Great Expectations' own; the error's name where it takes no such arguments."""
    try:
        return as_theirs(one, with_views(one, views)).to_domain_obj()
    except Exception as error:  # noqa: BLE001  # its own and pydantic's, whatever it does with arguments
        return type(error).__name__


def _judged(
    one: Expectation, domain: Domain | str, results: Mapping[str | None, ExpectationValidationResult], day: str | None
) -> Judged:
    if isinstance(domain, str):
        return Judged(expectation=one, verdict="unknown", result=_no_result(domain), day=day)
    result = results.get(domain.id)
    if result is None:
        return Judged(expectation=one, verdict="unknown", result=_no_result("no result"), day=day)
    info = result.exception_info or {}
    verdict: Verdict = "unknown" if info.get("raised_exception") else "passed" if result.success else "failed"
    told = json.dumps(result.to_json_dict(), sort_keys=True)
    return Judged(expectation=one, verdict=verdict, result=told, day=day)


def _no_result(why: str) -> str:
    return json.dumps({"exception_message": why})
