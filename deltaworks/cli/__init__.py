"""The command line: one module per group of commands, no Spark and no Airflow."""
