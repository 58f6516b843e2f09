"""Starts the Kafka node; after a death its controller runs alone first, until it has declared the broker dead.

A broker that was killed is still the leader of its partitions in the controller's log. The next one takes that over,
and with it the transactions that were being committed, before it is registered itself. Once the registration of the
dead one runs out, nobody leads any partition, which Kafka takes for deleted: it ends these transactions without their
markers, and who reads only what is committed waits for ever. A broker that starts without partitions is given them when
it can serve them. Measured in docs/decisions/0040-the-dead-broker-is-declared-dead-first.md.

Started by `python -m deltaworks.local.broker FOLDER LISTENER COMMAND...`: where the node keeps its data, where its
controller listens, and what starts it. It needs nothing else: a broker comes back whatever the project's files say.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Timer

# the controller's lines when it begins to count how long brokers are silent, and when it declares one dead
_LEADS = b"Performing controller activation"
_DECLARED = b"because its session has timed out"
_SILENT_SECONDS = 0.5
_LEADS_SECONDS = 6 * _SILENT_SECONDS  # by then nobody is left to declare dead: the last one died before it was let in
_WRITTEN_SECONDS = 0.3  # the line comes before the record is in the controller's log, 25 ms by default
_SECONDS_MAX = 60.0


def main(folder: Path, listener: str, command: list[str]) -> None:
    """Become the node; ends with a message where its controller alone has not done its work."""
    os.chdir(folder.parent)
    if _died(folder) and not _declare_dead([*command, *_alone(listener)]):
        sys.exit("the controller alone has not declared the dead broker dead: see above; it is started again")
    os.execv(command[0], command)  # noqa: S606  # the supervisor watches this process


def _died(folder: Path) -> bool:
    """Whether there was a broker that did not end well: one that does leaves a file, which the next one takes away."""
    return (folder / "__cluster_metadata-0").is_dir() and not (folder / ".kafka_cleanshutdown").exists()


def _alone(listener: str) -> list[str]:
    settings = {
        "process.roles": "controller",
        "listeners": listener,
        "advertised.listeners": listener,
        "broker.session.timeout.ms": f"{_SILENT_SECONDS * 1000:.0f}",
    }
    return [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]


def _declare_dead(command: list[str]) -> bool:
    """Run the controller until it has declared the broker dead; says whether it has, or found nobody to declare."""
    done, timers = False, list[Timer]()

    def within(seconds: float, end: Callable[[], None]) -> None:
        timers.append(Timer(seconds, end))
        timers[-1].start()

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as controller:

        def enough() -> None:
            nonlocal done
            done = True
            controller.terminate()

        within(_SECONDS_MAX, controller.kill)
        assert controller.stdout is not None  # for mypy: it was asked for
        for line in controller.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            if _LEADS in line:
                within(_LEADS_SECONDS, enough)
            elif _DECLARED in line:
                within(_WRITTEN_SECONDS, enough)
    for timer in timers:
        timer.cancel()
    return done


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
