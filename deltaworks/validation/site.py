"""Where Great Expectations keeps results and Data Docs, and a context of its that keeps them there."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import great_expectations as gx
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


def private(catalog: Catalog) -> Mapping[str, frozenset[str]]:
    """By table, the columns that are declared to be personal."""
    return {
        name: frozenset(column.name for column in declared.columns if column.pii)
        for name, declared in catalog.tables.items()
    }


def clear(settings: Settings, *, now: datetime | None = None) -> int:
    """Delete results and their pages that are older than KEEP; how many files went."""
    oldest = ((now or datetime.now(UTC)) - KEEP).timestamp()
    files = [
        file for folder in (settings.quality_results, settings.quality_docs / "validations") for file in _files(folder)
    ]
    gone = [file for file in files if file.stat().st_mtime < oldest]
    for file in gone:
        file.unlink(missing_ok=True)
    return len(gone)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]


def _folder(path: Path) -> dict[str, Any]:
    return {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(path)}
