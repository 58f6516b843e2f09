"""What table.py files are written in: plain frozen values, no Spark."""

from deltaworks.words.duration import days, hours, minutes, seconds
from deltaworks.words.keeping import add, aggregate, append, greatest, history, latest, least, raw, stateful, view
from deltaworks.words.lateness import correct, drop, side_output
from deltaworks.words.outlets import changelog, events, postgres
from deltaworks.words.partitioning import day_of
from deltaworks.words.reading import debezium, ignore, json, kafka, keep, refuse
from deltaworks.words.sharing import share
from deltaworks.words.table import Column, Table

__all__ = [
    "Column",
    "Table",
    "add",
    "aggregate",
    "append",
    "changelog",
    "correct",
    "day_of",
    "days",
    "debezium",
    "drop",
    "events",
    "greatest",
    "history",
    "hours",
    "ignore",
    "json",
    "kafka",
    "keep",
    "latest",
    "least",
    "minutes",
    "postgres",
    "raw",
    "refuse",
    "seconds",
    "share",
    "side_output",
    "stateful",
    "view",
]
