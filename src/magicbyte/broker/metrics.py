"""Plain counters: what a migration is steered by. Who shows them, and in which form, is not decided here.

They are changed on the event loop alone, with some 2 µs of work for a request.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from operator import sub
from typing import Any, Final, NamedTuple

from magicbyte.records.encode import Format

now_ns = time.perf_counter_ns

MOST_CLIENTS: Final = 1000
"""Names of clients that are told apart: whoever makes up a new one for each connection does not fill the memory."""
MOST_ASKINGS: Final = 4000
"""Counters of clients' requests by version. Further clients are counted together, as `OTHERS`, still by version."""
_STEPS_PER_DECADE: Final = 12
BOUNDS_NS: Final = tuple(round(10 ** (4 + step / _STEPS_PER_DECADE)) for step in range(7 * _STEPS_PER_DECADE + 1))
"""Upper ends of what times are sorted into: from 10 µs to 100 s, each 21 % above the one before."""
MOST_NEW: Final = 1024
"""Requests, and error codes, that are noted before they are counted: many at a time, which is cheaper."""


class ClientSoftware(NamedTuple):
    """Who asks: the client id of its requests, and what its library says of itself; "" where it does not."""

    id: str = ""
    software: str = ""
    version: str = ""


UNNAMED: Final = ClientSoftware()
OTHERS: Final = ClientSoftware("(others)")


class Asking(NamedTuple):
    """Requests of a client at an address, to one version of the API with this key."""

    client: ClientSoftware
    address: str
    api_key: int
    version: int


@dataclass(slots=True)
class Asked:
    """How many requests there were, and when the last was answered, by `now_ns`."""

    count: int = 0
    last_ns: int = 0


class Conversion(NamedTuple):
    """What became of sets: the formats before and behind, and the version of the request. Equal: they stayed closed."""

    source: Format
    target: Format
    version: int
    client: ClientSoftware = UNNAMED


@dataclass(slots=True)
class Moved:
    """Bytes as they came, sets (of a fetch that converts nothing: slices, not looked into), records, and time in ns.

    `records`: 0 where nobody looked into a set.
    """

    bytes: int = 0
    sets: int = 0
    time_ns: int = 0
    records: int = 0


@dataclass(slots=True)
class TopicMetrics:
    """Counters of one topic. `recompressions_avoided`: compressed sets that were stored with the bytes that came.

    `produce_requests` and `fetch_requests` count partitions that were named in one. `fetches_failed`: those that were
    answered with an error.
    """

    produced: dict[Conversion, Moved] = field(default_factory=dict)
    fetched: dict[Conversion, Moved] = field(default_factory=dict)
    recompressions_avoided: int = 0
    recompressions_done: int = 0
    sets_refused: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    fetches_failed: int = 0

    def take(self, other: TopicMetrics) -> None:
        """Add all counters of another one."""
        for mine, theirs in ((self.produced, other.produced), (self.fetched, other.fetched)):
            for what, moved in theirs.items():
                count(mine, what, moved.bytes, moved.sets, moved.time_ns, moved.records)
        for name in _COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_COUNTERS: Final = [each.name for each in fields(TopicMetrics) if each.type == "int"]


class Times:
    """How long things took: how many there were, their sum, and how many were at most as long as each of the bounds."""

    __slots__ = ("_buckets", "count", "sum_ns")

    def __init__(self) -> None:
        self.count = self.sum_ns = 0
        self._buckets = [0] * (len(BOUNDS_NS) + 1)

    def add(self, times_ns: Iterable[int]) -> None:
        """Count some more."""
        found = sorted(times_ns)
        self.count += len(found)
        self.sum_ns += sum(found)
        begin = 0
        for bucket, bound in enumerate(BOUNDS_NS):
            if begin == len(found):
                return
            end = bisect_right(found, bound, begin)
            self._buckets[bucket] += end - begin
            begin = end
        self._buckets[-1] += len(found) - begin

    def quantile(self, share: float, *, none: int = 0) -> int:
        """Return the bound in ns, at most 21 % too high, that so large a share was not above; 0 where nothing was.

        `none`: so many more took no time at all, and were not counted.
        """
        wanted, seen = share * (self.count + none), none
        if wanted <= none:
            return 0
        for bound, count in zip(BOUNDS_NS, self._buckets, strict=False):
            seen += count
            if count and seen >= wanted:
                return bound
        return BOUNDS_NS[-1] if self.count else 0


@dataclass(slots=True)
class ApiMetrics:
    """Counters of one kind of requests. What came lately is only noted, in lists; `sort` counts it.

    Noted are of each request `versions`, `totals` and `waits` (ns until the answer was ready, and of that waited for
    others), and all error `codes` in answers. Counted: `requests` by version; `errors`: how often each code was in an
    answer, 0 (none) too. Times until the answer was ready: `total`; `local`, without what others were waited for;
    `waited`, that, of those that waited.
    """

    versions: list[int] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    requests: Counter[int] = field(default_factory=Counter)
    errors: Counter[int] = field(default_factory=Counter)
    total: Times = field(default_factory=Times)
    local: Times = field(default_factory=Times)
    waited: Times = field(default_factory=Times)

    def sort(self) -> None:
        """Count what came since the last time."""
        self.requests.update(self.versions)
        self.errors.update(self.codes)
        self.total.add(self.totals)
        self.local.add(map(sub, self.totals, self.waits))
        self.waited.add(filter(None, self.waits))
        for noted in (self.versions, self.codes, self.totals, self.waits):
            noted.clear()


@dataclass(slots=True)
class Metrics:
    """Counters of a broker, since it was started. `apis` goes by the key of an API; `deleted`: of topics that went.

    `syncs`: how long logs took to become durable, each time that appends or `flush.ms` waited for it. `isr_shrinks`,
    `isr_expands` and `failed_isr_updates`: changes of in-sync replicas that this broker wrote as a leader, and those
    that the tree refused, as the controller had changed the state of the partition.
    """

    topics: dict[str, TopicMetrics] = field(default_factory=dict)
    apis: defaultdict[int, ApiMetrics] = field(default_factory=lambda: defaultdict(ApiMetrics))
    deleted: TopicMetrics = field(default_factory=TopicMetrics)
    syncs: Times = field(default_factory=Times)
    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0
    asked: dict[Asking, Asked] = field(default_factory=dict)
    _clients: dict[ClientSoftware, ClientSoftware] = field(default_factory=dict)

    def of(self, topic: str) -> TopicMetrics:
        """Return the counters of a topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicMetrics()
        return found

    def forget(self, topic: str) -> None:
        """Let the counters of a deleted topic go; they stay in the sums of all."""
        found = self.topics.pop(topic, None)
        if found is not None:
            self.deleted.take(found)

    def client(self, client_id: str, software: str, version: str) -> ClientSoftware:
        """Return the name that a client is counted by."""
        wanted = ClientSoftware(client_id, software, version)
        found = self._clients.get(wanted)
        if found is None:
            if len(self._clients) >= MOST_CLIENTS:
                return OTHERS
            found = self._clients[wanted] = wanted
        return found

    def asking(self, client: ClientSoftware, address: str, api_key: int, version: int) -> Asked:
        """Return the counter of a client's requests in one version of an API."""
        wanted = Asking(client, address, api_key, version)
        if wanted not in self.asked and len(self.asked) >= MOST_ASKINGS:
            wanted = Asking(OTHERS, "", api_key, version)
        return self.asked.setdefault(wanted, Asked())


def count(
    moved: dict[Any, Moved],
    what: tuple[Format, Format, int, ClientSoftware],
    size: int,
    sets: int,
    time_ns: int,
    records: int = 0,
) -> None:
    """Add to one of a topic's tables, which go by `Conversion`. `what`: one, or its parts, which are made sooner."""
    found = moved.get(what)
    if found is None:
        found = moved[Conversion(*what)] = Moved()
    found.bytes += size
    found.sets += sets
    found.time_ns += time_ns
    found.records += records
