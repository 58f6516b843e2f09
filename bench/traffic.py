"""Traffic: page views sent on a schedule of their own, whether or not anybody keeps up (an open loop)."""

import json
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from random import Random

from shop.page_views import SECOND, Faults, page_views
from shop.topic import PageViewTopic

PROBES_PER_SECOND = 5.0
PROBE = "/probe/"
"""A probe is a view of a page that nobody else looks at: its row in gold appears when that very view has arrived."""
Minute = tuple[str, str]
"""Page, and minute as in 2026-11-21T10:00: a key of the gold table."""


class Traffic:
    """Sends views of some hundred visitors, each at its time, and keeps count of what gold must say in the end.

    The time in an event is when it was due, not when it was sent: a sender that stalls hides no latency.
    """

    def __init__(self, *, rate: float, seed: int) -> None:
        """Plan `rate` views per second; nothing is sent before `run`."""
        self.rate, self.seed = rate, seed
        self.counted: Counter[Minute] = Counter()
        self.due: dict[str, float] = {}
        """Each probe sent, and when it was due on the monotonic clock."""
        self.late_seconds_max = 0.0

    @property
    def sent(self) -> int:
        """Views sent so far."""
        return sum(self.counted.values())

    def run(self, bootstrap: str, stopping: threading.Event) -> None:
        """Send until stopped, then wait until the broker has everything; raises StackError when it stays away."""
        with PageViewTopic(bootstrap, stopping=stopping) as topic:
            probe_every = max(1, round(self.rate / PROBES_PER_SECOND))
            begin, origin = datetime.now(UTC), time.monotonic()
            views = page_views(
                random=Random(self.seed),
                run=f"bench{self.seed}",
                start=begin,
                rate=self.rate,
                users=200,
                products=20,
                faults=Faults(),
            )
            for number, view in enumerate(views):
                due = origin + view.due_us / SECOND
                early = due - time.monotonic()
                if early > 0.001:  # shorter than a sleep is exact
                    topic.serve()
                    stopping.wait(early)
                if stopping.is_set():
                    return
                self.late_seconds_max = max(self.late_seconds_max, -early)
                event = json.loads(view.value)
                probe = number % probe_every == 0
                if probe:
                    event["page"] = f"{PROBE}{number}"
                if not topic.send(view.key, json.dumps(event).encode() if probe else view.value):
                    return
                self.counted[event["page"], event["event_time"][:16]] += 1
                if probe:
                    self.due[event["page"]] = due
