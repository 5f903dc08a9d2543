"""The system calls of our broker while it answers a fetch, from the output of strace."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

READS, WRITES = ("read", "readv", "pread64", "preadv", "preadv2"), ("write", "writev", "sendto", "sendmsg")
COPIES = ("splice", "copy_file_range", "mmap")
TRACED = (*READS, *WRITES, *COPIES, "recvfrom", "sendfile")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+|0x[0-9a-f]+)")
_BEGUN = re.compile(r"(?P<thread>\d+) +(?P<call>\w+\(.*) <unfinished \.\.\.>")
_RESUMED = re.compile(r"(?P<thread>\d+) +<\.\.\. \w+ resumed>(?P<rest>.*)")


def strace(trace: Path) -> list[str]:
    """Return the start of a command line whose program is traced into a file; it keeps its process id."""
    return ["strace", "-D", "-f", "--seccomp-bpf", "-y", "-s", "300", "-o", str(trace), "-e", ",".join(TRACED)]


class Call(NamedTuple):
    """A call of the system that has ended. `arguments` as strace writes them, with the path of each descriptor."""

    name: str
    arguments: str
    result: int

    @property
    def descriptor(self) -> str:
        return self.arguments.partition(",")[0]


def calls(trace: str) -> Iterator[Call]:
    """Return the calls that a trace has, in the order in which they ended, also those that another thread's cut in."""
    begun: dict[str, str] = {}
    for line in trace.splitlines():
        if (found := _BEGUN.match(line)) is not None:
            begun[found["thread"]] = found["call"]
            continue
        if (found := _RESUMED.match(line)) is not None:
            line = begun.pop(found["thread"]) + found["rest"]
        if (call := _CALL.search(line)) is not None:
            yield Call(call["name"], call["arguments"], int(call["result"], 0))


def moved(trace: list[Call], topic: str, client_id: str | None = None) -> Counter[str]:
    """Return how many bytes went which way for the last fetch of a topic, or of a client that fetched it.

    That is up to the next request of that connection. Bytes sent to others meanwhile do not count, reads do.
    """
    named = client_id or topic
    asked = max(at for at, call in enumerate(trace) if call.name == "recvfrom" and named in call.arguments)
    connection = trace[asked].descriptor
    found: Counter[str] = Counter()
    for call in trace[asked + 1 :]:
        if call.name == "recvfrom" and call.descriptor == connection and call.result > 0:
            break
        of_log = f"{topic}-0/" in call.arguments and ".log>" in call.arguments
        if call.name in COPIES:
            found["otherwise"] += of_log
        elif call.name == "sendfile":
            found["sendfile"] += call.result if of_log and call.descriptor == connection else 0
        elif call.name in READS and of_log:
            found["read"] += max(call.result, 0)
        elif call.name in WRITES and call.descriptor == connection:
            found["written"] += max(call.result, 0)
    return found


def whole(trace: Path, process: int) -> str:
    """Return a trace, once strace has written the end of the process."""
    deadline = time.monotonic() + 240
    while True:
        text = trace.read_text(errors="replace")
        if re.search(rf"^{process} +\+\+\+ exited", text, re.MULTILINE):
            return text
        assert time.monotonic() < deadline, "strace has not ended"
        time.sleep(0.02)
