"""A context of Great Expectations for a notebook: the lake's tables as assets, the project's suites, a checkpoint each.

    from deltaworks.quality import context, rows

    gx = context()
    suite = gx.suites.get("gold.daily_orders")
    checkpoint = gx.checkpoints.get("gold.daily_orders")
    checkpoint.run(batch_parameters={"dataframe": rows("gold.daily_orders")})

A suite that is edited (`suite.add_expectation(...)`, `expectation.save()`) is written back to `expectations/`. Results
have no values of rows, as everywhere; the rows themselves are a DataFrame, to be looked at.
"""

from functools import cache
from pathlib import Path

from great_expectations.core import ExpectationSuite
from great_expectations.data_context import EphemeralDataContext
from pyspark.sql import DataFrame, SparkSession

from deltaworks.catalog import load
from deltaworks.engine.session import open_session
from deltaworks.settings import AppSettings, Settings
from deltaworks.suites import Suite
from deltaworks.validation.pinned import pinned
from deltaworks.validation.site import SITE, checkpoint, opened
from deltaworks.validation.stores import ExpectationsStore, as_theirs

__all__ = ["DataFrame", "EphemeralDataContext", "context", "rows"]


def context(project: Path | None = None) -> EphemeralDataContext:
    """Open a project (default: DELTAWORKS_PROJECT, else this checkout). Raises DeclarationError where it is wrong."""
    settings = Settings.load(project)
    catalog = load(settings.project)
    _session(settings.project)  # before Great Expectations begins one of its own
    ExpectationsStore.catalog = None  # what is loaded now stands in the files already
    made = opened(settings, catalog)
    source = made.data_sources.add_spark(SITE)
    for name in catalog.tables:
        batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("newest")
        suite = catalog.suite(name)
        if suite.expectations:
            checkpoint(made, name, batch, _theirs(suite))
    ExpectationsStore.catalog = catalog
    return made


def rows(table: str, project: Path | None = None) -> DataFrame:
    """The newest version of a table, its declared columns; raises LakeError where there is none."""
    settings = Settings.load(project)
    return pinned(_session(settings.project), settings, load(settings.project)[table]).rows


@cache
def _session(project: Path) -> SparkSession:
    settings = Settings.load(project)
    return SparkSession.getActiveSession() or open_session(name="quality", settings=settings, app=AppSettings())


def _theirs(suite: Suite) -> ExpectationSuite:
    return ExpectationSuite(name=suite.name, expectations=[*map(as_theirs, suite.expectations)])
