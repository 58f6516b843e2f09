"""What is asked of the kernel about processes."""

import os
import socket

from deltaworks import processes


def test_listener_is_found_behind_descriptors_that_are_gone() -> None:
    """Listing a process's descriptors takes one, the lowest that is free, which is gone when its turn comes."""
    low = os.open(os.devnull, os.O_RDONLY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.close(low)
        assert server.fileno() > low
        assert processes.listener(server.getsockname()[1]) == os.getpid()
