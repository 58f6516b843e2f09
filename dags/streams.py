"""stream__<app>: one DAG for each app, which keeps its Spark driver running."""

# Airflow looks only into files in which it finds the words "airflow" and "dag".
from deltaworks.settings import Settings
from deltaworks.supervise.dag_building import stream_dags

for dag in stream_dags(Settings.load()):
    globals()[dag.dag_id] = dag
