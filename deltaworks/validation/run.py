"""A suite judged by a Checkpoint of Great Expectations over a version of a table."""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime

from great_expectations.core import ExpectationSuite, RunIdentifier
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.data_context import EphemeralDataContext
from great_expectations.expectations.expectation import Expectation as Domain
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.catalog import Catalog
from deltaworks.quality.planning import When, planned, tables_named, with_views
from deltaworks.quality.verdict import Judged, Outcome
from deltaworks.settings import Settings
from deltaworks.suites import Expectation
from deltaworks.validation.pinned import pinned
from deltaworks.validation.set_aside import judged_in_the_stream, setting_aside
from deltaworks.validation.site import checkpoint, clear, opened
from deltaworks.validation.stores import as_theirs, verdict_of

_OF_A_DAY = ".day"
"""Data Docs have what is judged of the rows of a day under the suite's name with this; the run is named by the day."""


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
    judged = _judge(context, table, [(None, found.rows)], [one.expectation for one in plan if not one.of_day], views)
    if daily := [one.expectation for one in plan if one.of_day]:
        time, today = F.to_date(str(declared.table.event_time)), datetime.now(UTC).date()
        wanted = list(days) or _newest_through(found.rows, time, today)
        batches = [(day, found.rows.where(time == F.lit(day).cast("date"))) for day in wanted]
        judged += _judge(context, f"{table}{_OF_A_DAY}", batches, daily, views)
        if not batches:
            why = _no_result("no day is through")
            judged += [Judged(expectation=one, verdict="unknown", result=why) for one in daily]
    now = datetime.now(UTC)
    judged += judged_in_the_stream(context, settings, declared, setting_aside(plan), version=found.version, at=now)
    clear(settings)
    return Outcome(
        run_id=str(uuid.uuid4()), judged_at=now, table=table, version=found.version, days=tuple(days), judged=judged
    )


def _newest_through(rows: DataFrame, time: SparkColumn, today: date) -> list[str]:
    """The newest day that is through: before today, and there are rows of a later one."""
    days = [row[0] for row in rows.select(time).distinct().collect() if row[0] is not None]
    through = [day for day in days if day < min(max(days), today)]
    return [max(through).isoformat()] if through else []


def _judge(
    context: EphemeralDataContext,
    name: str,
    batches: Sequence[tuple[str | None, DataFrame]],
    expectations: Sequence[Expectation],
    views: Mapping[str, str],
) -> list[Judged]:
    """Judge these expectations, as a suite of this name, of each batch; with its day, where it is one's."""
    once = {_key(one): _domain(one, views) for one in expectations}  # one that is there twice is judged once
    suite = ExpectationSuite(name=name, expectations=[one for one in once.values() if isinstance(one, Domain)])
    if not (batches and expectations):
        return []
    asset = context.data_sources.add_spark(name).add_dataframe_asset(name)
    judging = checkpoint(context, name, asset.add_batch_definition_whole_dataframe("newest"), suite)
    found = []
    for day, rows in batches:
        run = RunIdentifier(run_name=day, run_time=datetime.now(UTC))
        told = judging.run(batch_parameters={"dataframe": rows}, run_id=run) if suite.expectations else None
        every = [one for ran in told.run_results.values() for one in ran.results] if told else []
        results = {one.expectation_config.id: one for one in every if one.expectation_config is not None}
        found += [_judged(one, once[_key(one)], results, day) for one in expectations]
    return found


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
    told = json.dumps(result.to_json_dict(), sort_keys=True)
    return Judged(expectation=one, verdict=verdict_of(result), result=told, day=day)


def _no_result(why: str) -> str:
    return json.dumps({"exception_message": why})
