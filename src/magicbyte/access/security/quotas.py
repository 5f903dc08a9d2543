"""Client quotas: the limit of a client, its recent usage, and the throttle time.

Pure: amounts and readings of the monotonic clock in, times in ms out. Memory is bounded, however many clients there
are: the longest silent ones are forgotten first. Sources: Kafka's ClientQuotaManager, DefaultQuotaCallback,
ControllerMutationQuotaManager, ConnectionQuotas, Rate and TokenBucket of 2.8.
"""

from __future__ import annotations

import enum
import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct, field

from magicbyte.engine.cluster.quotas import NO_NAME, QuotaEntity
from magicbyte.engine.replication.throttle import Throughput

T = TypeVar("T")
Who = TypeVar("Who", bound=Hashable)

MOST_KEPT: Final = 10_000  # clients of each quota whose usage is kept
SILENT_MS: Final = 3_600_000  # after which a client's usage is forgotten
LONGEST_MS: Final = (1 << 31) - 1  # the largest throttle time of a response's int32
_MOST_NAME: Final = 200  # characters of a name, above which its hash is used


class QuotaType(enum.Enum):
    """The limited quantity, by the name of the setting."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


CONNECTION_RATE: Final = "connection_creation_rate"
"""The setting of an address."""
TYPES: Final[Mapping[str, QuotaType]] = {each.value: each for each in QuotaType}
WHOLE_QUOTAS: Final = {
    QuotaType.PRODUCE.value: (1 << 63) - 1,
    QuotaType.FETCH.value: (1 << 63) - 1,
    CONNECTION_RATE: (1 << 31) - 1,
}
"""Quotas that are whole numbers, with their maximum."""


class QuotaLimit(NamedTuple):
    """The limit of a client, and the entity for which usage is counted."""

    limit: float
    used_by: QuotaEntity


class QuotaTable:
    """All limits. `for_clients`: of clients without any other limit, `quota.producer.default` and the like."""

    def __init__(self, for_clients: Mapping[QuotaType, float]) -> None:
        self._limits: dict[QuotaType, dict[QuotaEntity, float]] = {each: {} for each in QuotaType}
        self._for_clients = dict(for_clients)
        self._by_client: OrderedDict[tuple[str, str], dict[QuotaType, QuotaLimit]] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        """Whether there is no limit of any type."""
        return not self._for_clients and not any(self._limits.values())

    def put(self, entity: QuotaEntity, limits: Mapping[QuotaType, float]) -> None:
        """Replace the limits of an entity."""
        self._by_client.clear()
        for kind, known in self._limits.items():
            if kind in limits:
                known[entity] = limits[kind]
            else:
                known.pop(entity, None)

    def limits_of(self, user: str, client_id: str) -> Mapping[QuotaType, QuotaLimit]:
        """Return the limits of a user's client, by type."""
        key = (short(user), short(client_id))
        limits = self._by_client.get(key)
        if limits is None:
            limits = {}
            for kind in QuotaType:
                if (limit := self._limit(kind, user, client_id, key)) is not None:
                    limits[kind] = limit
            if len(self._by_client) >= MOST_KEPT:
                self._by_client.popitem(last=False)
            self._by_client[key] = limits
        return limits

    def _limit(self, kind: QuotaType, user: str, client_id: str, key: tuple[str, str]) -> QuotaLimit | None:
        """Return the first match.

        A user's clients share a quota of the user, all users of a client one of the client.
        """
        known, both = self._limits[kind], QuotaEntity(*key)
        of_user, of_client = QuotaEntity(user=key[0]), QuotaEntity(client_id=key[1])
        for owners, used_by_clients, used_by_all in (
            ((user,) if user else (), both, of_user),
            ((None,), both, of_user),
            ((NO_NAME,), of_client, None),
        ):
            for owner in owners:
                if client_id and (limit := known.get(QuotaEntity(owner, client_id))) is not None:
                    return QuotaLimit(limit, used_by_clients)
                if (limit := known.get(QuotaEntity(owner, None))) is not None:
                    return QuotaLimit(limit, used_by_clients)
                if used_by_all is not None and (limit := known.get(QuotaEntity(owner))) is not None:
                    return QuotaLimit(limit, used_by_all)
        limit = self._for_clients.get(kind)
        return None if limit is None else QuotaLimit(limit, of_client)


def short(name: str) -> str:
    """Return a name, or its replacement if it is so long that many of them would fill the memory."""
    if len(name) <= _MOST_NAME:
        return name
    return f"{name[:_MOST_NAME]}#{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


class RecentClients(Generic[Who, T]):
    """Values of the last `MOST_KEPT` clients, without those silent for `SILENT_MS`."""

    def __init__(self) -> None:
        self._of: OrderedDict[Who, tuple[T, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def get(self, key: Who, now_ms: int) -> T | None:
        """Return the value of a client, or None."""
        while self._of and now_ms - next(iter(self._of.values()))[1] > SILENT_MS:
            self._of.popitem(last=False)
        entry = self._of.get(key)
        if entry is None:
            return None
        self._of[key] = (entry[0], now_ms)
        self._of.move_to_end(key)
        return entry[0]

    def put(self, key: Who, value: T, now_ms: int) -> T:
        """Set the value of a client; return it."""
        if len(self._of) >= MOST_KEPT:
            self._of.popitem(last=False)
        self._of[key] = (value, now_ms)
        return value

    def latest(self, count: int) -> Iterator[tuple[Who, T]]:
        """Yield the most recent clients, the last one first."""
        for _, (key, (value, _)) in zip(range(count), reversed(self._of.items()), strict=False):
            yield key, value


class MeteredUse(Struct):
    """The usage of one client, and its recent throttling: `waits_ms` in total, `waits` times."""

    rate: Throughput
    waits_ms: Throughput | None = None
    waits: Throughput | None = None
    limit: float = field(default=0.0)


class QuotaMeter(Generic[Who]):
    """The usage of one type by all clients, in `samples` samples of `sample_ms`.

    `longest_ms`: the maximum throttle time.
    """

    def __init__(self, samples: int, sample_ms: int, longest_ms: int = LONGEST_MS) -> None:
        self._samples, self._sample_ms, self._longest_ms = samples, sample_ms, longest_ms
        self.used: RecentClients[Who, MeteredUse] = RecentClients()

    def record(self, who: Who, amount: float, limit: float, now_ms: int) -> int:
        """Record usage; return the throttle time in ms, 0 if it is within the limit."""
        use = self.used.get(who, now_ms)
        if use is None:
            use = self.used.put(who, MeteredUse(self._throughput()), now_ms)
        use.limit = limit
        use.rate.record(amount, now_ms)
        wait_ms = min(_excess_ms(use.rate.per_second(now_ms), limit, use.rate.window_ms(now_ms)), self._longest_ms)
        if wait_ms:
            use.waits_ms, use.waits = use.waits_ms or self._throughput(), use.waits or self._throughput()
            use.waits_ms.record(wait_ms, now_ms)
            use.waits.record(1, now_ms)
        return wait_ms

    def take_back(self, who: Who, amount: float, now_ms: int) -> None:
        """Undo a record, because the response is not sent after all."""
        use = self.used.get(who, now_ms)
        if use is not None:
            use.rate.record(-amount, now_ms)

    def most_at_once(self, limit: float) -> float:
        """Return the amount that fits into the whole window."""
        return limit * max(self._samples - 1, 1) * self._sample_ms / 1000

    @staticmethod
    def average_wait_ms(use: MeteredUse, now_ms: int) -> float:
        """Return a client's average throttle time, over the times that it was throttled."""
        if use.waits_ms is None or use.waits is None or not (times := use.waits.per_second(now_ms)):
            return 0.0
        return round(use.waits_ms.per_second(now_ms) / times, 3)

    def _throughput(self) -> Throughput:
        return Throughput(self._samples, self._sample_ms, self._samples - 1)


def _excess_ms(rate: float, limit: float, window_ms: int) -> int:
    """Return the time until a rate is back at its limit, if nothing passes."""
    return _wait_ms((rate - limit) * window_ms / 1000, limit) if rate > limit else 0


def _wait_ms(amount: float, limit: float) -> int:
    """Return the time of an amount at a limit, rounded. A negative amount causes no throttling, as in Kafka."""
    if limit <= 0:
        return LONGEST_MS if limit == 0 else 0
    return int(min(amount / limit * 1000 + 0.5, LONGEST_MS))


class TokenBucket:
    """The token bucket of one client: `limit` tokens per second, at most `burst`, which is also the initial number."""

    def __init__(self) -> None:
        self._tokens, self._at_ms = 0.0, -1

    def tokens(self, limit: float, burst: float, now_ms: int) -> float:
        """Return the number of tokens; negative if they are owed."""
        if self._at_ms < 0:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + limit * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        return self._tokens

    @property
    def last(self) -> float:
        """The number of tokens at the last call."""
        return self._tokens

    def take(self, count: float) -> None:
        """Take tokens, even more than there are."""
        self._tokens -= count


class MutationMeter:
    """Partition creations and deletions of clients, in token buckets (KIP-599)."""

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._burst_s = samples * sample_ms / 1000
        self.used: RecentClients[QuotaEntity, TokenBucket] = RecentClients()

    def tokens(self, who: QuotaEntity, limit: float, now_ms: int) -> float:
        """Return how many partitions a client may still create now; negative if it is in debt."""
        return self._bucket(who, now_ms).tokens(limit, limit * self._burst_s, now_ms)

    def take(self, who: QuotaEntity, count: int, limit: float, now_ms: int) -> None:
        """Record the creation or deletion of partitions."""
        bucket = self._bucket(who, now_ms)
        bucket.tokens(limit, limit * self._burst_s, now_ms)
        bucket.take(count)

    def wait_ms(self, who: QuotaEntity, limit: float, now_ms: int) -> int:
        """Return the time until the client is out of debt."""
        tokens = self.tokens(who, limit, now_ms)
        return _wait_ms(-tokens, limit) if tokens < 0 else 0

    def _bucket(self, who: QuotaEntity, now_ms: int) -> TokenBucket:
        return self.used.get(who, now_ms) or self.used.put(who, TokenBucket(), now_ms)


class ConnectionArrival(NamedTuple):
    """The treatment of a new connection: a delay, or a refusal with a later close."""

    wait_ms: int = 0
    refused_ms: int = 0


class ConnectionRates:
    """Rates of new connections: of a broker, its listeners and the addresses of peers (KIP-612).

    `of_broker` and `of_listeners` are limits, None if there is none; `unlimited` listeners do not count for the
    broker's. `of_addresses`: the limit of each address, None that of all others.
    """

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._meter: QuotaMeter[tuple[str, str]] = QuotaMeter(samples, sample_ms, sample_ms)
        self.of_broker: float | None = None
        self.of_listeners: dict[str, float] = {}
        self.unlimited: frozenset[str] = frozenset()
        self.of_addresses: dict[str | None, float] = {}

    @property
    def is_limiting(self) -> bool:
        """Whether there is any limit."""
        return self.of_broker is not None or bool(self.of_listeners) or bool(self.of_addresses)

    def arrived(self, listener: str, address: str, now_ms: int) -> ConnectionArrival:
        """Record a new connection; return its treatment."""
        counted = list[tuple[str, str]]()
        waits_ms = [0]
        if (limit := self.of_listeners.get(listener)) is not None:
            counted.append(("listener", listener))
            waits_ms.append(self._meter.record(counted[-1], 1, limit, now_ms))
        if self.of_broker is not None and listener not in self.unlimited:
            counted.append(("broker", ""))
            waits_ms.append(self._meter.record(counted[-1], 1, self.of_broker, now_ms))
        limit = self.of_addresses.get(address, self.of_addresses.get(None))
        if limit is not None:
            counted.append(("address", address))
            if refused_ms := self._meter.record(counted[-1], 1, limit, now_ms):
                for each in counted:  # a refused connection does not count
                    self._meter.take_back(each, 1, now_ms)
                return ConnectionArrival(max(waits_ms), refused_ms)
        return ConnectionArrival(max(waits_ms))
