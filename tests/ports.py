"""Ports for servers that tests start as processes of their own."""

import os
import random
import socket
from typing import Final

_FIRST, _LAST = 10_000, 32_000
"""Below the range from which the system takes the ports of connections (32768 to 60999 on Linux)."""
_PICK: Final = random.Random(os.getpid())


def free_port() -> int:
    """Return a port of the loopback interface that nothing uses now, and that no connection takes by chance.

    A port that the system itself chooses (0) may be some connection's again by the time a server binds it.
    """
    while True:
        port = _PICK.randint(_FIRST, _LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
