"""Death at every named step of a micro-batch, and the checker after each: what `make proof` runs."""
