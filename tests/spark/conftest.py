"""One Spark session for all tests that need the JVM; a fresh lake for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.session import open_session
from deltaworks.settings import ROOT, AppSettings, Settings
from shop.part import FIRST, part_of_shop
from tests.chance import seeded
from tests.proof.walk import Walk, Walks
from tests.proof.workloads import WORKLOADS


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give the shared session, with the options that drivers have."""
    settings = Settings.load(ROOT, environment={}, data=tmp_path_factory.mktemp("spark"))
    session = open_session(name="tests", settings=settings, app=AppSettings(), brief=True)
    yield session
    session.stop()


@pytest.fixture
def shop(tmp_path: Path) -> Settings:
    """Give settings of the shop's first tables with an empty lake of this test's own."""
    return Settings.load(part_of_shop(tmp_path / "project", *FIRST), environment={}, data=tmp_path)


@pytest.fixture
def whole_shop(tmp_path: Path) -> Settings:
    """Give the shop's settings with an empty lake of this test's own."""
    return Settings.load(ROOT, environment={}, data=tmp_path)


@pytest.fixture(scope="session")
def walks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Walks:
    """Give every workload by Arrow and one of them by Spark too, run in peace, all with rows from one seed."""
    chance = seeded(of="walks")
    seed, turns = chance.randrange(2**32), chance.choice(WORKLOADS)
    made: Walks = {}
    for workload in WORKLOADS:
        for path in ("auto", "spark") if workload is turns else ("auto",):  # a commit by Spark takes a second
            folder = tmp_path_factory.mktemp(f"{workload.app}-{path}")
            made[workload.app, path] = Walk(workload=workload, path=path, seed=seed, folder=folder, spark=spark)
            found = made[workload.app, path].begin()
            assert not found, f"seed {seed}, {workload.app}, {path}"
    return made
