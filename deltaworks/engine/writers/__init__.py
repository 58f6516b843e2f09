"""One file per way of keeping a table: what new rows do to the rows that are there."""
