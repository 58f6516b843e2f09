"""maintain__<app>: every ten minutes the small files of each app's tables become large ones."""

# Airflow looks only into files in which it finds the words "airflow" and "dag".
from deltaworks.settings import Settings
from deltaworks.supervise.dag_building import maintenance_dags

for dag in maintenance_dags(Settings.load()):
    globals()[dag.dag_id] = dag
