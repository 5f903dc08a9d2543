"""The service of kafka-python's fixtures, which its source archive lacks: a process, and what it has said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

OURS = "^listening on "  # the line of our broker when it listens, in place of Kafka's lines


class ExternalService:
    """A broker that is run elsewhere, which these tests do not have."""


class SpawnedService:
    """A process."""

    def __init__(self, args: Sequence[str], env: Mapping[str, str]) -> None:
        self._command, self._environment = ["setpriv", "--pdeathsig", "KILL", "--", *args], env
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the process runs)

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdout=self._said, stderr=subprocess.STDOUT
        )

    def wait_for(self, pattern: str, timeout: float = 30) -> bool:
        """Return whether it says so in time."""
        end = time.monotonic() + timeout
        while time.monotonic() < end and self._process.poll() is None:
            if re.search(f"{pattern}|{OURS}", self._text(), re.IGNORECASE | re.MULTILINE):
                return True
            time.sleep(0.1)
        return False

    def dump_logs(self) -> None:
        sys.stdout.write(self._text())

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _text(self) -> str:
        descriptor = self._said.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")
