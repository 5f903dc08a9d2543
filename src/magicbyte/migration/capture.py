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
from typing import BinaryIO, Final, NamedTuple

from magicbyte.errors import InvalidRequestError
from magicbyte.extras import require
from magicbyte.migration.request_stream import RequestStream
from magicbyte.migration.sightings import SeenClient, Sightings

MOST_CONNECTIONS: Final = 20_000
"""Connections followed at a time. Beyond it, the least recently active one is dropped."""
MOST_KEPT_BYTES: Final = 64 << 20
"""Of all connections: segments received early, and incomplete requests."""
MOST_AHEAD: Final = 128
"""Segments of a connection that may wait for an earlier one. Beyond it, the earlier one counts as not captured."""
MOST_AHEAD_BYTES: Final = 1 << 20
MOST_PACKET_BYTES: Final = 16 << 20
"""Limit of a packet, and of any other block of a pcapng file."""
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
    """The summary of a capture. `encrypted`: TLS connections. `is_cut_off`: the file ends within a packet."""

    packets: int = 0
    requests: int = 0
    encrypted: int = 0
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
        if self.is_cut_off:
            notes.append("the file ends, or is damaged, in the middle of a packet")
        return "; ".join(notes) or None


class TcpSegment(NamedTuple):
    """A TCP segment. `missing`: bytes at its end that were sent but not captured."""

    source: tuple[bytes, int]
    target: tuple[bytes, int]
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
    return summary


class _BoundedReads:
    """A file that refuses reads above MOST_PACKET_BYTES, because sizes in a capture are untrusted."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.ends_within = False
        """Whether the last read was short: the file ended within it."""

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MOST_PACKET_BYTES:
            raise ValueError(f"size of a packet: expected 0 to {MOST_PACKET_BYTES}, found {size}")
        data = self._file.read(size)
        self.ends_within = 0 < len(data) < size
        return data

    def seek(self, position: int) -> int:
        return self._file.seek(position)


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
class _ClientSide:
    """The client's side of a connection. `expected`: the sequence number of the next byte, None before the first."""

    address: str
    stream: RequestStream
    expected: int | None = None
    ahead: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    ahead_bytes: int = 0

    @property
    def kept_bytes(self) -> int:
        return self.ahead_bytes + self.stream.kept_bytes


class _Connections:
    """The connections of a capture, by the addresses of client and broker."""

    def __init__(self, into: Sightings) -> None:
        self._into = into
        self._open: OrderedDict[tuple[bytes, int, bytes, int], _ClientSide] = OrderedDict()
        self._kept_bytes = 0
        self.requests = self.encrypted = 0

    def take(self, segment: TcpSegment, date_s: float) -> None:
        """Process the next segment of the capture."""
        key = (*segment.source, *segment.target)
        if segment.flags & _SYN:
            from_broker = bool(segment.flags & _ACK)
            client, broker = (segment.target, segment.source) if from_broker else (segment.source, segment.target)
            if not from_broker or (*client, *broker) not in self._open:
                self._begin(client, broker, None if from_broker else (segment.sequence + 1) % _SEQUENCE)
            return
        connection = self._open.get(key)
        if connection is None:
            # Its beginning was not captured: ephemeral ports of clients are above those of servers.
            if (*segment.target, *segment.source) in self._open or segment.source[1] <= segment.target[1]:
                return
            connection = self._begin(segment.source, segment.target, None, is_whole=False)
        self._open.move_to_end(key)
        before = connection.kept_bytes
        self._add(connection, segment, date_s)
        self._kept_bytes += connection.kept_bytes - before
        if segment.flags & (_FIN | _RST):
            self._end(key)
        while self._kept_bytes > MOST_KEPT_BYTES:
            self._end(next(iter(self._open)))

    def close(self) -> None:
        """End all connections, and skip the gaps in them."""
        for key in list(self._open):
            self._end(key)

    def _begin(
        self, client: tuple[bytes, int], broker: tuple[bytes, int], expected: int | None, *, is_whole: bool = True
    ) -> _ClientSide:
        key = (*client, *broker)
        if key in self._open:
            self._end(key)
        if len(self._open) >= MOST_CONNECTIONS:
            self._end(next(iter(self._open)))
        found = _ClientSide(str(ip_address(client[0])), RequestStream(is_whole=is_whole), expected)
        self._open[key] = found
        return found

    def _end(self, key: tuple[bytes, int, bytes, int]) -> None:
        connection = self._open.pop(key)
        self._kept_bytes -= connection.kept_bytes
        self._catch_up(connection, 0.0, gives_up=True)
        self.encrypted += connection.stream.is_encrypted

    def _add(self, connection: _ClientSide, segment: TcpSegment, date_s: float) -> None:
        size = len(segment.data) + segment.missing
        if not size or connection.stream.is_given_up:
            return
        if connection.expected is None:
            connection.expected = segment.sequence
        distance = (segment.sequence - connection.expected + _SEQUENCE // 2) % _SEQUENCE - _SEQUENCE // 2
        if abs(distance) > _FAR:
            connection.stream.lose()
            connection.expected, connection.ahead, connection.ahead_bytes, distance = segment.sequence, {}, 0, 0
        waiting = connection.ahead.get(segment.sequence)
        if distance + size > 0 and (waiting is None or len(waiting[0]) < len(segment.data)):
            connection.ahead[segment.sequence] = segment.data, segment.missing
            connection.ahead_bytes += len(segment.data) - (0 if waiting is None else len(waiting[0]))
        self._catch_up(connection, date_s)

    def _catch_up(self, connection: _ClientSide, date_s: float, *, gives_up: bool = False) -> None:
        """Feed adjacent segments to the stream. A gap is skipped when too many segments wait for its bytes."""
        while connection.ahead and connection.expected is not None:
            expected = connection.expected

            def distance(sequence: int, expected: int = expected) -> int:
                return (sequence - expected + _SEQUENCE // 2) % _SEQUENCE - _SEQUENCE // 2

            first = min(connection.ahead, key=distance)
            gap = distance(first)
            if gap > 0:
                is_full = len(connection.ahead) > MOST_AHEAD or connection.ahead_bytes > MOST_AHEAD_BYTES
                if not (is_full or gives_up):
                    return
                self._feed(connection, b"", gap, date_s)
            data, missing = connection.ahead.pop(first)
            connection.ahead_bytes -= len(data)
            known = max(-gap, 0)
            if known < len(data) + missing:
                self._feed(connection, data[known:], missing - max(known - len(data), 0), date_s)
            connection.expected = (expected + max(gap, 0) + max(len(data) + missing - known, 0)) % _SEQUENCE

    def _feed(self, connection: _ClientSide, data: bytes, missing: int, date_s: float) -> None:
        stream = connection.stream
        for client_id, api_key, version in stream.feed(data, missing):
            caller = SeenClient(client_id, stream.software, stream.software_version, connection.address)
            last_ms = round(date_s * 1000) if 0 < date_s < _YEAR_9999 else None
            self._into.add(caller, api_key, version, last_ms=last_ms)
            self.requests += 1
