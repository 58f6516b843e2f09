"""A share of rows, and of how many at least."""

from deltaworks.words._word import word


@word
class Share:
    """A part of a number of rows; fewer rows than `of` say nothing."""

    share: float
    of: int


def share(part: float, *, of: int) -> Share:
    """A share between 0 and 1, of so many rows at least: `share(0.5, of=1_000)`."""
    return Share(share=part, of=of)
