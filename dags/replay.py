"""replay__<table>: a day of a table computed again beside the stream, by hand, as a backfill or every night."""

# Airflow looks only into files in which it finds the words "airflow" and "dag".
from deltaworks.settings import Settings
from deltaworks.supervise.dag_building import replay_dags

for dag in replay_dags(Settings.load()):
    globals()[dag.dag_id] = dag
