"""For how long what is there has waited to be taken: in a topic, or in the inputs of a table."""

import time
from collections import deque
from collections.abc import Callable, Mapping

LOOKS_MAX = 256
"""So many looks at a topic are remembered; of more, every other one is forgotten."""
BROKER = "the broker's answer"
"""Stands in the place of a topic while the broker does not say what it has."""
_Ends = Mapping[str, int]


class Ages:
    """Told at each look what the topics have, what was taken of them, and since when tables are behind.

    What a topic had at an earlier look and was not taken since has waited for at least as long.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is known yet; `clock` gives seconds."""
        self._clock = clock
        self._looks: dict[str, deque[tuple[float, _Ends]]] = {}
        self._answered = clock()
        self.seconds: Mapping[str, float] = {}
        """By topic and by table, for how long something has waited, as of the last look; only where something does."""

    def note(
        self,
        *,
        ends: Mapping[str, _Ends] | None,
        taken: Mapping[str, Mapping[str, int]],
        behind: Mapping[str, float],
    ) -> None:
        """Look: by topic and partition the broker's next offset and the next one to take; by table since when.

        `ends`: None where the broker does not answer. Of a partition that is not among `taken` nothing was taken.
        `behind` is by the same clock.
        """
        now = self._clock()
        for topic, highs in (ends or {}).items():
            self._looks.setdefault(topic, deque()).append((now, highs))
        for topic, looks in self._looks.items():
            done = taken.get(topic, {})
            while looks and all(done.get(partition, -1) >= high for partition, high in looks[0][1].items()):
                looks.popleft()
            if len(looks) > LOOKS_MAX:
                self._looks[topic] = deque(look for number, look in enumerate(looks) if number % 2 == 0)
        since = {topic: looks[0][0] for topic, looks in self._looks.items() if looks}
        if ends is None:
            since[BROKER] = self._answered
        else:
            self._answered = now
        self.seconds = {name: round(now - at, 1) for name, at in {**since, **behind}.items()}
