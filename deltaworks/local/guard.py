"""The guard: a process that ends every session of the stack when the supervisor is gone, however it went.

PR_SET_PDEATHSIG reaches only direct children, and kernel subreapers only take orphans over. The guard holds the reading
end of a pipe whose writing end only the supervisor has: the end of the pipe is the end of the supervisor.
"""

import os
import signal

from deltaworks.processes import kill_session


class Guard:
    """The supervisor's side: tells the guard process what to end."""

    def __init__(self) -> None:
        """Fork the guard process."""
        reading, writing = os.pipe()  # both are closed on exec, so no part of the stack can hold the pipe open
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(writing)
                _watch(reading)
            finally:
                os._exit(0)
        os.close(reading)
        self._writing = writing

    def add(self, session: int, folder: str) -> None:
        """Have this session ended if the supervisor dies."""
        os.write(self._writing, f"+{session} {folder}\n".encode())

    def remove(self, session: int) -> None:
        """Forget a session: it is empty, and its number may be another's soon."""
        os.write(self._writing, f"-{session}\n".encode())

    def close(self) -> None:
        """Drop the pipe, e.g. when the guard process itself was killed and is replaced."""
        os.close(self._writing)


def _watch(reading: int) -> None:
    os.setsid()  # away from the terminal and from any signal to the supervisor's group
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sessions: dict[int, str] = {}
    with os.fdopen(reading) as lines:
        for line in lines:
            if line.startswith("+"):
                number, _, folder = line[1:].strip().partition(" ")
                sessions[int(number)] = folder
            else:
                sessions.pop(int(line[1:]), None)
    for session, folder in sessions.items():
        kill_session(session, folder)
