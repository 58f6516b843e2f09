"""Spark behind its public names: transforms that are planned once, and computed without a job."""
