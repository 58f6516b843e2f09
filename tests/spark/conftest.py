"""One Spark session for all tests that need the JVM; a fresh lake for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.session import open_session
from deltaworks.settings import ROOT, AppSettings, Settings


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give the shared session, with the options that drivers have."""
    settings = Settings.load(ROOT, environment={}, data=tmp_path_factory.mktemp("spark"))
    session = open_session(name="tests", settings=settings, app=AppSettings())
    yield session
    session.stop()


@pytest.fixture
def shop(tmp_path: Path) -> Settings:
    """Give the shop's settings with an empty lake of this test's own."""
    return Settings.load(ROOT, environment={}, data=tmp_path)
