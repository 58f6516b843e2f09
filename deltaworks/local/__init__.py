"""The local stack: real Postgres, Kafka, Connect and Airflow on loopback, under one small supervisor."""
