"""maintain__<app>: every ten minutes the small files of each app's tables become large ones."""

from deltaworks.settings import Settings
from deltaworks.supervise.dag_building import maintenance_dags

for dag in maintenance_dags(Settings.load()):
    globals()[dag.dag_id] = dag
