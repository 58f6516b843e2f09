"""What happens to rows that come after their time.

How late a row is was decided when it arrived, by the events accepted before its ingest batch, and is stored with it
(`_late_by`): the same in every replay. A row that is late by exactly `after` is not late yet.
"""

from datetime import timedelta

from deltaworks.words._word import word


@word
class Correct:
    """Late rows are used all the same: they correct the part they belong to."""

    after: timedelta


@word
class Drop:
    """Late rows are not used; they are counted, and stay in the table they come from."""

    after: timedelta


@word
class SideOutput:
    """Late rows are not used; they are set aside in `<table>__late`, with how late they are."""

    after: timedelta


Late = Correct | Drop | SideOutput


def correct(*, after: timedelta) -> Correct:
    """Use rows later than `after` too."""
    return Correct(after=after)


def drop(*, after: timedelta) -> Drop:
    """Do not use rows later than `after`."""
    return Drop(after=after)


def side_output(*, after: timedelta) -> SideOutput:
    """Set rows later than `after` aside."""
    return SideOutput(after=after)
