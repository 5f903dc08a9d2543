"""The command line, ended by SIGKILL at a point that is drawn beforehand: python dying.py KIND NUMBER ARGUMENT...

KIND `files`: each file that is opened to write, each folder that is made, each rename and removal. KIND `network`:
before and after each write to a socket. With NUMBER 0 nothing is killed. A process that lives prints how many points
of both kinds it met on the last line of stderr.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from magicbyte.access.net.stream import SocketStream
from magicbyte.cli.main import main

_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Death:
    """Counts points and ends the process at one of them."""

    def __init__(self, kind: str, number: int) -> None:
        self.met = {"files": 0, "network": 0}
        self._kind, self._number = kind, number
        sys.addaudithook(self._watch)
        write_now = SocketStream.write_now

        def write(stream: SocketStream, *given: Any, **named: Any) -> Any:
            self._meet("network")
            left = write_now(stream, *given, **named)
            self._meet("network")
            return left

        SocketStream.write_now = write  # type: ignore[method-assign]

    def _watch(self, event: str, given: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(given[2], int) and given[2] & _WRITING and ".py" not in str(given[0])
        if event in _CHANGES or writes:
            self._meet("files")

    def _meet(self, kind: str) -> None:
        self.met[kind] += 1
        if kind == self._kind and self.met[kind] == self._number:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    death = Death(sys.argv[1], int(sys.argv[2]))
    try:
        main(sys.argv[3:], prog_name="magicbyte")
    finally:
        print(death.met["files"], death.met["network"], file=sys.stderr)
