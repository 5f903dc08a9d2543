"""Client quotas of a broker: limits from the tree, usage of each request, and throttling.

Throttling is that of Kafka from 2.0 on (KIP-219): the response is sent immediately with the throttle time, then the
connection is muted (not read) for that time. As an earlier release, the response is delayed. Clients without a quota
cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from magicbyte.access.net.server import DelayResponse, MuteConnection
from magicbyte.access.security.quotas import (
    TYPES,
    ConnectionArrival,
    ConnectionRates,
    MutationMeter,
    QuotaLimit,
    QuotaMeter,
    QuotaTable,
    QuotaType,
)
from magicbyte.engine.cluster.changes import ConnectionRateChanged, QuotasChanged
from magicbyte.engine.cluster.quotas import QuotaEntity
from magicbyte.engine.errors import ErrorCode, RequestRefusedError
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.framing import SIZE_BYTES
from magicbyte.server.settings.settings import INT_MAX, LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from magicbyte.engine.cluster.changes import ClusterChange
    from magicbyte.engine.cluster.image import ClusterImage, Limits
    from magicbyte.engine.ports import Clock
    from magicbyte.engine.protocol import Message
    from magicbyte.engine.protocol.messages.fetch import FetchRequest, PartitionData
    from magicbyte.engine.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
    from magicbyte.engine.protocol.outcomes import Collect
    from magicbyte.server.serving.request import ClientConnection, Request
    from magicbyte.server.serving.routes import Route
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.settings.listeners import Listener
    from magicbyte.server.settings.offer import Offer


class BrokerQuotas:
    """All quotas of a broker. It subscribes to those of its cluster (`cluster_changed`).

    `is_limiting`: whether there is any quota; without one, nothing else is called. `connections`: the rates of new
    ones. `meters` and `mutations` have the usage.
    """

    def __init__(self, config: BrokerConfig, offer: Offer, clock: Clock) -> None:
        self._config, self._offer, self._clock = config, offer, clock
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

    # ---- limits

    def cluster_changed(self, _image: ClusterImage, changes: Iterable[ClusterChange]) -> None:
        """Apply changed quotas of the cluster."""
        for change in changes:
            if isinstance(change, QuotasChanged):
                self._table.put(change.entity, _limits(change.limits))
            elif isinstance(change, ConnectionRateChanged):
                if change.rate is None:
                    self.connections.of_addresses.pop(change.address, None)
                else:
                    self.connections.of_addresses[change.address] = change.rate
        self.is_limiting = not self._table.is_empty

    def settings_changed(self) -> None:
        """Apply the broker's current settings."""
        config, rates = self._config, self.connections
        limit = config.max_connection_creation_rate
        rates.of_broker = limit if limit < INT_MAX else None
        rates.of_listeners = config.connection_rates
        if len(config.listeners) > 1:
            rates.unlimited = frozenset({config.inter_broker_listener.name})

    def limits_of(self, request: Request[Any]) -> Mapping[QuotaType, QuotaLimit]:
        """Return the limits for the sender of a request."""
        return self._table.limits_of(request.connection.principal.name, request.client_id or "")

    # ---- usage

    def arrived(self, listener: Listener, address: str) -> ConnectionArrival | None:
        """Record a new connection; return its treatment, None for the normal one."""
        if not self.connections.is_limiting:
            return None
        return self.connections.arrived(listener.name, address, self._clock.monotonic_ms())

    def charge(
        self,
        route: Route,
        request: Request[Any],
        response: Message | None,
        codes: Collect | None,
        size: int,
        busy_ns: int,
    ) -> int:
        """Record the usage of a request of `size` bytes; return the client's throttle time in ms."""
        limits, now_ms, connection = self.limits_of(request), self._clock.monotonic_ms(), request.connection
        wait_ms, connection.throttled_until_ms = max(connection.throttled_until_ms - now_ms, 0), 0
        if route.key == ApiKey.PRODUCE and (limit := limits.get(QuotaType.PRODUCE)) is not None:
            wait_ms = max(wait_ms, self.meters[QuotaType.PRODUCE].record(limit.used_by, size, limit.limit, now_ms))
        limit = limits.get(QuotaType.REQUEST)
        if limit is not None and not _is_exempt(route, request, response, codes):
            percent = busy_ns * 100 / 1e9
            wait_ms = max(wait_ms, self.meters[QuotaType.REQUEST].record(limit.used_by, percent, limit.limit, now_ms))
        return wait_ms

    def pause(self, response: Message | None, wait_ms: int) -> MuteConnection | DelayResponse:
        """Set the throttle time in a response; return whether the response is delayed, as by a release that did that,
        or the connection is muted after it.
        """
        if response is not None and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = wait_ms
        # KIP-219: delaying the response, as before 2.0, makes clients time out, close the connection and repeat the
        # request, which adds load where it should shed it. So the response goes out at once with the throttle time, and
        # the server then mutes the connection: it stops reading, and TCP flow control stops clients that ignore the
        # field. Emulated releases before that still delay.
        return DelayResponse(wait_ms) if self._offer.holds_throttled else MuteConnection(wait_ms)

    def limited_fetch(self, request: Request[FetchRequest]) -> Request[FetchRequest]:
        """Return a fetch limited to what its client may get at once."""
        limit = self._of_fetch(request)
        if limit is None:
            return request
        most = min(int(max(self.meters[QuotaType.FETCH].most_at_once(limit.limit), 0)), INT_MAX)
        message = request.message
        few = replace(message, max_bytes=min(message.max_bytes, most), min_bytes=min(message.min_bytes, most))
        return replace(request, message=few)

    def is_held_back(self, request: Request[FetchRequest], answers: Iterable[tuple[str, PartitionData, int]]) -> bool:
        """Record the stored bytes that a fetch found; return whether its client gets nothing of it."""
        limit = self._of_fetch(request)
        if limit is None:
            return False
        now_ms, meter = self._clock.monotonic_ms(), self.meters[QuotaType.FETCH]
        size = _size_of(answers, request.version)
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

    def limited_share_fetch(self, request: Request[ShareFetchRequest]) -> Request[ShareFetchRequest] | None:
        """Return a ShareFetch limited to what its client may get at once; None if its quota is used up.

        Unlike a Fetch it is held back before the read: what is acquired for a response that is not sent would be
        missing until its lock ends.
        """
        limit = self.limits_of(request).get(QuotaType.FETCH) if self.is_limiting else None
        if limit is None:
            return request
        now_ms, meter = self._clock.monotonic_ms(), self.meters[QuotaType.FETCH]
        if wait_ms := meter.record(limit.used_by, 0, limit.limit, now_ms):
            request.connection.throttled_until_ms = now_ms + wait_ms
            return None
        most = min(int(max(meter.most_at_once(limit.limit), 0)), request.message.max_bytes)
        return replace(request, message=replace(request.message, max_bytes=most))

    def record_share_fetch(self, request: Request[ShareFetchRequest], response: ShareFetchResponse) -> None:
        """Record the bytes of a response. If they are more than the quota, the client waits after it."""
        limit = self.limits_of(request).get(QuotaType.FETCH) if self.is_limiting else None
        if limit is None:
            return
        now_ms, size = self._clock.monotonic_ms(), SIZE_BYTES + response.size(request.version)
        if wait_ms := self.meters[QuotaType.FETCH].record(limit.used_by, size, limit.limit, now_ms):
            request.connection.throttled_until_ms = now_ms + wait_ms

    def mutations_of(self, request: Request[Any], *, strict_from: int = INT_MAX) -> MutationQuota:
        """Return the quota for a request that creates or deletes partitions.

        It is refused from version `strict_from` on.
        """
        limit = self.limits_of(request).get(QuotaType.MUTATION) if self.is_limiting else None
        is_strict = request.version >= strict_from
        return MutationQuota(self.mutations, self._clock, request.connection, limit, is_strict=is_strict)


class MutationQuota:
    """The creations and deletions of one request. `is_limiting`: whether there is a limit."""

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
        """Record created or deleted partitions. Raises RequestRefusedError if the client must wait."""
        if self._limit is None:
            return
        meter, now_ms = self._meter, self._clock.monotonic_ms()
        limit, who = self._limit.limit, self._limit.used_by
        if self._is_strict:
            if meter.tokens(who, limit, now_ms) < 0:
                self._connection.throttled_until_ms = now_ms + meter.wait_ms(who, limit, now_ms)
                raise RequestRefusedError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"more partitions were created or deleted than {limit:g} per second: wait, then retry",
                )
            meter.take(who, partitions, limit, now_ms)
            return
        meter.take(who, partitions, limit, now_ms)
        if wait_ms := meter.wait_ms(who, limit, now_ms):
            self._connection.throttled_until_ms = now_ms + wait_ms


def _limits(values: Limits) -> dict[QuotaType, float]:
    return {TYPES[name]: limit for name, limit in values.items() if name in TYPES}


def _is_exempt(route: Route, request: Request[Any], response: Message | None, codes: Collect | None) -> bool:
    """Return whether a request's time is not counted: those of brokers unless refused, and those without a response."""
    if route.key == ApiKey.PRODUCE:
        return not request.message.acks
    if route.key == ApiKey.FETCH:
        return bool(request.message.replica_id >= 0)
    if not route.of_brokers:
        return False
    found: list[int] = []
    if response is not None and codes is not None:
        codes(response, found)
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED not in found


def _size_of(answers: Iterable[tuple[str, PartitionData, int]], version: int) -> int:
    """Return the bytes of a fetch response, with records as stored."""
    # imported when the first limited fetch is answered: these classes take a twelfth of the time that the broker's do
    from magicbyte.engine.protocol.messages.fetch import FetchableTopicResponse, FetchResponse

    topics: list[FetchableTopicResponse] = []
    stored = 0
    for topic, data, size in answers:
        if not topics or topics[-1].topic != topic:
            topics.append(FetchableTopicResponse(topic=topic))
        topics[-1].partitions.append(replace(data, records=b""))
        stored += size
    # Kafka counts the size field, and not the correlation id
    return SIZE_BYTES + FetchResponse(responses=topics).size(version) + stored
