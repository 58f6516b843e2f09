"""Bronze: what is taken of what Kafka hands over, whoever numbers the batches."""

from pathlib import Path

from deltaworks.settings import ROOT, Settings
from tests.arrow_flow import ArrowOwner
from tests.shop_rows import view


def test_batch_that_comes_again_larger_brings_what_is_new(tmp_path: Path) -> None:
    """A batch is planned anew after a restart and may hold more: rows are known by their offset, not by their batch."""
    web = ArrowOwner(Settings.load(ROOT, environment={}, data=tmp_path), "web")
    web.log.send([view(1), view(2)])
    web.bronze()

    web.log.cut = 0
    web.log.send([view(3)])
    web.bronze()
    web.silver()

    assert sorted(web.flow.inputs["bronze.web_events"].table.read(["offset"])["offset"].to_pylist()) == [0, 1, 2]
    assert sorted(web.flow.inputs["silver.page_views"].table.read()["event_id"].to_pylist()) == ["e1", "e2", "e3"]
