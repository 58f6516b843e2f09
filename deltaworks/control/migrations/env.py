"""What Alembic runs: the revisions, on the connection and in the transaction that `upgrade()` handed in."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"], version_table=context.config.attributes["revisions"]
)
with context.begin_transaction():
    context.run_migrations()
