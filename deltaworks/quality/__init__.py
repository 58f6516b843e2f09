"""Suites as row rules: what each row of a stream must hold, judged as Great Expectations would, without Spark."""
