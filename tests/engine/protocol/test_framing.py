"""Frames, headers and the table of APIs; every frame that real brokers exchanged is read and written again."""

import random
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import golden_data
import magicbyte.engine.protocol
from builders import tries
from engine.protocol.schemas import all_schemas
from magicbyte.engine.errors import ProtocolError, UnsupportedVersionError
from magicbyte.engine.protocol import (
    APIS,
    Frames,
    Message,
    api_of,
    read_request,
    read_request_header,
    read_response,
    write_request,
    write_response,
)
from magicbyte.engine.protocol.framing import LONG
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataResponse
from magicbyte.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from magicbyte.engine.protocol.messages.response_header import ResponseHeader

REQUESTS = [  # request, version, client id, the frame in hexadecimal: size; header; body
    (MetadataRequest(topics=[]), 0, "me", "00000010" + "0003" + "0000" + "00000007" + "00026d65" + "00000000"),
    (MetadataRequest(topics=None), 1, None, "0000000e" + "0003" + "0001" + "00000007" + "ffff" + "ffffffff"),
    (  # flexible: the client id keeps its old form, a tagged section follows it
        MetadataRequest(topics=None),
        12,
        "me",
        "00000011" + "0003" + "000c" + "00000007" + "00026d65" + "00" + "00" + "01" + "00" + "00",
    ),
    (ApiVersionsRequest(), 0, "me", "0000000c" + "0012" + "0000" + "00000007" + "00026d65"),
    (ApiVersionsRequest(), 3, "me", "00000010" + "0012" + "0003" + "00000007" + "00026d65" + "00" + "01" + "01" + "00"),
    (  # no client id at all
        ControlledShutdownRequest(broker_id=5),
        0,
        None,
        "0000000c" + "0007" + "0000" + "00000007" + "00000005",
    ),
    (ControlledShutdownRequest(broker_id=5), 1, "", "0000000e" + "0007" + "0001" + "00000007" + "0000" + "00000005"),
]
RESPONSES = [
    (MetadataResponse(), 0, "0000000c" + "00000007" + "00000000" + "00000000"),
    (MetadataResponse(), 12, "00000011" + "00000007" + "00" + "00000000" + "01" + "00" + "ffffffff" + "01" + "00"),
    (ApiVersionsResponse(), 0, "0000000a" + "00000007" + "0000" + "00000000"),
    (ApiVersionsResponse(), 3, "0000000c" + "00000007" + "0000" + "01" + "00000000" + "00"),  # header version 0
    (ControlledShutdownResponse(), 0, "0000000a" + "00000007" + "0000" + "00000000"),
    (ControlledShutdownResponse(), 3, "00000009" + "00000007" + "00" + "0000" + "01" + "00"),
]


@pytest.mark.parametrize(("request_", "version", "client_id", "expected"), REQUESTS)
def test_a_request_has_the_header_of_its_version(
    request_: Message, version: int, client_id: str | None, expected: str
) -> None:
    frame = bytes(write_request(request_, version, correlation_id=7, client_id=client_id))
    assert frame.hex() == expected
    found = read_request(frame[4:])
    assert found.message == request_
    assert found.api.key == request_.API_KEY
    assert (found.header.correlation_id, found.header.request_api_version) == (7, version)
    if found.api.request_header_version(version) > 0:
        assert found.header.client_id == client_id


@pytest.mark.parametrize(("response", "version", "expected"), RESPONSES)
def test_a_response_has_the_header_of_its_version(response: Message, version: int, expected: str) -> None:
    frame = bytes(write_response(response, version, correlation_id=7))
    assert frame.hex() == expected
    assert response.API_KEY is not None
    header, found = read_response(frame[4:], api_of(response.API_KEY), version)
    assert (header.correlation_id, found) == (7, response)


def test_tagged_fields_of_headers_are_kept() -> None:
    frame = bytes.fromhex("0003" + "000c" + "00000007" + "ffff" + "01" + "05" + "01" + "aa" + "00" + "01" + "00" + "00")
    found = read_request(frame)
    assert found.header.unknown_tags == ((5, b"\xaa"),)
    assert found.message == MetadataRequest(topics=None)


def test_the_header_of_a_later_version_can_be_read() -> None:
    frame = bytes.fromhex("0012" + "7fff" + "00000007" + "00026d65" + "00" + b"whatever".hex())
    api, header, _ = read_request_header(frame)
    assert (api.name, header.request_api_version, header.client_id) == ("ApiVersions", 32767, "me")
    with pytest.raises(UnsupportedVersionError, match="ApiVersions has no version 32767: known are 0 to"):
        read_request(frame)


@pytest.mark.parametrize(
    "frame", [b"", b"\x00\x03\x00", b"\x00\x03\x00\x00\x00", b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x09me"]
)
def test_a_truncated_header_is_reported(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request(frame)


def test_an_unknown_api_is_reported() -> None:
    with pytest.raises(UnsupportedVersionError, match="API 9999"):
        read_request(struct.pack(">hhih", 9999, 0, 7, -1))


# ---- the table


def test_every_request_is_in_the_table_with_the_versions_of_its_schema() -> None:
    for schema in all_schemas().values():
        if schema.type not in ("request", "response"):
            continue
        assert schema.api_key is not None
        api = APIS[schema.api_key]
        kind = api.request if schema.type == "request" else api.response
        assert kind.__name__ == schema.name
        assert list(kind.VALID_VERSIONS) == list(schema.valid_versions)
        assert api.key == kind.API_KEY
        assert api.versions == kind.VALID_VERSIONS
        for version in api.versions:
            assert (api.request_header_version(version) == 2) == (version in schema.flexible_versions)


def test_header_versions_follow_the_flexible_versions_but_for_two_apis() -> None:
    for api in APIS.values():
        for version in api.versions:
            flexible = version in api.flexible_versions
            if (api.name, version) != ("ControlledShutdown", 0):
                assert api.request_header_version(version) == (2 if flexible else 1)
            if api.name != "ApiVersions":
                assert api.response_header_version(version) == (1 if flexible else 0)
    assert APIS[7].request_header_version(0) == 0
    assert {APIS[18].response_header_version(version) for version in APIS[18].versions} == {0}


def test_importing_the_protocol_imports_no_message_and_nothing_heavy() -> None:
    program = (
        "import sys, magicbyte.engine.protocol as p; p.APIS; p.Message;"
        "assert not [m for m in sys.modules if m.startswith('magicbyte.engine.protocol.messages.')], 1;"
        "assert not {'numpy', 'numba', 'pyarrow', 'magicbyte.schema'} & set(sys.modules), 2;"
        "p.APIS[3].request;"
        "assert [m for m in sys.modules if m.startswith('magicbyte.engine.protocol.messages.')]"
        " == ['magicbyte.engine.protocol.messages.metadata'], 3;"
        "p.read_request; assert 'magicbyte.schema' not in sys.modules, 4"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", magicbyte.engine.protocol.__all__)
def test_every_name_of_the_package_can_be_imported(name: str) -> None:
    assert getattr(magicbyte.engine.protocol, name) is not None


@pytest.mark.parametrize("name", ["Frame", "read"])
def test_a_name_that_the_package_does_not_have_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(magicbyte.engine.protocol, name)


# ---- splitting a stream


@given(payloads=st.lists(st.binary(max_size=300), max_size=6), cuts=st.lists(st.integers(1, 40), max_size=40))
def test_frames_come_out_as_they_went_in_however_they_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(struct.pack(">i", len(each)) + each for each in payloads)
    frames, found, at = Frames(), list[bytes](), 0
    for cut in [*cuts, len(stream) + 1]:
        found += [bytes(each) for each in frames.feed(stream[at : at + cut])]
        at += cut
    assert found == payloads
    assert not frames.pending


def test_a_whole_frame_is_not_copied() -> None:
    data = struct.pack(">i", 3) + b"abc" + struct.pack(">i", 9) + b"half"
    frames = Frames()
    (whole,) = frames.feed(data)
    assert (whole, whole.obj) == (b"abc", data)
    assert list(frames.feed(b"done?")) == [b"halfdone?"]


@given(st.lists(st.integers(0, 3 * LONG), max_size=4), st.integers(0, 1000), st.booleans())
@tries(40)
def test_frames_are_the_same_when_the_long_ones_are_read_into_their_own_place(
    sizes: list[int], seed: int, reused: bool
) -> None:
    chance = random.Random(seed)
    sent = [chance.randbytes(size) for size in sizes]
    data = b"".join(len(each).to_bytes(4, "big") + each for each in sent)
    frames, found, at = Frames(reused=reused), list[bytes](), 0
    while at < len(data):
        room, count = frames.room(), chance.choice([1, 3, 5, 1000, LONG, 2 * LONG])
        if room is None:
            found += map(bytes, frames.feed(data[at : at + count]))
            at += len(data[at : at + count])
        else:
            count = min(count, len(room))
            room[:count] = data[at : at + count]
            frame = frames.filled(count)
            found += [] if frame is None else [bytes(frame)]
            at += count
    assert found == sent


def test_memory_of_a_long_frame_is_used_again_when_nothing_refers_to_it_and_not_before() -> None:
    frames = Frames(reused=True)
    size = 3 * LONG + 1

    def next_frame(filling: bytes) -> memoryview:
        assert not list(frames.feed((size).to_bytes(4, "big")))
        room = frames.room()
        assert room is not None
        room[:] = filling * size
        frame = frames.filled(size)
        assert frame is not None
        return frame

    def place(view: memoryview) -> int:
        return int(np.frombuffer(view, np.uint8).ctypes.data)

    kept = next_frame(b"a")[100:200]
    others = [next_frame(filling) for filling in (b"b", b"c", b"d")]
    assert kept == b"a" * 100
    assert [each[0] for each in others] == list(b"bcd")
    before = {place(each) for each in others}
    others.clear()
    assert place(next_frame(b"e")) in before
    assert kept == b"a" * 100


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_size_that_is_negative_or_too_large_is_refused_before_its_bytes_arrive(size: int) -> None:
    raw = struct.pack(">i", size)
    for start in (b"", raw[:1]):
        frames = Frames(largest=1000)
        assert list(frames.feed(start)) == []
        with pytest.raises(ProtocolError, match=f"size of a frame at byte 0: expected 0 to 1000, found {size}"):
            list(frames.feed(raw[len(start) :]))


# ---- real frames


@pytest.mark.parametrize("broker", golden_data.wire_brokers())
def test_every_captured_frame_reads_and_writes_back_to_its_bytes(broker: str) -> None:
    seen = set()
    for case in golden_data.wire_cases(broker):
        for label, (request, response) in case.exchanges().items():
            (frame,) = Frames().feed(request)
            found = read_request(frame)
            version, header = found.header.request_api_version, found.header
            again = write_request(
                found.message, version, correlation_id=header.correlation_id, client_id=header.client_id
            )
            assert bytes(again) == request, (case, label)
            assert len(again) == len(request)
            for answer in Frames().feed(response):  # null-set: two answers
                about, message = read_response(answer, found.api, version)
                written = write_response(message, version, correlation_id=about.correlation_id)
                assert bytes(written)[4:] == answer, (case, label)
            seen.add((found.api.name, version))
    assert {("Produce", 1)} <= seen


def test_the_frame_of_large_records_is_a_few_buffers() -> None:
    records = bytes(100_000)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    buffers = write_request(request, 9, correlation_id=7, client_id="me").buffers()
    assert [each for each in buffers if each is records]
    assert len(buffers) == 3
    frame = b"".join(buffers)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)


def test_the_head_of_a_response_is_its_size_and_its_header() -> None:
    for api in APIS.values():
        for version in api.versions:
            header = ResponseHeader(correlation_id=77).encode(api.response_header_version(version))
            body = api.response().encode(version)
            frame = bytes(write_response(api.response(), version, correlation_id=77))
            assert frame == (len(header) + len(body)).to_bytes(4, "big") + header + body, (api.name, version)
