"""Airflow's side: the operator and trigger that keep an app running, and how its driver is launched."""
