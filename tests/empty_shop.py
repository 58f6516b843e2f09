"""A lake with all tables of the shop, as they begin."""

from pathlib import Path

from deltaworks import catalog
from deltaworks.settings import ROOT, Settings
from tests.arrow_flows import ArrowOwner


def empty_shop(folder: Path) -> Settings:
    """Make it below a folder."""
    settings = Settings.load(ROOT, environment={}, data=folder)
    for app in catalog.load(ROOT).apps:
        ArrowOwner(settings, app)
    return settings
