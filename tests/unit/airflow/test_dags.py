import shutil
import sys
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization

from deltaworks.settings import ROOT, Settings

pytestmark = pytest.mark.usefixtures("settings")
DAGS = {
    "stream__shop", "stream__web", "maintain__shop", "maintain__web", "vacuum__shop", "vacuum__web", "expire__shop",
    "expire__web", "operate__shop", "operate__web", "health__shop", "health__web",
    "daily_report",
}  # fmt: skip


def test_all_dags_are_built_and_can_be_stored() -> None:
    """No import error; what the scheduler keeps of a DAG can be made of each."""
    bag = parse()

    assert bag.import_errors == {}
    assert {name for name in bag.dags if not name.startswith(("replay__", "validate__"))} == DAGS
    for dag in bag.dags.values():
        assert DagSerialization.to_dict(dag)
        assert dag.is_paused_upon_creation is False
        assert not dag.catchup
    assert "pyspark" not in sys.modules


def test_a_stream_is_continuous_with_a_fixed_start() -> None:
    """Without a start date a continuous DAG runs once and never again."""
    bag = parse()

    for app in ("shop", "web"):
        dag = bag.dags[f"stream__{app}"]
        assert type(dag.timetable).__name__ == "ContinuousTimetable"
        assert str(dag.start_date) == "2026-01-01 00:00:00+00:00"
        assert dag.max_active_runs == 1
        assert dag.task_ids == ["supervise"]
        assert dag.dagrun_timeout is None


def test_a_stream_tells_its_tables() -> None:
    """The page of the DAG says what the app owns and how it is stopped."""
    text = parse().dags["stream__shop"].doc_md or ""

    assert "`gold.daily_orders`" in text
    assert "Orders and revenue per day" in text
    assert "deltaworks app stop shop" in text
    assert "page_views" not in text


def test_maintenance_has_a_task_for_every_table() -> None:
    """A table's folder is all it takes to have it compacted, and cleaned of old files once a day."""
    dags = parse().dags
    texts = {path: path.read_text() for path in sorted((ROOT / "tables").glob("*/*/table.py"))}
    mine = {".".join(path.parts[-3:-1]): text for path, text in texts.items() if 'app="web"' in text}
    tables = sorted(mine)
    assert "silver.page_views" in tables

    assert sorted(dags["maintain__web"].task_ids) == [f"compact.{table}" for table in tables]
    assert sorted(dags["vacuum__web"].task_ids) == [f"vacuum.{table}" for table in tables]
    kept = [table for table in tables if "keep_days=" in mine[table]]
    assert sorted(dags["expire__web"].task_ids) == [f"expire.{table}" for table in kept]


def test_a_wrong_table_is_one_import_error_and_no_app_loses_its_supervisor(settings: Settings) -> None:
    """A stream's DAG that vanished would leave its app without anybody who restarts it."""
    break_table(settings.project)

    bag = parse()

    kept = {f"{what}__{app}" for what in ("stream", "operate", "health") for app in ("shop", "web")}
    assert {*kept, "daily_report"} == set(bag.dags)
    assert {Path(file).name for file in bag.import_errors} == {"maintenance.py", "replay.py", "validate.py"}
    for error in bag.import_errors.values():
        assert "DeclarationError" in error
        assert "gold/daily_orders/table.py" in error
    assert "cannot be read now" in (bag.dags["stream__web"].doc_md or "")


@pytest.mark.parametrize("file", [path.name for path in sorted((ROOT / "dags").glob("*.py"))])
def test_airflow_looks_into_every_dag_file(file: str) -> None:
    """It skips files in which it does not find both words."""
    text = (ROOT / "dags" / file).read_text().lower()

    assert "airflow" in text
    assert "dag" in text


def parse() -> DagBag:
    """Parse dags/ as Airflow does."""
    return DagBag(dag_folder=str(ROOT / "dags"))


def break_table(project: Path) -> None:
    """Give the project a copy of the tables with a misspelt word."""
    (project / "tables").unlink()
    shutil.copytree(ROOT / "tables", project / "tables")
    table = project / "tables" / "gold" / "daily_orders" / "table.py"
    table.write_text(table.read_text().replace('owner="sales"', 'ower="sales"'))
