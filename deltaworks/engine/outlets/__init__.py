"""Copies of tables beside the lake, kept up to date by their owner: in the serving database, in topics."""
