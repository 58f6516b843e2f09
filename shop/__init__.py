"""The example's source systems: the shop's database, a seeded simulator of its customers, and the demo's own check."""
