"""Spark behind its public names: transforms planned once and computed without jobs; sessions out of its optimiser."""
