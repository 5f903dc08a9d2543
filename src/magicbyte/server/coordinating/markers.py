"""Write transaction markers into partitions: those that this broker leads, and those of other brokers.

Source: Kafka's TransactionMarkerChannelManager and KafkaApis.

Invariants:
1. Each marker that is to be sent is reported once to `marked`: when its leader has answered, was not reached, or is not
   needed because the partition is deleted. The coordinator sends it again unless it was written.
2. A marker waits here while its partition has no leader. One of an ended term (`is_void`) is dropped, unreported: the
   next coordinator sends it.
3. A leader is the one of the latest image of the cluster. A wrong one answers with its error: the marker is sent again.
4. Of a broker's markers one request is on its way (`stores/outgoing.py`). Markers of one transaction may arrive in any
   order, and twice; leaders refuse those of an earlier coordinator by its epoch.
5. A marker of a partition of the offsets topic is appended by the group coordinator of the partition, with the offsets
   of its transaction (`end_of_offsets`). So it counts for groups in the order of their log.
6. A bug in one marker costs no other one. It is logged, and its marker is sent again.

A crash loses what waits here: transactions without their end are loaded as prepared, and all markers are sent again.
`test_transactions.py`, `test_transaction_stores.py` and `test_transaction_moves.py` have these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.engine.coordination.effects import Marker, Producer
from magicbyte.engine.errors import ErrorCode, MagicbyteError, code_of
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.server.coordinating.coordinating import has_partition
from magicbyte.server.coordinating.coordinator_log import marker_batch
from magicbyte.server.partitions.appends import Acknowledgement, Appended, NewSet
from magicbyte.server.serving.turns import Turns
from magicbyte.server.stores.outgoing import ItemsInOrder, Outgoing
from magicbyte.server.stores.peers import PeerLink, Peers

if TYPE_CHECKING:
    from magicbyte.engine.ports import Clock
    from magicbyte.engine.protocol import Message
    from magicbyte.engine.transactions.effects import SendMarkers
    from magicbyte.server.partitions.appends import Appends
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.topics import Topics

log = logger(__name__)

_PAUSE_S: Final = 0.1  # before a retry or another look-up of the leader
_TIMEOUT_MS: Final = 30_000  # for another broker's response, and for in-sync replicas
MOST_PARTITIONS: Final = 1000  # partitions per request to another broker, and markers written together
_STEPS: Final = 10  # for the look-up of a partition, and the append


class _Entry(NamedTuple):
    """A marker for one partition."""

    sent: SendMarkers
    place: TopicPartition


class MarkerWriter(NamedTuple):
    """Write markers into partitions of this broker.

    `end_of_offsets` appends one to a partition of the offsets topic, and applies the offsets of its transaction.
    """

    clock: Clock
    topics: Topics
    replicas: Replicas
    appends: Appends
    end_of_offsets: Callable[[int, Marker], asyncio.Future[ErrorCode]]


async def write_markers(
    writer: MarkerWriter, wanted: Sequence[tuple[TopicPartition, Marker]], turns: Turns
) -> list[ErrorCode]:
    """Write markers into partitions that this broker leads, with acks=all; return the result of each."""
    codes = list[ErrorCode]()
    for at in range(0, len(wanted), MOST_PARTITIONS):
        codes += await _write_together(writer, wanted[at : at + MOST_PARTITIONS], turns)
    return codes


async def _write_together(
    writer: MarkerWriter, wanted: Sequence[tuple[TopicPartition, Marker]], turns: Turns
) -> list[ErrorCode]:
    codes = [ErrorCode.NONE] * len(wanted)
    encoded, last, now_ms = b"", None, writer.clock.now_ms()
    sets, of_groups = dict[int, tuple[NewSet, int]](), dict[int, asyncio.Future[ErrorCode]]()
    for at, (partition_name, marker) in enumerate(wanted):
        if turns.is_due(_STEPS):
            await turns.give()
        try:
            partition = await writer.replicas.opened(*partition_name)
            if partition_name.topic == OFFSETS_TOPIC:
                of_groups[at] = writer.end_of_offsets(partition_name.partition, marker)
                continue
            config = writer.topics.known(partition_name.topic).config
            least = partition.least_in_sync(config.min_insync_replicas)
            if marker is not last:  # usually all are of one transaction
                encoded, last = marker_batch(marker, now_ms), marker
            data = memoryview(bytearray(encoded))
            sets[at] = NewSet(partition, data, config.append, is_ours=True), least
        except MagicbyteError as error:
            codes[at] = error.code
    waits = dict[int, Acknowledgement]()
    outcomes = await writer.appends.append_all([new for new, _ in sets.values()])
    for (at, (new, least)), outcome in zip(sets.items(), outcomes, strict=True):
        if isinstance(outcome, Appended):
            waits[at] = Acknowledgement(new.partition, outcome, least)
        elif isinstance(outcome, MagicbyteError):
            codes[at] = outcome.code
        else:
            raise outcome
    for at, code in zip(waits, await writer.appends.replicated(list(waits.values()), _TIMEOUT_MS), strict=True):
        codes[at] = code
    for at, told in of_groups.items():
        codes[at] = await told
    return codes


class MarkerSender:
    """Have markers written by the leaders of their partitions, and report each outcome to `marked`.

    `is_void`: the outcome no longer
    matters, because another coordinator sends the markers.
    """

    def __init__(
        self,
        runtime: Runtime,
        topics: Topics,
        writer: MarkerWriter,
        peers: Peers,
        marked: Callable[[SendMarkers, TopicPartition, ErrorCode], None],
        is_void: Callable[[SendMarkers], bool],
    ) -> None:
        self._runtime, self._topics, self._writer, self._peers = runtime, topics, writer, peers
        self._marked, self._is_void = marked, is_void
        self._outgoing = Outgoing[ItemsInOrder[_Entry], _Entry](
            runtime,
            ItemsInOrder,
            lambda leader: PeerLink(runtime, peers, leader, timeout_ms=_TIMEOUT_MS),
            self._deliver,
            self._lost,
            most=MOST_PARTITIONS,
        )

    def send(self, sent: SendMarkers) -> None:
        """Send markers; those that were refused before after a pause."""
        entries = [_Entry(sent, place) for place in sent.partitions]
        if sent.again:
            self._runtime.spawn(self._route(entries, _PAUSE_S))
            return
        unrouted = list[_Entry]()
        for entry in entries:
            try:
                leader = self._known_leader(entry.place)
            except Exception:
                log.exception("%s: who leads it", entry.place)
                leader = NO_BROKER
            if leader == NO_BROKER:
                unrouted.append(entry)
            else:
                self._outgoing.to(leader).put(entry)
        if unrouted:
            self._runtime.spawn(self._route(unrouted, 0))

    async def _route(self, entries: list[_Entry], pause_s: float) -> None:
        """Route markers to the queues of the leaders; those without one wait."""
        while entries:
            if pause_s:
                await asyncio.sleep(pause_s)
            pause_s, parked = _PAUSE_S, list[_Entry]()
            for entry in entries:
                if self._is_void(entry.sent):
                    continue
                leader = await self._leader_or_nobody(entry.place)
                if leader is None:
                    self._tell(entry, ErrorCode.NONE)
                elif leader == NO_BROKER:
                    parked.append(entry)
                else:
                    self._outgoing.to(leader).put(entry)
            entries = parked

    async def _leader_or_nobody(self, place: TopicPartition) -> int | None:
        """Return the leader as `_leader` does; NO_BROKER after a bug."""
        try:
            return await self._leader(place)
        except Exception:
            log.exception("%s: who leads it", place)
            return NO_BROKER

    async def _leader(self, partition: TopicPartition) -> int | None:
        """Return the leader of a partition, NO_BROKER while unknown; None for a deleted partition."""
        store, leader = self._peers.store, self._known_leader(partition)
        if leader != NO_BROKER:
            return leader
        if partition.topic in store.image.deletions:
            return None
        try:  # the controller may not have announced it yet
            known = store.image.partition(partition) or await store.stored_partition(partition)
        except MagicbyteError as error:
            self._runtime.complaints.line(
                log, partition.topic, "markers", "%s: whether it exists: %s", partition, error
            )
            return NO_BROKER
        return None if known is None else NO_BROKER

    def _known_leader(self, partition: TopicPartition) -> int:
        """Return the leader of a known partition by the image of the cluster, else NO_BROKER."""
        return self._peers.view.leader(partition) if has_partition(self._topics, *partition) else NO_BROKER

    async def _deliver(self, leader: int, link: PeerLink, entries: list[_Entry]) -> None:
        """Let a broker write markers, and report the result of each."""
        entries = [each for each in entries if not self._is_void(each.sent)]
        if not entries:
            return
        wanted = list[tuple[TopicPartition, Marker]]()
        for at, (sent, place) in enumerate(entries):
            is_next = at > 0 and sent is entries[at - 1].sent  # of the same transaction, as usual
            wanted.append((place, wanted[-1][1] if is_next else _marker(sent)))
        try:
            if leader == self._runtime.node_id:
                codes = await write_markers(self._writer, wanted, Turns())
            else:
                codes = _codes_in(await link.send(_request(wanted)), wanted)
        except MagicbyteError as error:
            self._complain(link.name, error)
            codes = [ErrorCode.NETWORK_EXCEPTION] * len(entries)
        for entry, code in zip(entries, codes, strict=True):
            self._tell(entry, code)

    def _lost(self, entries: list[_Entry], error: Exception | None) -> None:
        """Send markers affected by a bug again. When the broker stops, the next coordinator sends them."""
        if error is not None:
            self._complain("markers", repr(error))
            for entry in entries:
                self._tell(entry, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _complain(self, where: str, why: object) -> None:
        self._runtime.complaints.line(log, where, "markers", "markers are sent again: %s", why)

    def _tell(self, entry: _Entry, code: ErrorCode) -> None:
        """Report the outcome of a marker. A bug in that affects no other marker."""
        try:
            self._marked(entry.sent, entry.place, code)
        except Exception:
            log.exception("%s: after a marker of %s", entry.place, entry.sent.transactional_id)


def _request(wanted: Sequence[tuple[TopicPartition, Marker]]) -> WriteTxnMarkersRequest:
    markers = dict[Marker, dict[str, list[int]]]()
    for place, marker in wanted:
        markers.setdefault(marker, {}).setdefault(place.topic, []).append(place.partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer.producer_id,
                producer_epoch=marker.producer.epoch,
                transaction_result=marker.commits,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=tuple(ids)) for name, ids in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
            for marker, topics in markers.items()
        ]
    )


def _codes_in(response: Message, wanted: Sequence[tuple[TopicPartition, Marker]]) -> list[ErrorCode]:
    """Return another broker's result for each marker."""
    assert isinstance(response, WriteTxnMarkersResponse), "the generated class"
    codes = {
        (each.producer_id, topic.name, one.partition_index): one.error_code
        for each in response.markers
        for topic in each.topics
        for one in topic.partitions
    }
    return [code_of(codes.get((marker.producer.producer_id, *place))) for place, marker in wanted]


def _marker(sent: SendMarkers) -> Marker:
    return Marker(Producer(sent.producer_id, sent.producer_epoch), sent.coordinator_epoch, sent.commits)
