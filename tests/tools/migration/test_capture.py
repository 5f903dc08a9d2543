"""Packet captures: the requests that clients sent to real brokers are found again, whatever happens to the packets."""

import io
import random
import struct
import tracemalloc
from collections import Counter
from pathlib import Path

import dpkt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.command import run
from golden_data import wire_brokers, wire_cases
from magicbyte.engine.errors import InvalidRequestError
from magicbyte.engine.protocol import APIS, write_request
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest
from magicbyte.engine.protocol.messages.fetch import FetchRequest
from magicbyte.engine.protocol.messages.metadata import MetadataRequest
from magicbyte.engine.releases import Release
from magicbyte.tools.migration import capture
from magicbyte.tools.migration.capture import CaptureSummary, read_capture
from magicbyte.tools.migration.check import Facts, check
from magicbyte.tools.migration.request_log import lines_of, read_request_log
from magicbyte.tools.migration.sightings import MOST_TEXT, SeenClient, SeenRequests, Sightings
from tools.migration.packets import ACK, BROKER, CLIENT, MSS, SYN, End, connection, packet, pcap, pcapng

HERE = Path(__file__).parent
ADDRESS = "10.0.0.7"
KEYS = {api.name: api.key for api in APIS.values()}


def read(data: bytes) -> tuple[Counter[SeenRequests], CaptureSummary]:
    sightings = Sightings()
    summary = read_capture(io.BytesIO(data), sightings)
    return Counter({asking: seen.count for asking, seen in sightings}), summary


def framed(request: ApiVersionsRequest | FetchRequest | MetadataRequest, version: int, client_id: str = "app") -> bytes:
    return b"".join(map(bytes, write_request(request, version, correlation_id=3, client_id=client_id).buffers()))


def of(*requests: tuple[str, int], client: SeenClient | None = None) -> Counter[SeenRequests]:
    caller = client or SeenClient("app", "", "", ADDRESS)
    return Counter(SeenRequests(caller, KEYS[name], version) for name, version in requests)


HELLO = framed(ApiVersionsRequest(client_software_name="my-lib", client_software_version="1.2"), 3)
ASKED = [(framed(MetadataRequest(), version), bytes(40 * version)) for version in (1, 4, 9)]
SEEN = of(("Metadata", 1), ("Metadata", 4), ("Metadata", 9))


def wire_exchanges(broker: str) -> list[tuple[str, list[tuple[bytes, bytes]]]]:
    """The requests to a real broker and its answers, in each case, in the order of the case."""
    return [(case.info["api"], list(case.exchanges().values())) for case in wire_cases(broker)]


@pytest.mark.parametrize("broker", wire_brokers())
def test_requests_to_real_brokers_are_found_in_a_capture_of_them(broker: str) -> None:
    packets, expected = list[bytes](), Counter[tuple[int, int]]()
    for number, (api, exchanges) in enumerate(wire_exchanges(broker)):
        packets += connection(exchanges, (CLIENT[0], 40_000 + number), first=number * 12_345_678)
        for request, _ in exchanges:
            expected[KEYS[api], int.from_bytes(request[6:8], "big")] += 1
    found, summary = read(pcap(packets))
    by_version = Counter[tuple[int, int]]()
    for asking, count in found.items():
        assert asking.caller.address == ADDRESS
        by_version[asking.api_key, asking.version] += count
    assert by_version == expected
    assert (summary.requests, summary.packets) == (expected.total(), len(packets))
    assert summary.note is None


@pytest.mark.parametrize("name", sorted(path.stem for path in (HERE / "captures").glob("*.pcap")))
def test_a_capture_by_tcpdump_tells_what_the_brokers_request_log_tells(name: str) -> None:
    """Real clients and a real broker on loopback, recorded by `interop.record_capture`."""
    logged = Sightings()
    with (HERE / f"captures/{name}.log").open("rb") as file:
        assert read_request_log(lines_of(file), logged)
    found, summary = read((HERE / f"captures/{name}.pcap").read_bytes())
    as_logged = Counter[SeenRequests]()
    for asking, count in found.items():
        if asking.api_key == KEYS["ApiVersions"]:  # the log does not name the library for the request that names it
            as_logged[asking._replace(caller=asking.caller._replace(software="", version=""))] += count
        else:
            as_logged[asking] += count
    assert as_logged == {asking: seen.count for asking, seen in logged}
    assert summary.note is None
    libraries = {(asking.caller.software, asking.caller.version) for asking in found}
    assert {("apache-kafka-java", "2.8.2"), ("kafka-python", "3.0.12")} < libraries


def test_check_names_the_old_client_of_a_real_capture_and_no_other() -> None:
    """Those of the Java client 0.9.0.1; that of 0.11.0.3, which has the same client ids, sends newer requests."""
    facts = Facts()
    read_capture(io.BytesIO((HERE / "captures/2.8.2.pcap").read_bytes()), facts.sightings)
    found = check(facts, Release.of("4.3.1")).findings
    refused = {(each.subject, *(f"{one.api} v{one.version}" for one in each.refused)) for each in found}
    assert refused == {("producer-1 (127.0.0.1)", "Produce v1"), ("consumer-1 (127.0.0.1)", "Fetch v1")}


def test_a_client_is_named_by_its_library_and_address_and_dated() -> None:
    sightings = Sightings()
    read_capture(io.BytesIO(pcapng(connection([(HELLO, b""), *ASKED[:1]]))), sightings)
    by_name = dict(sightings)
    client = SeenClient("app", "my-lib", "1.2", ADDRESS)
    assert by_name.keys() == of(("ApiVersions", 3), ("Metadata", 1), client=client).keys()
    assert {seen.last_ms for seen in by_name.values()} == {1_700_000_000_250}


def test_ipv6_and_tags_of_vlans_are_read() -> None:
    client, broker = (bytes(15) + b"\x01", 50_000), (bytes(15) + b"\x02", 9092)
    packets = [each[:12] + b"\x81\x00\x00\x05" + each[12:] for each in connection(ASKED, client, broker)]
    assert read(pcap(packets))[0] == of(
        ("Metadata", 1), ("Metadata", 4), ("Metadata", 9), client=SeenClient("app", address="::1")
    )


@pytest.mark.parametrize(
    ("link", "header"),
    [
        (0, b"\x02\x00\x00\x00"), (101, b""), (113, bytes(14) + b"\x08\x00"), (276, b"\x08\x00" + bytes(18)),
    ],
)  # fmt: skip
def test_other_kinds_of_links_are_read(link: int, header: bytes) -> None:
    assert read(pcap([header + each[14:] for each in connection(ASKED)], link=link))[0] == SEEN


@pytest.mark.parametrize(
    ("client", "size_at"), [(CLIENT, 16), ((bytes(15) + b"\x07", 50_000), 18)], ids=["ipv4", "ipv6"]
)
def test_packets_whose_size_the_network_card_fills_in_are_read(client: End, size_at: int) -> None:
    """Captures of a sender with segmentation offload have the size 0 in the IP header."""
    broker = (bytes(15) + b"\x01", 9092) if len(client[0]) == 16 else BROKER
    packets = connection(ASKED, client, broker)
    sizeless = [each[:size_at] + b"\0\0" + each[size_at + 2 :] for each in packets]
    assert sizeless != packets
    assert read(pcap(sizeless)) == read(pcap(packets))


def test_an_unknown_kind_of_link_is_said() -> None:
    found, summary = read(pcap(connection(ASKED), link=147))
    assert not found
    assert summary.note == "packets of link type 147 are not read: capture on an interface with Ethernet or IP"


@pytest.mark.parametrize("seed", range(20))
def test_segments_out_of_order_and_sent_twice_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    large = framed(FetchRequest(topics=[]), 4, "a" * 5000)
    packets = connection([*ASKED, (large, b"answer"), *ASKED], first=(1 << 32) - 300)
    body, end = packets[2:-1], packets[-1]
    body = [each for each in body for _ in range(rng.choice((1, 1, 2)))]
    for at in range(len(body) - 3):
        if rng.random() < 0.5:
            body[at], body[at + rng.randrange(1, 4)] = body[at + rng.randrange(1, 4)], body[at]
    expected = SEEN + SEEN + of(("Fetch", 4), client=SeenClient("a" * MOST_TEXT, "", "", ADDRESS))
    lost = {bytes(each) for each in packets[2:-1]} - {bytes(each) for each in body}
    if not lost:  # a swap may have overwritten one
        assert read(pcap([*packets[:2], *body, end]))[0] == expected


def test_a_connection_that_began_before_the_capture_is_found_at_the_next_request() -> None:
    rest = packet(CLIENT, BROKER, 900, b"the end of a request that began before")
    packets = [rest, *connection(ASKED, first=938, begins=False)]
    assert read(pcap(packets))[0] == SEEN


def test_what_brokers_answer_is_not_taken_for_requests() -> None:
    """Responses with small correlation ids look like Produce requests."""
    answers = [(b"", struct.pack(">iii", 12, each, 0) + bytes(4)) for each in range(5)]
    assert not read(pcap(connection(answers, begins=False)))[0]


def test_after_a_lost_packet_requests_are_found_again() -> None:
    packets = connection(ASKED)
    del packets[2]
    assert read(pcap(packets))[0] == of(("Metadata", 4), ("Metadata", 9))


def test_a_lost_packet_in_the_body_of_a_request_loses_no_request() -> None:
    large = framed(MetadataRequest(), 1)
    produce = struct.pack(">ihhih", 10 * MSS, 0, 2, 1, 3) + b"app" + bytes(10 * MSS - 13)
    packets = connection([(large, b""), (produce, b""), *ASKED])
    del packets[6]
    assert read(pcap(packets))[0] == SEEN + of(("Metadata", 1), ("Produce", 2))


def test_packets_of_which_the_first_bytes_were_kept_suffice() -> None:
    produce = struct.pack(">ihhih", 10 * MSS, 0, 2, 1, 3) + b"app" + bytes(10 * MSS - 13)
    packets = connection([(produce, b"")] * 3)
    assert read(pcap(packets, snap=96))[0] == of(*[("Produce", 2)] * 3)


def test_frames_without_headers_after_a_sasl_handshake_are_passed_over() -> None:
    token = struct.pack(">i", 20) + b"\0user\0secret" + bytes(8)
    assert read(pcap(connection([*ASKED, (token, b""), (token, b""), *ASKED])))[0] == SEEN + SEEN


def test_other_protocols_are_no_clients() -> None:
    zookeeper = struct.pack(">iiqiqi", 45, 0, 0, 30_000, 0, 16) + bytes(17)
    ping = struct.pack(">iii", 8, -2, 11)
    http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    packets = [
        *connection([(zookeeper, b""), *[(ping, b"")] * 3]),
        *connection([(http, b"")] * 3, (CLIENT[0], 50_001)),
        *connection([(bytes(100), b"")] * 3, (CLIENT[0], 50_002)),
    ]
    found, summary = read(pcap(packets))
    assert not found
    assert summary.note == "no Kafka requests in it (capture the brokers' port, with tcpdump -s 0)"


def test_encrypted_connections_are_counted() -> None:
    hello = b"\x16\x03\x01\x02\x00" + bytes(512)
    found, summary = read(pcap([*connection(ASKED), *connection([(hello, hello)], (CLIENT[0], 50_001))]))
    assert (found, summary.note) == (SEEN, "1 connection is encrypted, their clients are unknown")


def test_a_port_that_is_used_again_is_another_connection() -> None:
    assert read(pcap([*connection(ASKED), *connection(ASKED, first=7)]))[0] == SEEN + SEEN
    without_end = connection(ASKED)[:-1]
    assert read(pcap([*without_end, *connection(ASKED, first=3_000_000_000)]))[0] == SEEN + SEEN
    unseen = connection(ASKED, first=3_000_000_000, begins=False)
    assert read(pcap([*without_end, *unseen]))[0] == SEEN + SEEN


def test_a_request_that_the_port_before_did_not_end_takes_no_bytes_of_the_next_connection() -> None:
    produce = struct.pack(">ihhih", 100 * MSS, 0, 2, 1, 3) + b"app"
    begun = connection([*ASKED, (produce, b"")])[:-1]
    unseen = connection(ASKED, first=3_000_000_000, begins=False)
    assert read(pcap([*begun, *unseen]))[0] == SEEN + of(("Produce", 2)) + SEEN


def test_a_truncated_file_gives_the_packets_before_the_cut() -> None:
    found, summary = read(pcap([*connection(ASKED), packet(CLIENT, BROKER, 1, bytes(99))])[:-150])
    assert (found, summary.note) == (SEEN, "the file ends, or is damaged, in the middle of a packet")


@pytest.mark.parametrize("data", [b"", b"what is this", bytes(5000), b"\x0a\x0d\x0d\x0a" + bytes(40)])
def test_another_kind_of_file_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="expected pcap or pcapng"):
        read(data)


@given(data=st.binary(max_size=2000), ng=st.booleans())
def test_junk_behind_a_header_raises_nothing_else(data: bytes, *, ng: bool) -> None:
    head = pcapng([packet(CLIENT, BROKER, 1)]) if ng else pcap([])
    read(head + data)


@given(places=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), max_size=20), ng=st.booleans())
def test_damage_anywhere_raises_nothing_else(places: list[tuple[int, int]], *, ng: bool) -> None:
    packets = [*connection([(HELLO, b""), *ASKED]), *connection(ASKED, begins=False, first=9)]
    data = bytearray(pcapng(packets) if ng else pcap(packets))
    for at, value in places:
        data[at % len(data)] = value
    try:
        read(bytes(data))
    except InvalidRequestError:
        return


def test_memory_is_bounded_whatever_a_capture_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-sent requests of many connections, segments far ahead, and a packet of 4 GB."""
    monkeypatch.setattr(capture, "MOST_KEPT_BYTES", 1 << 18)
    monkeypatch.setattr(capture, "MOST_CONNECTIONS", 50)
    half = struct.pack(">ihhih", 50_000, 18, 3, 1, 30_000) + bytes(1400)
    packets = []
    for number in range(750):
        client = (CLIENT[0], 10_000 + number)
        packets += connection([(half, b"")], client)[:-1]
        packets += [packet(client, BROKER, 100_000 + each * MSS, bytes(MSS)) for each in range(3)]
    data = pcap(packets) + struct.pack("<IIII", 0, 0, 0xFFFFFFF0, 0xFFFFFFF0) + bytes(100)
    sightings = Sightings()
    tracemalloc.start()
    summary = read_capture(io.BytesIO(data), sightings)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert summary.is_cut_off
    assert peak < 2 << 20


def test_check_names_the_old_clients_of_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "old.pcap"
    path.write_bytes(pcap(connection([*ASKED, (framed(FetchRequest(topics=[]), 2), b"")])))
    result = run("migrate", "check", "--to", "4", "--capture", path)
    assert result.exit_code == 1, result.stderr
    assert f"BREAKS client app ({ADDRESS})" in result.stdout
    assert "sends Fetch v2, 1 request, last 2023-11-14 22:13; Kafka 4.4 accepts v4 and later" in result.stdout
    path.write_bytes(b"no capture")
    result = run("migrate", "check", "--to", "4", "--capture", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"magicbyte: {path}: not a packet capture: expected pcap or pcapng (")
    assert result.stderr.count("\n") == 1


def test_what_a_stranger_calls_itself_moves_no_cursor(tmp_path: Path) -> None:
    path, name = tmp_path / "hostile.pcap", "\x1b[2J\r\nFORGED\u202e" + "x" * 5000
    hello = framed(ApiVersionsRequest(client_software_name=name, client_software_version=name), 3)
    path.write_bytes(pcap(connection([(hello, b""), (framed(FetchRequest(topics=[]), 2, name), b"")])))
    result = run("migrate", "check", "--to", "4", "--capture", path)
    assert result.exit_code == 1, result.stderr
    assert not set("\x1b\r\u202e") & set(result.stdout)
    assert not [line for line in result.stdout.splitlines() if line.startswith("FORGED")]
    assert len(result.stdout) < 10_000


def test_the_handshake_tells_who_is_the_client_even_on_a_low_port() -> None:
    client, broker = (CLIENT[0], 999), (BROKER[0], 30_000)
    assert read(pcap(connection(ASKED, client, broker)))[0] == SEEN
    only_the_answer = [packet(broker, client, 76, flags=SYN | ACK), *connection(ASKED, client, broker, begins=False)]
    assert read(pcap(only_the_answer))[0] == SEEN


def test_a_keep_alive_and_empty_segments_are_no_data() -> None:
    packets = connection(ASKED)
    probes = [packet(CLIENT, BROKER, 999, b"\0"), packet(CLIENT, BROKER, 1000), packet(BROKER, CLIENT, 77, flags=ACK)]
    assert read(pcap([*packets[:2], *probes, *packets[2:]]))[0] == SEEN


def test_dpkt_writes_what_the_tests_take_it_to_write() -> None:
    tcp = dpkt.ethernet.Ethernet(packet(CLIENT, BROKER, 5, b"data")).data.data
    assert (tcp.sport, tcp.dport, tcp.seq, tcp.data) == (50_000, 9092, 5, b"data")


# ---- connections that began before the capture


LOW, HIGH = (CLIENT[0], 30_120), (BROKER[0], 36_333)
"""A client whose port is below its broker's, as of a container or behind a proxy."""
OLD_LIBRDKAFKA = struct.pack(">ihhih", 13 + 4, 18, 0, 3, 3) + b"app" + bytes(4)
"""ApiVersions 0 with an array after its end, as librdkafka before 0.9.2 sends it."""


def answers_to(requests: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Give each request a correlation id of its own, and an answer that repeats it."""
    numbered = []
    for at, (request, _) in enumerate(requests):
        renumbered = request[:8] + struct.pack(">i", 70_000 + at) + request[12:]
        numbered.append((renumbered, struct.pack(">iii", 8, 70_000 + at, 0)))
    return numbered


@pytest.mark.parametrize("client", [LOW, CLIENT], ids=["low", "high"])
@pytest.mark.parametrize("broker", [HIGH, BROKER], ids=["from a high port", "from a low one"])
@pytest.mark.parametrize("seen", ["both directions", "requests only"])
def test_the_client_is_recognized_by_its_requests_whatever_its_port(client: End, broker: End, seen: str) -> None:
    packets = connection(answers_to(ASKED), client, broker, begins=False)
    if seen == "requests only":  # as tcpdump 'dst port PORT' records it
        requests = packet(client, broker, 0)[26:30]
        packets = [each for each in packets if each[26:30] == requests]
    found, summary = read(pcap(packets))
    assert (found, summary.note) == (SEEN, None)


def test_responses_alone_are_no_requests_of_the_broker() -> None:
    packets = connection(answers_to(ASKED), LOW, HIGH, begins=False)
    answers = [each for each in packets if each[26:30] == HIGH[0]]
    assert not read(pcap(answers))[0]


def test_a_handshake_anywhere_in_the_capture_tells_where_a_broker_is() -> None:
    """Produce 1 is answered by a number of topics: the same number as the start of the next request."""
    produce = struct.pack(">ihhih", 13 + 10, 0, 1, 1, 3) + b"app" + struct.pack(">hii", 1, 1000, 0)
    exchanges = [(produce, struct.pack(">iii", 8, 1, 1))]
    before = connection(exchanges, LOW, HIGH, begins=False)[:-1]
    later = connection(ASKED, (CLIENT[0], 30_121), HIGH)
    assert read(pcap([*before, *later]))[0] == SEEN + of(("Produce", 1))


@pytest.mark.parametrize("begins", [True, False])
def test_bytes_that_brokers_pass_over_hide_no_request(*, begins: bool) -> None:
    for exchanges in ([(OLD_LIBRDKAFKA, b"")], [(OLD_LIBRDKAFKA, b""), *ASKED]):
        rest = SEEN if len(exchanges) > 1 else Counter[SeenRequests]()
        assert read(pcap(connection(exchanges, begins=begins)))[0] == rest + of(("ApiVersions", 0))


def test_a_request_of_which_too_little_was_captured_is_said() -> None:
    produce = struct.pack(">ihhih", 10 * MSS, 0, 2, 1, 3) + b"app" + bytes(10 * MSS - 13)
    found, summary = read(pcap(connection([(produce, b"")], begins=False), snap=96))
    assert not found
    assert "of 1 connection too little was captured to count their requests" in (summary.note or "")
