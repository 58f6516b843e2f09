"""The tests, by what they need: unit, spark, stack, chaos; and tidy, which tests the repository."""
