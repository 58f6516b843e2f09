"""The process that answers analysts: what it may reach, how it is asked, which functions a query may call."""
