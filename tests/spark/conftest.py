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
from tests.proof.workloads import WORKLOADS, Workload


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
    """Give every workload by Arrow, by app, run in peace, all with rows from one seed."""
    seed = seeded(of="walks").randrange(2**32)
    return {one.app: _walked(one, "auto", seed, spark, tmp_path_factory) for one in WORKLOADS}


@pytest.fixture(scope="session")
def walk_by_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """Give one workload, drawn, by Spark, with the same rows as in `walks`; each write by Spark takes a second."""
    seed = seeded(of="walks").randrange(2**32)
    return _walked(seeded(of="walk by Spark").choice(WORKLOADS), "spark", seed, spark, tmp_path_factory)


def _walked(workload: Workload, path: str, seed: int, spark: SparkSession, folders: pytest.TempPathFactory) -> Walk:
    folder = folders.mktemp(f"{workload.app}-{path}")
    walk = Walk(workload=workload, path=path, seed=seed, folder=folder, spark=spark)
    found = walk.begin()
    assert not found, f"seed {seed}, {workload.app}, {path}"
    return walk
