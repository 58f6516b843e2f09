"""Starts the Kafka node; after a death its controller runs alone first, until it has declared the broker dead.

A broker that was killed is still the leader of its partitions in the controller's log. The next one takes that over,
and with it the transactions that were being committed, before it is registered itself. Once the registration of the
dead one runs out, nobody leads any partition, which Kafka takes for deleted: it ends these transactions without their
markers, and who reads only what is committed waits for ever. A broker that starts without partitions is given them when
it can serve them. Measured in docs/decisions/0040-the-dead-broker-is-declared-dead-first.md.

Started by `python -m deltaworks.local.broker`; the settings come from the environment.
"""

import os
import subprocess
import sys
from threading import Timer

from deltaworks.local.kafka import controller_listener, node_command, node_folder
from deltaworks.settings import Settings

_SESSION_SECONDS = 0.5
_LEADS, _DECLARED = b"Performing controller activation", b"because its session has timed out"
"""What the controller says when it counts from, and when it has declared a broker dead."""
_SECONDS_AFTER_LEADS = 6 * _SESSION_SECONDS  # it was declared dead before, and died again
_SECONDS_MAX = 60.0  # a busy machine; the broker is refused then while the dead one is registered, and starts again


def main() -> None:
    """Become the node."""
    settings = Settings.load()
    if _died(settings):
        _declare_dead(settings)
    command = node_command(settings, {})
    os.execv(command[0], command)  # noqa: S606  # the supervisor watches this process


def _died(settings: Settings) -> bool:
    """Whether there was a broker that did not end well: one that does leaves a file, which the next one takes away."""
    folder = node_folder(settings)
    return (folder / "__cluster_metadata-0").is_dir() and not (folder / ".kafka_cleanshutdown").exists()


def _declare_dead(settings: Settings) -> None:
    alone = {
        "process.roles": "controller",
        "listeners": controller_listener(settings),
        "advertised.listeners": controller_listener(settings),
        "broker.session.timeout.ms": f"{_SESSION_SECONDS * 1000:.0f}",
        "broker.heartbeat.interval.ms": f"{_SESSION_SECONDS * 200:.0f}",
    }
    with subprocess.Popen(node_command(settings, alone), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as node:
        assert node.stdout is not None  # for mypy: it was asked for
        timers = [Timer(_SECONDS_MAX, node.terminate)]
        timers[0].start()
        for line in node.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            if _LEADS in line:
                timers.append(Timer(_SECONDS_AFTER_LEADS, node.terminate))
                timers[-1].start()
            elif _DECLARED in line:
                node.terminate()
        for timer in timers:
            timer.cancel()


if __name__ == "__main__":
    main()
