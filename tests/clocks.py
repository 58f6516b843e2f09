"""Clocks that tests set."""


class Clock:
    """Stands still unless it is told to go on."""

    def __init__(self) -> None:
        """Begin at some time."""
        self.now = 100.0

    def __call__(self) -> float:
        """Say the time."""
        return self.now

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
