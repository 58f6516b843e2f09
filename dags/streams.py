"""stream__<app>: one DAG for each app, which keeps its Spark driver running."""

from deltaworks.settings import Settings
from deltaworks.supervise.dag_building import stream_dags

for dag in stream_dags(Settings.load()):
    globals()[dag.dag_id] = dag
