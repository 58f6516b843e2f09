"""Suites judged by Great Expectations itself over a version of a table: in a process of its own, never a driver's."""
