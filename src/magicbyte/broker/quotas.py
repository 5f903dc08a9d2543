"""Quotas of clients on a broker: what the tree says of them, what each request uses, and for how long it is held back.

Throttled as Kafka does from 2.0 on (KIP-219): the answer goes out at once and names the time, then nothing is read from
its connection for that time. As a release before that, the answer waits. Who has no quota costs nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from magicbyte.broker import quota_nodes
from magicbyte.broker.quota_nodes import ADDRESSES, CONNECTION_RATE, TYPES, StoredQuotas, Values
from magicbyte.broker.settings import INT_MAX, LONG_MAX
from magicbyte.errors import ErrorCode, RequestRefusedError
from magicbyte.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from magicbyte.security.quotas import (
    ConnectionArrival,
    ConnectionRates,
    MutationMeter,
    QuotaEntity,
    QuotaLimit,
    QuotaMeter,
    QuotaTable,
    QuotaType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from magicbyte.broker.config import BrokerConfig
    from magicbyte.broker.listeners import Listener
    from magicbyte.broker.offer import Offer
    from magicbyte.broker.request import ClientConnection, Request
    from magicbyte.ports import Clock
    from magicbyte.protocol import Message
    from magicbyte.protocol.outcomes import Collect

_PRODUCE: Final = 0
_FETCH: Final = 1
_OF_BROKERS: Final = frozenset({4, 5, 6, 7, 27, 56, 67})
"""Requests that need ClusterAction: exempt, unless they are refused."""
_SIZE_BYTES: Final = 4  # in front of an answer, which Kafka counts; it does not count the correlation id


class BrokerQuotas:
    """All quotas of a broker. `quota_reading` brings those of the tree.

    `is_limiting`: whether anybody has a quota; where nobody has, nothing else is asked. `connections`: the rates of new
    ones. `meters` and `mutations` know what is used. `reading` is held from a look into the tree until what was found
    holds, so that no earlier look comes last.
    """

    def __init__(self, config: BrokerConfig, offer: Offer, clock: Clock) -> None:
        self._config, self._offer, self._clock = config, offer, clock
        self.reading = asyncio.Lock()
        samples, sample_ms = config.quota_window_num, config.quota_window_size_seconds * 1000
        defaults = {
            QuotaType.PRODUCE: config.quota_producer_default,
            QuotaType.FETCH: config.quota_consumer_default,
        }
        self._table = QuotaTable({kind: limit for kind, limit in defaults.items() if limit < LONG_MAX})
        self.meters: dict[QuotaType, QuotaMeter[QuotaEntity]] = {
            QuotaType.PRODUCE: QuotaMeter(samples, sample_ms),
            QuotaType.FETCH: QuotaMeter(samples, sample_ms),
            QuotaType.REQUEST: QuotaMeter(samples, sample_ms, sample_ms),
        }
        self.mutations = MutationMeter(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        )
        self.connections = ConnectionRates(samples, sample_ms)
        self.is_limiting = not self._table.is_empty
        self.settings_changed()

    # ---- what holds

    def replace_all(self, stored: StoredQuotas) -> None:
        """Let what the tree says hold, and nothing else but the broker's settings."""
        self._table.clear()
        for entity, values in stored.clients.items():
            self._table.put(entity, _limits(values))
        self.connections.of_addresses = stored.addresses
        self.is_limiting = not self._table.is_empty

    def replace(self, kind: str, name: str, values: Values) -> None:
        """Let what the tree says of a user, a client or an address hold."""
        if (entity := quota_nodes.entity_at(kind, name)) is not None:
            self._table.put(entity, _limits(values))
            self.is_limiting = not self._table.is_empty
        elif kind == ADDRESSES:
            address = quota_nodes.address_at(name)
            if CONNECTION_RATE in values:
                self.connections.of_addresses[address] = values[CONNECTION_RATE]
            else:
                self.connections.of_addresses.pop(address, None)

    def settings_changed(self) -> None:
        """Let the broker's settings hold as they are now."""
        config, rates = self._config, self.connections
        limit = config.max_connection_creation_rate
        rates.of_broker = limit if limit < INT_MAX else None
        rates.of_listeners = config.connection_rates
        if len(config.listeners) > 1:
            rates.unlimited = frozenset({config.inter_broker_listener.name})

    def limits_of(self, request: Request[Any]) -> Mapping[QuotaType, QuotaLimit]:
        """Return what holds for whoever sent a request."""
        return self._table.limits_of(request.connection.principal.name, request.client_id or "")

    # ---- what is used

    def arrived(self, listener: Listener, address: str) -> ConnectionArrival | None:
        """Take in that a connection was made; return what becomes of it, None for nothing special."""
        if not self.connections.is_limiting:
            return None
        return self.connections.arrived(listener.name, address, self._clock.monotonic_ms())

    def charge(
        self, key: int, request: Request[Any], response: Message | None, codes: Collect | None, size: int, busy_ns: int
    ) -> int:
        """Take in what a request of `size` bytes has used; return for how many ms its client is held back."""
        limits, now_ms, connection = self.limits_of(request), self._clock.monotonic_ms(), request.connection
        wait_ms, connection.throttled_until_ms = max(connection.throttled_until_ms - now_ms, 0), 0
        if key == _PRODUCE and (limit := limits.get(QuotaType.PRODUCE)) is not None:
            wait_ms = max(wait_ms, self.meters[QuotaType.PRODUCE].record(limit.used_by, size, limit.limit, now_ms))
        limit = limits.get(QuotaType.REQUEST)
        if limit is not None and not _is_exempt(key, request, response, codes):
            percent = busy_ns * 100 / 1e9
            wait_ms = max(wait_ms, self.meters[QuotaType.REQUEST].record(limit.used_by, percent, limit.limit, now_ms))
        return wait_ms

    async def hold(self, request: Request[Any], response: Message | None, wait_ms: int) -> int:
        """Say in a response for how long its client is held back; return for how many ms to read nothing of him.

        As a release that held answers back, do that: then 0.
        """
        if response is not None and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = wait_ms
        if not self._offer.holds_throttled:
            return wait_ms
        await asyncio.sleep(wait_ms / 1000)
        request.connection.waited_ns += wait_ms * 1_000_000
        return 0

    def limited_fetch(self, request: Request[FetchRequest]) -> Request[FetchRequest]:
        """Return a fetch that asks for no more than its client may have at once."""
        limit = self._of_fetch(request)
        if limit is None:
            return request
        most = min(int(max(self.meters[QuotaType.FETCH].most_at_once(limit.limit), 0)), INT_MAX)
        message = request.message
        few = replace(message, max_bytes=min(message.max_bytes, most), min_bytes=min(message.min_bytes, most))
        return replace(request, message=few)

    def is_held_back(self, request: Request[FetchRequest], found: Iterable[tuple[str, PartitionData, int]]) -> bool:
        """Take in what a fetch found, with the bytes as they are stored; say whether its client gets nothing of it."""
        limit = self._of_fetch(request)
        if limit is None:
            return False
        now_ms, meter = self._clock.monotonic_ms(), self.meters[QuotaType.FETCH]
        size = _size_of(found, request.version)
        wait_ms = meter.record(limit.used_by, size, limit.limit, now_ms)
        if not wait_ms:
            return False
        request.connection.throttled_until_ms = now_ms + wait_ms
        if self._offer.holds_throttled:
            return False
        meter.take_back(limit.used_by, size, now_ms)
        return True

    def _of_fetch(self, request: Request[FetchRequest]) -> QuotaLimit | None:
        if not self.is_limiting or request.message.replica_id >= 0:
            return None
        return self.limits_of(request).get(QuotaType.FETCH)

    def mutations_of(self, request: Request[Any], *, strict_from: int = INT_MAX) -> MutationQuota:
        """Return what a request that makes or deletes partitions asks. It is refused from version `strict_from` on."""
        limit = self.limits_of(request).get(QuotaType.MUTATION) if self.is_limiting else None
        is_strict = request.version >= strict_from
        return MutationQuota(self.mutations, self._clock, request.connection, limit, is_strict=is_strict)


class MutationQuota:
    """What one request may make and delete. `is_limiting`: whether there is a limit."""

    def __init__(
        self,
        meter: MutationMeter,
        clock: Clock,
        connection: ClientConnection,
        limit: QuotaLimit | None,
        *,
        is_strict: bool,
    ) -> None:
        self._meter, self._clock, self._connection = meter, clock, connection
        self._limit, self._is_strict = limit, is_strict
        self.is_limiting = limit is not None

    def take(self, partitions: int) -> None:
        """Take in that partitions are made or deleted. Raises RequestRefusedError where that has to wait."""
        if self._limit is None:
            return
        meter, now_ms = self._meter, self._clock.monotonic_ms()
        limit, who = self._limit.limit, self._limit.used_by
        if self._is_strict:
            if meter.tokens(who, limit, now_ms) < 0:
                self._connection.throttled_until_ms = now_ms + meter.wait_ms(who, limit, now_ms)
                raise RequestRefusedError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"more partitions were created or deleted than {limit:g} per second: wait, and ask again",
                )
            meter.take(who, partitions, limit, now_ms)
            return
        meter.take(who, partitions, limit, now_ms)
        if wait_ms := meter.wait_ms(who, limit, now_ms):
            self._connection.throttled_until_ms = now_ms + wait_ms


def _limits(values: Values) -> dict[QuotaType, float]:
    return {TYPES[name]: limit for name, limit in values.items() if name in TYPES}


def _is_exempt(key: int, request: Request[Any], response: Message | None, codes: Collect | None) -> bool:
    """Say whether the time of a request is not counted: brokers', and those that nobody waits for the answer of."""
    if key == _PRODUCE:
        return not request.message.acks
    if key == _FETCH:
        return bool(request.message.replica_id >= 0)
    if key not in _OF_BROKERS:
        return False
    found: list[int] = []
    if response is not None and codes is not None:
        codes(response, found)
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED not in found


def _size_of(found: Iterable[tuple[str, PartitionData, int]], version: int) -> int:
    """Return the bytes of a fetch's answer, records as they are stored."""
    topics: list[FetchableTopicResponse] = []
    stored = 0
    for topic, data, size in found:
        if not topics or topics[-1].topic != topic:
            topics.append(FetchableTopicResponse(topic=topic))
        topics[-1].partitions.append(replace(data, records=b""))
        stored += size
    return _SIZE_BYTES + FetchResponse(responses=topics).size(version) + stored
