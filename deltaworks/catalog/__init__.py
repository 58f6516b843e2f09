"""What tables there are, read from their folders, and whether they fit together. No Spark, no Airflow."""

from deltaworks.catalog.declared import BRONZE_COLUMNS, Catalog, Declared
from deltaworks.catalog.loading import check, load, readable
from deltaworks.catalog.schedules import schedule_findings
from deltaworks.catalog.source import import_file
from deltaworks.findings import Finding

__all__ = [
    "BRONZE_COLUMNS", "Catalog", "Declared", "Finding", "check", "import_file", "load", "readable", "schedule_findings",
]  # fmt: skip
