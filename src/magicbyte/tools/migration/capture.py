"""Find which client sent which requests to brokers, in packet captures (pcap and pcapng).

The library dpkt reads the files. A capture may begin in the middle of a connection, have lost, reordered or duplicated
packets, and hold only the first bytes of each packet (`tcpdump -s`). Memory is bounded for any content.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import pairwise
from typing import BinaryIO, Final, NamedTuple

from magicbyte.engine.errors import InvalidRequestError
from magicbyte.engine.extras import require
from magicbyte.engine.protocol.framing import LARGEST_FRAME
from magicbyte.tools.migration.request_stream import RequestStream
from magicbyte.tools.migration.sightings import SeenClient, Sightings

MOST_CONNECTIONS: Final = 20_000
"""Connections followed at a time. Beyond it, the least recently active one is dropped."""
MOST_KEPT_BYTES: Final = 64 << 20
"""Of all connections: segments received early, and incomplete requests."""
MOST_AHEAD: Final = 128
"""Segments of a connection that may wait for an earlier one. Beyond it, the earlier one counts as not captured."""
MOST_AHEAD_BYTES: Final = 1 << 20
MOST_PACKET_BYTES: Final = 16 << 20
"""Limit of a packet, and of any other block of a pcapng file."""
MOST_STARTS: Final = 64
"""Frames of a direction whose first numbers are kept, to tell its requests from its responses."""
_LEARNT_BYTES: Final = 200
"""Memory of such a number, or of a kind of requests."""
_START: Final = struct.Struct(">iii")
_FAR: Final = 1 << 24
"""A segment this far from the expected one belongs to a later connection with the same ports."""
_SEQUENCE: Final = 1 << 32
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_TCP: Final = 6
_IPV4, _IPV6 = 0x0800, 0x86DD
_VLANS: Final = frozenset({0x8100, 0x88A8, 0x9100})
_YEAR_9999: Final = 253_370_764_800

_LINKS: Final = {  # link type: position of the EtherType or None, size of the header
    0: (None, 4),  # BSD loopback
    1: (12, 14),  # Ethernet
    12: (None, 0),  # raw IP on some systems
    14: (None, 0),
    101: (None, 0),  # raw IP
    108: (None, 4),  # OpenBSD loopback
    113: (14, 16),  # Linux cooked
    228: (None, 0),  # raw IPv4
    229: (None, 0),  # raw IPv6
    276: (0, 20),  # Linux cooked, version 2
}


@dataclass(slots=True)
class CaptureSummary:
    """The summary of a capture. `encrypted`: TLS connections. `is_cut_off`: the file ends within a packet.

    `undecided`: connections with a request of which too little was captured to be sure of it.
    """

    packets: int = 0
    requests: int = 0
    encrypted: int = 0
    undecided: int = 0
    is_cut_off: bool = False
    link_type: int = 1

    @property
    def note(self) -> str | None:
        """A note on missing or unreadable content, None if there is none."""
        notes = []
        if self.link_type not in _LINKS:
            return f"packets of link type {self.link_type} are not read: capture on an interface with Ethernet or IP"
        if not self.requests:
            notes.append("no Kafka requests in it (capture the brokers' port, with tcpdump -s 0)")
        if self.encrypted:
            many = "connection is" if self.encrypted == 1 else "connections are"
            notes.append(f"{self.encrypted} {many} encrypted, their clients are unknown")
        if self.undecided:
            many = "connection" if self.undecided == 1 else "connections"
            notes.append(f"of {self.undecided} {many} too little was captured to count their requests")
        if self.is_cut_off:
            notes.append("the file ends, or is damaged, in the middle of a packet")
        return "; ".join(notes) or None


End = tuple[bytes, int]
"""An address and a port."""


class TcpSegment(NamedTuple):
    """A TCP segment. `missing`: bytes at its end that were sent but not captured."""

    source: End
    target: End
    sequence: int
    flags: int
    data: bytes
    missing: int


def read_capture(file: BinaryIO, into: Sightings) -> CaptureSummary:
    """Add the requests in a packet capture. Raises InvalidRequestError for another kind of file, MissingExtraError."""
    require("capture", "reading a packet capture")
    summary, connections = CaptureSummary(), _Connections(into)
    for date_s, packet in _packets(file, summary):
        summary.packets += 1
        segment = segment_of(packet, summary.link_type)
        if segment is not None:
            connections.take(segment, date_s)
    connections.close()
    summary.requests, summary.encrypted = connections.requests, connections.encrypted
    summary.undecided = connections.undecided
    return summary


class _BoundedReads:
    """A file that refuses reads above MOST_PACKET_BYTES, because sizes in a capture are untrusted."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._first: bytes | None = None  # of the first read, which the library repeats for the other kind of file
        self._again = b""
        self.ends_within = False
        """Whether the last read was short: the file ended within it."""

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MOST_PACKET_BYTES:
            raise ValueError(f"size of a packet: expected 0 to {MOST_PACKET_BYTES}, found {size}")
        data, self._again = self._again[:size], self._again[size:]
        data += self._file.read(size - len(data))
        if self._first is None:
            self._first = data
        self.ends_within = 0 < len(data) < size
        return data

    def seek(self, position: int) -> int:
        assert position == 0, "after the first read alone, to its beginning"
        self._again = self._first or b""
        return position


def _packets(file: BinaryIO, summary: CaptureSummary) -> Iterator[tuple[float, bytes]]:
    import dpkt

    # dpkt raises these for other files and for damaged captures
    damages = (dpkt.Error, ValueError, struct.error, ZeroDivisionError, OverflowError)
    reads = _BoundedReads(file)
    try:
        reader = dpkt.pcap.UniversalReader(reads)
    except damages as error:
        raise InvalidRequestError(f"not a packet capture: expected pcap or pcapng ({error})") from error
    summary.link_type = reader.datalink() & 0xFFFF  # the upper bits are flags
    packets = iter(reader)
    while True:
        try:
            date_s, packet = next(packets)
        except StopIteration:
            return
        except damages:
            summary.is_cut_off = True
            return
        summary.is_cut_off = reads.ends_within
        yield float(date_s), packet


def segment_of(packet: bytes, link_type: int) -> TcpSegment | None:
    """Return the TCP segment in a packet, None for other packets and for fragments."""
    network = _network_of(packet, link_type)
    if network is None or len(network) < 20:
        return None
    version = network[0] >> 4
    if version == 4:
        header = (network[0] & 15) * 4
        total, fragment = struct.unpack_from(">2xH2xH", network)
        if header < 20 or network[9] != _TCP or fragment & 0x3FFF:
            return None
        source, target = network[12:16], network[16:20]
    elif version == 6:
        header = 40
        (payload,) = struct.unpack_from(">H", network, 4)
        total = header + payload if payload else 0
        if len(network) < header or network[6] != _TCP:
            return None
        source, target = network[8:24], network[24:40]
    else:
        return None
    # The size is 0 if the network card fills it in later (segmentation offload).
    sent = total - header if total else len(network) - header
    return _segment(network[header : header + sent] if sent > 0 else b"", source, target, sent)


def _segment(tcp: bytes, source: bytes, target: bytes, sent: int) -> TcpSegment | None:
    if len(tcp) < 20:
        return None
    source_port, target_port, sequence, offset_and_flags = struct.unpack_from(">HHI4xH", tcp)
    header = (offset_and_flags >> 12) * 4
    if header < 20 or sent < header:
        return None
    data = tcp[header:]
    return TcpSegment(
        (source, source_port), (target, target_port), sequence, offset_and_flags & 0xFF, data, sent - header - len(data)
    )


def _network_of(packet: bytes, link_type: int) -> bytes | None:
    found = _LINKS.get(link_type)
    if found is None:
        return None
    at, header = found
    if at is None:
        return packet[header:]
    kind = int.from_bytes(packet[at : at + 2], "big")
    for _ in range(2):  # at most one tag within another
        if kind in _VLANS:
            kind, header = int.from_bytes(packet[header + 2 : header + 4], "big"), header + 4
    return packet[header:] if kind in (_IPV4, _IPV6) else None


@dataclass(slots=True)
class _Direction:
    """The data from one side of a connection. `expected`: the sequence number of the next byte, None before the first.

    `is_client`: whether its source is known to be the client. If not, `requests` has those found so far. `starts` and
    `correlations`: of segments that may begin with a frame, its first number, and the correlation id of a request.
    """

    address: str
    stream: RequestStream
    expected: int | None = None
    is_client: bool = False
    ahead: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    ahead_bytes: int = 0
    requests: Sightings = field(default_factory=Sightings)
    starts: dict[int, None] = field(default_factory=dict)
    correlations: set[int] = field(default_factory=set)
    learnt_bytes: int = 0

    @property
    def kept_bytes(self) -> int:
        return self.ahead_bytes + self.stream.kept_bytes + self.learnt_bytes

    @property
    def counts_up(self) -> bool:
        """Whether its frames begin with ascending numbers, as responses do: requests begin with API and version."""
        starts = list(self.starts)
        return len(starts) > 1 and all(after == before + 1 for before, after in pairwise(starts))

    def learn(self, data: bytes) -> None:
        """Keep what tells requests from responses at the start of a segment."""
        if len(data) < _START.size or len(self.starts) >= MOST_STARTS:
            return
        size, first, correlation = _START.unpack_from(data)
        if 4 <= size <= LARGEST_FRAME:
            self.starts[first] = None
            self.correlations.add(correlation)
            self.learnt_bytes += _LEARNT_BYTES


@dataclass(slots=True)
class _FollowedConnection:
    """A connection. `client`: the side that opened it, None if that was not captured. `directions`: by their source."""

    ends: tuple[End, End]
    client: End | None
    directions: dict[End, _Direction] = field(default_factory=dict)

    @property
    def kept_bytes(self) -> int:
        return sum(direction.kept_bytes for direction in self.directions.values())

    def other(self, end: End) -> End:
        return self.ends[1] if end == self.ends[0] else self.ends[0]


class _Connections:
    """The connections of a capture.

    A connection whose beginning was not captured is followed in both directions. Its client is decided at its end: by
    the brokers that other connections told, by the correlation ids, which responses repeat, and last by its port.
    """

    def __init__(self, into: Sightings) -> None:
        self._into = into
        self._open: OrderedDict[tuple[End, End], _FollowedConnection] = OrderedDict()
        self._brokers: dict[End, None] = {}
        self._kept_bytes = 0
        self.requests = self.encrypted = self.undecided = 0

    def take(self, segment: TcpSegment, date_s: float) -> None:
        """Process the next segment of the capture."""
        key = _key(segment.source, segment.target)
        connection = self._open.get(key)
        if segment.flags & _SYN:
            from_broker = bool(segment.flags & _ACK)
            client, broker = (segment.target, segment.source) if from_broker else (segment.source, segment.target)
            if not from_broker or connection is None or connection.client != client:
                expected = None if from_broker else (segment.sequence + 1) % _SEQUENCE
                begun = self._begin(client, broker, client)
                begun.directions[client] = _direction(client, expected, is_whole=True, is_client=True)
            self._learn_broker(broker)
            return
        if connection is None:
            if not segment.data:
                return
            connection = self._begin(segment.source, segment.target, None)
            connection.client = self._client_of(connection)
        if connection.client not in (None, segment.source):
            return
        direction = connection.directions.get(segment.source)
        if direction is None:
            direction = _direction(segment.source, is_client=connection.client is not None)
            connection.directions[segment.source] = direction
        self._open.move_to_end(key)
        before = connection.kept_bytes
        if connection.client is None:
            direction.learn(segment.data)
        self._add(direction, segment, date_s)
        self._kept_bytes += connection.kept_bytes - before
        if segment.flags & (_FIN | _RST):
            self._end(key)
        while self._kept_bytes > MOST_KEPT_BYTES:
            self._end(next(iter(self._open)))

    def close(self) -> None:
        """End all connections, and skip the gaps in them. Those that tell their broker come first."""
        for key in sorted(self._open, key=lambda key: self._client_of(self._open[key]) is None):
            self._end(key)

    def _begin(self, end: End, other: End, client: End | None) -> _FollowedConnection:
        key = _key(end, other)
        if key in self._open:
            self._end(key)
        if len(self._open) >= MOST_CONNECTIONS:
            self._end(next(iter(self._open)))
        self._open[key] = _FollowedConnection(key, client)
        return self._open[key]

    def _learn_broker(self, broker: End) -> None:
        if len(self._brokers) < MOST_CONNECTIONS:
            self._brokers[broker] = None

    def _end(self, key: tuple[End, End]) -> None:
        connection = self._open.pop(key)
        self._kept_bytes -= connection.kept_bytes
        directions = connection.directions
        for direction in directions.values():
            self._catch_up(direction, 0.0, gives_up=True)
        self.encrypted += any(direction.stream.is_encrypted for direction in directions.values())
        client = self._client_of(connection)
        if client is None:  # last by its port: ephemeral ports of clients are often above those of servers
            client = max((end for end in directions if self._may_be_client(connection, end)), key=_port, default=None)
        else:
            self._learn_broker(connection.other(client))
        self.undecided += any(
            direction.stream.has_unconfirmed for end, direction in directions.items() if client in (None, end)
        )
        if client is not None and client in directions:
            self._into.add_all(directions[client].requests)
            self.requests += directions[client].requests.count

    def _client_of(self, connection: _FollowedConnection) -> End | None:
        """Return the client of a connection, None if nothing in the capture tells which side it is."""
        if connection.client is not None:
            return connection.client
        known = [end for end in connection.ends if end in self._brokers]
        if len(known) == 1:
            return connection.other(known[0])
        if len(connection.directions) == 2:
            (one, its), (other, others) = connection.directions.items()
            if (ahead := _answered(its, others) - _answered(others, its)) != 0:
                return one if ahead > 0 else other
        asking = [end for end in connection.directions if self._may_be_client(connection, end)]
        return asking[0] if len(asking) == 1 else None

    def _may_be_client(self, connection: _FollowedConnection, end: End) -> bool:
        direction = connection.directions[end]
        return len(direction.requests) > 0 and end not in self._brokers and not direction.counts_up

    def _add(self, direction: _Direction, segment: TcpSegment, date_s: float) -> None:
        size = len(segment.data) + segment.missing
        if not size or direction.stream.is_given_up:
            return
        if direction.expected is None:
            direction.expected = segment.sequence
        distance = (segment.sequence - direction.expected + _SEQUENCE // 2) % _SEQUENCE - _SEQUENCE // 2
        if abs(distance) > _FAR:
            direction.stream.lose()
            direction.expected, direction.ahead, direction.ahead_bytes, distance = segment.sequence, {}, 0, 0
        waiting = direction.ahead.get(segment.sequence)
        if distance + size > 0 and (waiting is None or len(waiting[0]) < len(segment.data)):
            direction.ahead[segment.sequence] = segment.data, segment.missing
            direction.ahead_bytes += len(segment.data) - (0 if waiting is None else len(waiting[0]))
        self._catch_up(direction, date_s)

    def _catch_up(self, direction: _Direction, date_s: float, *, gives_up: bool = False) -> None:
        """Feed adjacent segments to the stream. A gap is skipped when too many segments wait for its bytes."""
        while direction.ahead and direction.expected is not None:
            expected = direction.expected

            def distance(sequence: int, expected: int = expected) -> int:
                return (sequence - expected + _SEQUENCE // 2) % _SEQUENCE - _SEQUENCE // 2

            first = min(direction.ahead, key=distance)
            gap = distance(first)
            if gap > 0:
                is_full = len(direction.ahead) > MOST_AHEAD or direction.ahead_bytes > MOST_AHEAD_BYTES
                if not (is_full or gives_up):
                    return
                self._feed(direction, b"", gap, date_s)
            data, missing = direction.ahead.pop(first)
            direction.ahead_bytes -= len(data)
            known = max(-gap, 0)
            if known < len(data) + missing:
                self._feed(direction, data[known:], missing - max(known - len(data), 0), date_s)
            direction.expected = (expected + max(gap, 0) + max(len(data) + missing - known, 0)) % _SEQUENCE

    def _feed(self, direction: _Direction, data: bytes, missing: int, date_s: float) -> None:
        stream = direction.stream
        last_ms = round(date_s * 1000) if 0 < date_s < _YEAR_9999 else None
        for client_id, api_key, version in stream.feed(data, missing):
            caller = SeenClient(client_id, stream.software, stream.software_version, direction.address)
            if direction.is_client:
                self._into.add(caller, api_key, version, last_ms=last_ms)
                self.requests += 1
            elif direction.requests.add(caller, api_key, version, last_ms=last_ms):
                direction.learnt_bytes += _LEARNT_BYTES + sum(map(len, caller))


def _key(one: End, other: End) -> tuple[End, End]:
    return (one, other) if one <= other else (other, one)


def _direction(source: End, expected: int | None = None, *, is_whole: bool = False, is_client: bool) -> _Direction:
    return _Direction(str(ip_address(source[0])), RequestStream(is_whole=is_whole), expected, is_client)


def _port(end: End) -> int:
    return end[1]


def _answered(requests: _Direction, responses: _Direction) -> int:
    """Return how many correlation ids of one direction, taken for requests, begin a frame of the other."""
    return len(requests.correlations & responses.starts.keys())
