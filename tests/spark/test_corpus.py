"""Bytes of all kinds through the flow: each is in bronze as it came, and in silver or set aside with its reason."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from deltaworks.settings import Settings
from tests.corpus import samples
from tests.flows import START, Log, Owner, Record


@pytest.mark.parametrize(("path", "batches"), [("auto", 3), ("spark", 1)])
def test_no_bytes_stop_the_app_or_are_lost(spark: SparkSession, shop: Settings, path: str, batches: int) -> None:
    """More than 400 values on both commit paths."""
    corpus = samples()
    owner, log = Owner(spark, shop, "web", path=path), Log()
    for part in range(batches):
        mine = corpus[part::batches]
        # one moment of arrival: how far ahead an event's time is must not depend on its place in the corpus
        log.send(Record(topic="page_views", value=one.value, key=b"k", at=START) for one in mine)
        for row in log.rows[log.cut :]:
            row["timestamp"] = START
        owner.take(log.batch())

    good = [one for one in corpus if one.row is not None]
    bad = [one for one in corpus if one.row is None]
    aside = owner.rows("silver.page_views__quarantine")
    silver = owner.flow.inputs["silver.page_views"].table
    columns = [column.name for column in owner.catalog["silver.page_views"].columns]
    views = {row["event_id"]: row for row in silver.read(columns).to_pylist()}
    assert len(corpus) >= 400
    assert Counter(row["value"] and bytes(row["value"]) for row in owner.rows("bronze.web_events")) == Counter(
        one.value for one in corpus
    )
    assert Counter((row["value"] and bytes(row["value"]), row["reason"]) for row in aside) == Counter(
        (one.value, one.reason) for one in bad
    )
    assert views == {str(one.row["event_id"]): {**one.row, "arrived_at": START} for one in good if one.row is not None}
    assert owner.verdicts() == {"ok"}
