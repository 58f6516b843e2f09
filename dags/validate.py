"""validate__<table>: a table's suite judged by Great Expectations, each night and after a day of it closes."""

# Airflow looks only into files in which it finds the words "airflow" and "dag".
from deltaworks.settings import Settings
from deltaworks.supervise.dag_building import validate_dags

for dag in validate_dags(Settings.load()):
    globals()[dag.dag_id] = dag
