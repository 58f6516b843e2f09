"""Where Great Expectations keeps results and Data Docs, and a context of its that keeps them there."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import great_expectations as gx
from great_expectations.checkpoint import UpdateDataDocsAction
from great_expectations.core import ExpectationSuite
from great_expectations.core.batch_definition import BatchDefinition
from great_expectations.data_context import EphemeralDataContext
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)

from deltaworks.catalog import Catalog
from deltaworks.local.private import private_folder
from deltaworks.settings import Settings
from deltaworks.validation import stores

SITE = "lake"
RESULT_FORMAT = {"result_format": "BASIC", "partial_unexpected_count": 0}
"""Counts; of rows that are not as expected it collects none."""
KEEP = timedelta(days=30)
"""Pages of results go after so long; `ops.quality` keeps what they said."""


def opened(settings: Settings, catalog: Catalog) -> EphemeralDataContext:
    """A context that keeps results, without values, and Data Docs in the data folder, and tells nobody anything."""
    for folder in (settings.quality, settings.quality_docs, settings.quality_results):
        private_folder(folder)
    stores.ValidationResultsStore.private = private(catalog)
    defaults = InMemoryStoreBackendDefaults()
    defaults.stores[defaults.expectations_store_name]["module_name"] = stores.__name__
    defaults.stores[defaults.validation_results_store_name] = {
        "module_name": stores.__name__,
        "class_name": "ValidationResultsStore",
        "store_backend": _folder(settings.quality_results),
    }
    config = DataContextConfig(
        store_backend_defaults=defaults,
        data_docs_sites={
            SITE: {
                "class_name": "SiteBuilder",
                "site_name": "Deltaworks",
                "show_how_to_buttons": False,
                "store_backend": _folder(settings.quality_docs),
                "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
            }
        },
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
    )
    return gx.get_context(mode="ephemeral", project_config=config)


def checkpoint(
    context: EphemeralDataContext, name: str, batch: BatchDefinition[Any], suite: ExpectationSuite
) -> gx.Checkpoint:
    """Add a suite, judged of a batch, with pages and without rows; the Checkpoint is to be given the batch."""
    definition = gx.ValidationDefinition(name=name, data=batch, suite=context.suites.add(suite))
    return context.checkpoints.add(
        gx.Checkpoint(
            name=name,
            validation_definitions=[context.validation_definitions.add(definition)],
            actions=[UpdateDataDocsAction(name="docs", site_names=[SITE])],
            result_format=RESULT_FORMAT,
        )
    )


def private(catalog: Catalog) -> Mapping[str, frozenset[str]]:
    """By table, the columns that are declared to be personal."""
    return {
        name: frozenset(column.name for column in declared.columns if column.pii)
        for name, declared in catalog.tables.items()
    }


def clear(settings: Settings, *, now: datetime | None = None) -> int:
    """Delete results and their pages that are older than KEEP, and old empty folders; how many files went."""
    oldest = ((now or datetime.now(UTC)) - KEEP).timestamp()
    folders = (settings.quality_results, settings.quality_docs / "validations")
    old = [
        path
        for folder in folders
        for path in sorted(folder.rglob("*"), reverse=True)
        if not path.name.startswith(".") and path.stat().st_mtime < oldest
    ]
    gone = [path for path in old if path.is_file()]
    for path in gone:
        path.unlink(missing_ok=True)
    for path in (path for path in old if path.is_dir()):
        with suppress(OSError):  # there is something in it
            path.rmdir()
    return len(gone)


def _folder(path: Path) -> dict[str, Any]:
    return {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(path)}
