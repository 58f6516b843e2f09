"""A streaming lakehouse that Airflow runs: tables are folders, every row is accounted for."""
