"""Tells Airflow's processes of our timetable: the scheduler makes it again of what the DAG processor has stored."""

from airflow.plugins_manager import AirflowPlugin

from deltaworks.supervise.days import Days


class DeltaworksTimetables(AirflowPlugin):
    """What Airflow finds in this folder."""

    name = "deltaworks_timetables"
    timetables = [Days]  # noqa: RUF012  # Airflow reads it from the class, whose base declares a list
