"""The chaos kit: faults that are really done to a running local stack, each undone again, and what must hold after."""
