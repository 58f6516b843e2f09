"""What happens to rows that come after their time."""

from datetime import timedelta

from deltaworks.words._word import word


@word
class Correct:
    """Late rows are used all the same: they correct the part they belong to."""

    after: timedelta


def correct(*, after: timedelta) -> Correct:
    """Use rows later than `after` too."""
    return Correct(after=after)
