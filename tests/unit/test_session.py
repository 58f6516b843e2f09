"""Bounds of an app's session, and what is told from reaching them."""

from pathlib import Path

import pyarrow as pa
import pytest

from deltaworks.engine.collect import collected
from deltaworks.engine.session import _options
from deltaworks.settings import ROOT, AppSettings, Settings
from tests.handed import Handed


class Failing(Handed):
    """A batch that cannot be collected."""

    def __init__(self, error: str) -> None:
        """Raise this."""
        self.error = error

    def toArrow(self) -> pa.Table:  # noqa: N802  # Spark's name
        """As Spark's."""
        raise RuntimeError(self.error)


@pytest.mark.parametrize(("brief", "few_rows"), [(False, False), (False, True), (True, False)])
def test_session_is_bounded_and_dies_when_its_memory_is_used_up(tmp_path: Path, brief: bool, few_rows: bool) -> None:
    """A JVM without memory goes on by half, and calls hang for ever; more than Arrow is to hold is not collected."""
    settings = Settings.load(ROOT, environment={}, data=tmp_path, arrow_bytes_max=12_345)

    options = _options(settings, AppSettings(memory="2g"), [], brief=brief, few_rows=few_rows)
    said = options["spark.driver.extraJavaOptions"].split()

    assert "-XX:+ExitOnOutOfMemoryError" in said
    one_compiler, its_room = "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"
    assert (one_compiler in said, its_room in said) == (brief or few_rows, brief or few_rows)
    assert options["spark.driver.memory"] == "2g"
    assert options["spark.driver.maxResultSize"] == "12345"


def test_what_is_too_large_to_collect_is_told_from_other_errors() -> None:
    """Only that goes to Spark; any other error is the batch's own."""
    text = "Total size of serialized results of 3 tasks (9.0 MiB) is bigger than spark.driver.maxResultSize (8.0 MiB)."

    assert collected(Failing(text)) is None  # type: ignore[arg-type]  # see Handed
    with pytest.raises(RuntimeError, match="disk"):
        collected(Failing("no space left on disk"))  # type: ignore[arg-type]  # see Handed
