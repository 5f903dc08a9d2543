"""Plain counters of a broker, used among others to decide about migration steps. They are presented elsewhere.

They are changed on the event loop only, in about 2 µs per request.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from operator import sub
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from magicbyte.engine.records.encode import Format

now_ns = time.perf_counter_ns

MOST_CLIENTS: Final = 1000
"""Client names that are distinguished: clients with a new name for each connection must not fill the memory."""
MOST_ASKINGS: Final = 4000
"""Counters of clients' requests by version. Further clients are counted together, as `OTHERS`, still by version."""
_STEPS_PER_DECADE: Final = 12
BOUNDS_NS: Final = tuple(round(10 ** (4 + step / _STEPS_PER_DECADE)) for step in range(7 * _STEPS_PER_DECADE + 1))
"""Upper bounds of the buckets for times: from 10 µs to 100 s, each 21 % above the previous one."""
MOST_NEW: Final = 1024
"""Requests, and error codes, that are collected before they are counted in bulk, which is cheaper."""


class ClientSoftware(NamedTuple):
    """A client: the client id of its requests, and the name and version of its library, "" if unknown."""

    id: str = ""
    software: str = ""
    version: str = ""


UNNAMED: Final = ClientSoftware()
OTHERS: Final = ClientSoftware("(others)")


class Asking(NamedTuple):
    """Requests of a client at an address, to one API in one version."""

    client: ClientSoftware
    address: str
    api_key: int
    version: int


class Asked(Struct):
    """The number of requests, and the time of the last response, by `now_ns`."""

    count: int = 0
    last_ns: int = 0


class Conversion(NamedTuple):
    """Formats before and after, request version and client. Equal formats: sets that stayed closed."""

    source: Format
    target: Format
    version: int
    client: ClientSoftware = UNNAMED


class Moved(Struct):
    """Received bytes, sets (for an unconverted fetch: slices, whose content is unknown), records, and time in ns.

    `records`: 0 if the sets were not decompressed.
    """

    bytes: int = 0
    sets: int = 0
    time_ns: int = 0
    records: int = 0


class TopicMetrics(Struct):
    """Counters of one topic. `recompressions_avoided`: compressed sets that were stored with their original bytes.

    `produce_requests` and `fetch_requests` count partitions in requests. `fetches_failed`: those with an error.
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
        """Add all counters of another topic."""
        for mine, theirs in ((self.produced, other.produced), (self.fetched, other.fetched)):
            for what, moved in theirs.items():
                count(mine, what, moved.bytes, moved.sets, moved.time_ns, moved.records)
        for name in _COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_COUNTERS: Final = [name for name, kind in TopicMetrics.__annotations__.items() if kind == "int"]


class Times:
    """A histogram of times: count, sum, and the number up to each bound."""

    __slots__ = ("_buckets", "count", "sum_ns")

    def __init__(self) -> None:
        self.count = self.sum_ns = 0
        self._buckets = [0] * (len(BOUNDS_NS) + 1)

    def add(self, times_ns: Iterable[int]) -> None:
        """Count times."""
        times = sorted(times_ns)
        self.count += len(times)
        self.sum_ns += sum(times)
        begin = 0
        for bucket, bound in enumerate(BOUNDS_NS):
            if begin == len(times):
                return
            end = bisect_right(times, bound, begin)
            self._buckets[bucket] += end - begin
            begin = end
        self._buckets[-1] += len(times) - begin

    def quantile(self, share: float, *, none: int = 0) -> int:
        """Return the upper bound in ns of a quantile, at most 21 % too high; 0 without samples.

        `none`: additional samples of 0 that were not counted.
        """
        wanted, seen = share * (self.count + none), none
        if wanted <= none:
            return 0
        for bound, count in zip(BOUNDS_NS, self._buckets, strict=False):
            seen += count
            if count and seen >= wanted:
                return bound
        return BOUNDS_NS[-1] if self.count else 0


class ApiMetrics(Struct):
    """Counters of one API. Recent requests are only collected, in lists; `sort` counts them.

    Collected per request: `versions`, `totals` and `waits` (ns until the response was ready, and the part spent
    waiting), and all error `codes` of responses. Counted: `requests` by version; `errors` by code, including 0 (none).
    Times until the response was ready: `total`; `local`, without waiting; `waited`, the waiting time of those that
    waited.
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
        """Count the requests collected since the last call."""
        self.requests.update(self.versions)
        self.errors.update(self.codes)
        self.total.add(self.totals)
        self.local.add(map(sub, self.totals, self.waits))
        self.waited.add(filter(None, self.waits))
        for noted in (self.versions, self.codes, self.totals, self.waits):
            noted.clear()


class Metrics(Struct):
    """Counters of a broker since its start. `apis`: by API key; `deleted`: of deleted topics.

    `syncs`: times until logs were durable, for appends or `flush.ms`. `isr_shrinks`, `isr_expands` and
    `failed_isr_updates`: ISR changes that this broker wrote as a leader, and those refused because the controller had
    changed the state. `scrubbed_bytes` and `scrub_repaired`: bytes checked, and damaged ranges repaired, since the
    start; `scrub_unrepaired`: damaged ranges that the last check left.
    """

    topics: dict[str, TopicMetrics] = field(default_factory=dict)
    apis: defaultdict[int, ApiMetrics] = field(default_factory=lambda: defaultdict(ApiMetrics))
    deleted: TopicMetrics = field(default_factory=TopicMetrics)
    syncs: Times = field(default_factory=Times)
    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0
    scrubbed_bytes: int = 0
    scrub_repaired: int = 0
    scrub_unrepaired: int = 0
    asked: dict[Asking, Asked] = field(default_factory=dict)
    _clients: dict[ClientSoftware, ClientSoftware] = field(default_factory=dict)

    def of(self, topic: str) -> TopicMetrics:
        """Return the counters of a topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicMetrics()
        return found

    def forget(self, topic: str) -> None:
        """Remove the counters of a deleted topic; they remain in the totals."""
        found = self.topics.pop(topic, None)
        if found is not None:
            self.deleted.take(found)

    def client(self, client_id: str, software: str, version: str) -> ClientSoftware:
        """Return the client software under which a client is counted."""
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
    """Add to one of a topic's tables, by `Conversion`. `what`: its fields, as a tuple is cheaper to build."""
    entry = moved.get(what)
    if entry is None:
        entry = moved[Conversion(*what)] = Moved()
    entry.bytes += size
    entry.sets += sets
    entry.time_ns += time_ns
    entry.records += records
