"""Processes that outlive the command that starts them, identified so that no other process is ever signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_POLL_S: Final = 0.05
_ENDED: Final = frozenset("ZX")  # states of a process that its parent has not reaped yet

_children: list[subprocess.Popen[bytes]] = []  # started by this process


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process. `birth` distinguishes it from others of the same id: its start time, and the machine's."""

    pid: int
    birth: str

    @property
    def is_alive(self) -> bool:
        """Whether the process is running. Another one with the same id does not count."""
        for child in _children:
            child.poll()
        return _birth(self.pid) == self.birth

    def send(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        except (AttributeError, OSError):  # without pidfd the id may be reused between the check and the signal
            if self.is_alive:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, number)
            return
        try:
            if self.is_alive:  # the descriptor refers to this process even if its id is reused
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)

    def wait(self, seconds: float) -> bool:
        """Wait until the process has ended; return whether it has."""
        end = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
        return True


def spawn(command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None) -> ProcessId:
    """Start a process in its own session, with its output appended to a file."""
    with output.open("ab") as file:
        process = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, env=environment
        )
    _children.append(process)
    return ProcessId(process.pid, _birth(process.pid) or "")


def _birth(pid: int) -> str | None:
    """Return the birth of a running process, None if there is none."""
    if not _BOOT_ID.exists():
        return _birth_by_ps(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in _ENDED else f"{_BOOT_ID.read_text().strip()} {fields[19]}"


def _birth_by_ps(pid: int) -> str | None:
    """Return the birth without /proc, to the second."""
    done = subprocess.run(
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, birth = done.stdout.strip().partition(" ")
    return birth.strip() if birth and state[0] not in _ENDED else None
