"""Packet captures, made with the library that also reads them."""

import io
from collections.abc import Iterable

import dpkt

CLIENT, BROKER = (b"\x0a\x00\x00\x07", 50_000), (b"\x0a\x00\x00\x01", 9092)
MSS = 1448
SYN, FIN, ACK, PSH = dpkt.tcp.TH_SYN, dpkt.tcp.TH_FIN, dpkt.tcp.TH_ACK, dpkt.tcp.TH_PUSH
End = tuple[bytes, int]


def packet(source: End, target: End, sequence: int, data: bytes = b"", flags: int = ACK) -> bytes:
    """Return an Ethernet frame with one TCP segment."""
    tcp = dpkt.tcp.TCP(sport=source[1], dport=target[1], seq=sequence % (1 << 32), flags=flags, data=data)
    if len(source[0]) == 16:
        ip = dpkt.ip6.IP6(src=source[0], dst=target[0], nxt=6, plen=len(tcp), data=tcp)
        return bytes(dpkt.ethernet.Ethernet(type=dpkt.ethernet.ETH_TYPE_IP6, data=ip))
    ip = dpkt.ip.IP(src=source[0], dst=target[0], p=6, data=tcp)
    return bytes(dpkt.ethernet.Ethernet(data=ip))


def connection(
    exchanges: Iterable[tuple[bytes, bytes]], client: End = CLIENT, broker: End = BROKER, *, first: int = 1000,
    begins: bool = True,
) -> list[bytes]:  # fmt: skip
    """Return the packets of a connection with requests and responses. `begins`: with its handshake."""
    found = []
    if begins:
        found += [packet(client, broker, first - 1, flags=SYN), packet(broker, client, 76, flags=SYN | ACK)]
    sent, answered = first, 77
    for request, response in exchanges:
        for at in range(0, len(request), MSS):
            found.append(packet(client, broker, sent + at, request[at : at + MSS]))
        sent += len(request)
        for at in range(0, len(response), MSS):
            found.append(packet(broker, client, answered + at, response[at : at + MSS]))
        answered += len(response)
    return [*found, packet(client, broker, sent, flags=FIN | ACK)]


def pcap(
    packets: Iterable[bytes], *, link: int = 1, snap: int | None = None, date_s: float = 1_700_000_000.25
) -> bytes:
    """Return a pcap file, with at most `snap` bytes of each packet."""
    file = io.BytesIO()
    writer = dpkt.pcap.Writer(file, linktype=link)
    for each in packets:
        writer.writepkt(each[:snap], date_s)
    return file.getvalue()


def pcapng(packets: Iterable[bytes]) -> bytes:
    """Return a pcapng file."""
    file = io.BytesIO()
    writer = dpkt.pcapng.Writer(file)
    for each in packets:
        writer.writepkt(each, 1_700_000_000.25)
    return file.getvalue()
