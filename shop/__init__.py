"""The example's systems: the shop's database, a seeded simulator, who tells customers, and the demo's own check."""
