"""The line protocol of ../README.md for clients written in Python."""

import base64
import json
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = float(os.environ.get("CLIENT_SECONDS", "60"))  # to wait for a thing before it counts as not coming
SESSION_MS = max(6000, min(20_000, int(500 * PATIENCE)))  # of members: no longer than requests may take


@dataclass(slots=True)
class Entry:
    """A record: of the ledger when it goes out, of a topic when it came in."""

    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    offset: int = -1


def unb64(cell: str) -> bytes | None:
    return None if cell == "~" else base64.b64decode(cell)


def b64(cell: bytes | None) -> str | None:
    return None if cell is None else base64.b64encode(cell).decode()


def entries(path: str) -> list[Entry]:
    """Return the records of a ledger file."""
    found = []
    for line in Path(path).read_text().splitlines():
        timestamp, key, value, *rest = line.split("\t")
        headers = [((unb64(name) or b"").decode(), unb64(value)) for name, value in list(pairwise(rest))[::2]]
        found.append(Entry(int(timestamp), unb64(key), unb64(value), headers))
    return found


def until(what: str, reached: Callable[[], bool]) -> None:
    """Wait until something is so; fail when it does not come."""
    for _ in ticks():
        if reached():
            return
    raise TimeoutError(f"waited in vain for {what}")


def ticks(seconds: float = PATIENCE) -> Iterator[None]:
    """Yield every 20 ms for as long as it is worth waiting."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.02)


class Member(threading.Thread, ABC):
    """A member of a group, in a thread of its own. `partitions` and `read` are replaced, never changed."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.partitions: frozenset[int] = frozenset()
        self.read: frozenset[tuple[int, int]] = frozenset()
        self.failure: BaseException | None = None
        self.leaving = threading.Event()

    @abstractmethod
    def poll(self) -> Iterable[tuple[int, int]]:
        """Take part in the group for a moment; return partitions and offsets of the records."""

    @abstractmethod
    def close(self) -> None:
        """Commit and leave the group."""

    def run(self) -> None:
        try:
            while not self.leaving.is_set():
                self.read |= frozenset(self.poll())
            self.close()
        except BaseException as error:
            self.failure = error
            raise

    def leave(self) -> None:
        self.leaving.set()
        self.join(PATIENCE)
        self.size()

    def size(self) -> int:
        if self.failure is not None:
            raise RuntimeError(f"member failed: {self.failure!r}")
        return len(self.partitions)


def rebalance(join: Callable[[], Member], count: int) -> dict[str, Any]:
    """Let a member join a group, then another, let that one leave; read all records meanwhile."""
    one = join()
    one.start()
    until("one member", lambda: one.size() == 2)
    stages = [[sorted(one.partitions)]]
    two = join()
    two.start()
    until("two members", lambda: one.size() == 1 and two.size() == 1)
    stages.append([sorted(one.partitions), sorted(two.partitions)])
    two.leave()
    until("one member again", lambda: one.size() == 2)
    stages.append([sorted(one.partitions)])
    until("all records", lambda: len(one.read | two.read) >= count)
    one.leave()
    return {"stages": stages, "read": sorted(one.read | two.read)}


class Client(ABC):
    """A client under test: its verbs. `release` is the broker's, where it is given; `more` are settings of its own."""

    release = ""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.more: dict[str, str] = {}

    def has_release_before(self, *before: str) -> bool:
        """Whether the broker is of one of these release lines."""
        return self.release.startswith(before)

    @abstractmethod
    def produce(self, topic: str, codec: str, idempotent: bool, records: list[Entry]) -> list[int]: ...

    @abstractmethod
    def consume(self, topic: str, count: int) -> list[Entry]: ...

    @abstractmethod
    def resume(self, group: str, topic: str, first: int, count: int) -> list[list[int]]: ...

    @abstractmethod
    def group(self, group: str, topic: str, count: int) -> dict[str, Any]: ...

    @abstractmethod
    def admin(self, topic: str, name: str, value: str) -> dict[str, Any]: ...


def answer(client: Client, words: list[str]) -> dict[str, Any]:
    match words:
        case ["release", release]:
            client.release = release
            return {}
        case ["settings", path]:
            client.more = dict(line.split("=", 1) for line in Path(path).read_text().splitlines())
            return {}
        case ["produce", topic, codec, idempotent, path]:
            return {"offsets": client.produce(topic, codec, idempotent == "1", entries(path))}
        case ["consume", topic, count]:
            records = client.consume(topic, int(count))
            return {
                "records": [
                    (
                        each.offset,
                        each.timestamp,
                        b64(each.key),
                        b64(each.value),
                        [(b64(name.encode()), b64(value)) for name, value in each.headers],
                    )
                    for each in records
                ]
            }
        case ["resume", group, topic, first, count]:
            return {"read": client.resume(group, topic, int(first), int(count))}
        case ["group", group, topic, count]:
            return client.group(group, topic, int(count))
        case ["admin", topic, name, value]:
            return client.admin(topic, name, value)
    raise ValueError(words)


def serve(client: Client) -> None:
    """Answer commands until standard input ends. The error of a command is its answer, and the last."""
    sys.excepthook = report
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(client, line.rstrip("\n").split("\t"))), flush=True)


def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.__excepthook__(kind, error, trace)
    print(json.dumps({"error": repr(error)}), flush=True)
