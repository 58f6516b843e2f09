"""health__<app>: red while an app is not well, green again by itself."""

# Airflow looks only into files in which it finds the words "airflow" and "dag".
from deltaworks.settings import Settings
from deltaworks.supervise.dag_building import health_dags

for dag in health_dags(Settings.load()):
    globals()[dag.dag_id] = dag
