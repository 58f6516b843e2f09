"""The checker: what a lake promises (I1 to I7), looked for in its rows and commits. An empty list: nothing was found.

I1 conservation, I2 uniqueness, I3 a table equals its source, I4 a sum that stays, I5 a replay gives the same rows,
I6 nothing is left to take, I7 what was not taken is counted once and can be listed. Only I5 needs Spark.
"""

from deltaworks.engine.checker.conservation import conservation
from deltaworks.engine.checker.constant import constant
from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.checker.honesty import honesty
from deltaworks.engine.checker.picture import Picture
from deltaworks.engine.checker.progress import progress
from deltaworks.engine.checker.uniqueness import uniqueness

__all__ = ["Finding", "Picture", "check", "constant"]


def check(picture: Picture, *, at_rest: bool) -> list[Finding]:
    """Whatever can be told from the lake alone; `at_rest`: its drivers are stopped, so nothing may be left to take."""
    found = [finding for look in (conservation, uniqueness, honesty) for finding in look(picture)]
    return [*found, *(progress(picture) if at_rest else ())]
