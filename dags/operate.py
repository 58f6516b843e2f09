"""operate__<app>: a form for what a person may have done to an app and its tables, under Airflow's permissions."""

# Airflow looks only into files in which it finds the words "airflow" and "dag".
from deltaworks.settings import Settings
from deltaworks.supervise.dag_building import operate_dags

for dag in operate_dags(Settings.load()):
    globals()[dag.dag_id] = dag
