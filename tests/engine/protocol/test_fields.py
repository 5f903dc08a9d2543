"""The forms of the wire one by one: vectors of KIP-625's integers, strictness, records that are not copied."""

import uuid

import pytest

from magicbyte.engine.errors import ProtocolError, UnsupportedVersionError
from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_nullable_numbers,
    read_numbers,
    read_packed,
    read_string,
    read_tags,
    read_unpacked,
    read_uuid,
    read_uvarint,
    read_view,
    write_length,
    write_packed,
    write_string,
    write_tags,
    write_unpacked,
    write_uuid,
)
from magicbyte.engine.protocol.message import Writer
from magicbyte.engine.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from magicbyte.engine.protocol.messages.fetch import FetchResponse
from magicbyte.engine.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from magicbyte.engine.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from magicbyte.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from magicbyte.engine.protocol.messages.sasl_handshake import SaslHandshakeRequest
from magicbyte.engine.protocol.rows import Rows, Shapes

# value, packed, unpacked by bits; from the tables of the specification
VECTORS = [
    (0, {16: "00", 32: "00", 64: "00"}, {16: "00", 32: "00", 64: "00"}),
    (-1, {16: "01", 32: "01", 64: "01"}, {16: "ffff03", 32: "ffffffff0f", 64: "ff" * 9 + "01"}),
    (63, {16: "7e", 32: "7e", 64: "7e"}, {16: "3f", 32: "3f", 64: "3f"}),
    (64, {16: "8001", 32: "8001", 64: "8001"}, {16: "40", 32: "40", 64: "40"}),
    (-64, {16: "7f", 32: "7f", 64: "7f"}, {16: "c0ff03", 32: "c0ffffff0f", 64: "c0ffffffffffffffff01"}),
    (-65, {16: "8101", 32: "8101", 64: "8101"}, {16: "bfff03", 32: "bfffffff0f", 64: "bfffffffffffffffff01"}),
    (127, {16: "fe01", 32: "fe01", 64: "fe01"}, {16: "7f", 32: "7f", 64: "7f"}),
    (128, {16: "8002", 32: "8002", 64: "8002"}, {16: "8001", 32: "8001", 64: "8001"}),
    (300, {16: "d804", 32: "d804", 64: "d804"}, {16: "ac02", 32: "ac02", 64: "ac02"}),
    (16383, {16: "feff01", 32: "feff01", 64: "feff01"}, {16: "ff7f", 32: "ff7f", 64: "ff7f"}),
    (16384, {16: "808002", 32: "808002", 64: "808002"}, {16: "808001", 32: "808001", 64: "808001"}),
    (32767, {16: "feff03", 32: "feff03", 64: "feff03"}, {16: "ffff01", 32: "ffff01", 64: "ffff01"}),
    (
        -32768,
        {16: "ffff03", 32: "ffff03", 64: "ffff03"},
        {16: "808002", 32: "8080feff0f", 64: "8080feffffffffffff01"},
    ),
    (2147483647, {32: "feffffff0f", 64: "feffffff0f"}, {32: "ffffffff07", 64: "ffffffff07"}),
    (-2147483648, {32: "ffffffff0f", 64: "ffffffff0f"}, {32: "8080808008", 64: "80808080f8ffffffff01"}),
]
LONGEST = {16: 3, 32: 5, 64: 10}  # bytes of a varint, by bits


@pytest.mark.parametrize(("value", "packed", "unpacked"), VECTORS, ids=lambda each: str(each)[:12])
def test_integers_of_variable_length_have_the_bytes_of_the_specification(
    value: int, packed: dict[int, str], unpacked: dict[int, str]
) -> None:
    for bits, expected in packed.items():
        buffer = bytearray()
        write_packed(buffer, value, bits, "x")
        assert buffer.hex() == expected
        assert read_packed(bytes(buffer), 0, bits, "x") == (value, len(buffer))
    for bits, expected in unpacked.items():
        buffer = bytearray()
        write_unpacked(buffer, value, bits, "x")
        assert buffer.hex() == expected
        assert read_unpacked(bytes(buffer), 0, bits, "x") == (value, len(buffer))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_the_ends_of_the_range_survive_and_what_lies_outside_is_refused(bits: int) -> None:
    for write, read in ((write_packed, read_packed), (write_unpacked, read_unpacked)):
        for value in (-1 << (bits - 1), (1 << (bits - 1)) - 1):
            buffer = bytearray()
            write(buffer, value, bits, "x")
            assert read(bytes(buffer), 0, bits, "x") == (value, len(buffer))
            assert len(buffer) <= LONGEST[bits]
        for value in ((-1 << (bits - 1)) - 1, 1 << (bits - 1)):
            with pytest.raises(ProtocolError, match=f"x: expected a value of {bits} bits, found {value}"):
                write(bytearray(), value, bits, "x")


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_a_varint_that_is_too_long_or_has_bits_too_many_is_refused(bits: int) -> None:
    longest = LONGEST[bits]
    spare = bits - 7 * (longest - 1)  # bits of the last byte that count
    too_long = b"\x80" * longest + b"\x00"
    too_wide = b"\x80" * (longest - 1) + bytes([1 << spare])
    for data in (too_long, too_wide):
        for read in (read_packed, read_unpacked):
            with pytest.raises(ProtocolError, match=f"a varint of {bits} bits"):
                read(data, 0, bits, "x")
        with pytest.raises(ProtocolError, match="a varint"):
            read_uvarint(data, 0, "x", bits)


def test_a_varint_longer_than_needed_is_accepted() -> None:
    assert read_uvarint(b"\x81\x80\x80\x80\x00", 0, "x") == (1, 5)
    assert read_packed(b"\x82\x80\x00", 0, 16, "x") == (1, 3)
    assert read_unpacked(b"\xff\x00", 0, 32, "x") == (127, 2)


def test_the_last_byte_of_an_unsigned_varint_may_have_four_bits() -> None:
    assert read_uvarint(b"\xff\xff\xff\xff\x0f", 0, "x") == (0xFFFFFFFF, 5)
    with pytest.raises(ProtocolError, match="ffffffff10"):
        read_uvarint(b"\xff\xff\xff\xff\x10", 0, "x")


@pytest.mark.parametrize("length", [-1, 0, 126, 127, 128, 16382, 16383, 16384, 2097150])
@pytest.mark.parametrize("flexible", [False, True])
def test_lengths_read_back_as_they_were_written(length: int, flexible: bool) -> None:
    buffer = bytearray()
    write_length(buffer, length, flexible)
    data = bytes(buffer)
    assert len(data) == (4 if not flexible else 1 if length < 127 else 2 if length < 16383 else 3)
    if length == -1:
        assert read_nullable_numbers(data, 0, flexible, "b", "x") == (None, len(data))
    else:
        view, end = read_view(data + bytes(length), 0, flexible, "x")
        assert (len(view), end) == (length, len(data) + length)


@pytest.mark.parametrize("flexible", [False, True])
def test_strings_are_utf_8_and_short_enough(flexible: bool) -> None:
    for text in ("", "plain", "naïve 語 𝄞", "x" * 126, "x" * 127, "é" * 16383 + "x"):
        buffer = bytearray()
        write_string(buffer, text, flexible, "x")
        assert read_string(bytes(buffer), 0, flexible, "x") == (text, len(buffer))
    with pytest.raises(ProtocolError, match="at most 32767 bytes, found 32768"):
        write_string(bytearray(), "é" * 16384, flexible, "x")
    with pytest.raises(ProtocolError, match="text of Unicode"):
        write_string(bytearray(), "\ud800", flexible, "x")


@pytest.mark.parametrize(
    ("data", "flexible", "said"),
    [
        (b"\x00", True, "not null"),
        (b"\xff\xff", False, "not null"),
        (b"\xff\xfe", False, "found -2"),
        (b"\x03\xc3\x28", True, "x at byte 1: expected UTF-8"),
        (b"\x00\x02\xff\xfe", False, "x at byte 2: expected UTF-8"),
        (b"\x04ab", True, "a length up to 2, found 3"),
        (b"\x00\x03ab", False, "a length up to 2, found 3"),
        (b"\x81\x80\x02" + bytes(40_000), True, "a length up to 32767, found 32768"),
    ],
)
def test_a_string_that_is_none_tells_what_is_wrong(data: bytes, flexible: bool, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        read_string(data, 0, flexible, "x")


def test_numbers_are_tuples_of_their_type() -> None:
    assert read_numbers(b"\x03\x01\x00", 0, True, "?", "x") == ((True, False), 3)
    assert read_numbers(b"\x00\x00\x00\x01\xff\xff", 0, False, "h", "x") == ((-1,), 6)
    many = b"\x00\x00\x01\x00" + bytes(256)
    assert read_numbers(many, 0, False, "b", "x") == ((0,) * 256, 260)


@pytest.mark.parametrize("data", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x00\x00\x00\x02\x00\x00\x00\x00"])
def test_a_count_that_lies_is_refused_before_anything_is_made(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="x at byte 0: expected"):
        read_numbers(data, 0, False, "i", "x")


def test_an_id_is_a_uuid_like_any_other() -> None:
    some = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
    buffer = bytearray()
    write_uuid(buffer, some)
    found, end = read_uuid(bytes(buffer), 0)
    assert (found, end, hash(found), str(found)) == (some, 16, hash(some), str(some))
    assert read_uuid(bytes(16), 0) == (NULL_UUID, 16)


def test_tagged_fields_are_written_by_tag_and_read_with_their_bytes() -> None:
    buffer = bytearray()
    write_tags(buffer, [(2, b"two"), (0, b"")], ((1, b"one"), (300, b"more")))
    assert buffer.hex() == "04" + "0000" + "0103" + b"one".hex() + "0203" + b"two".hex() + "ac0204" + b"more".hex()
    assert read_tags(bytes(buffer), 0) == ({0: b"", 1: b"one", 2: b"two", 300: b"more"}, len(buffer))


@pytest.mark.parametrize("others", [((0, b""),), ((5, b""), (5, b"x"))])
def test_a_tag_that_is_there_twice_is_refused(others: tuple[tuple[int, bytes], ...]) -> None:
    with pytest.raises(ProtocolError, match="each tag once"):
        write_tags(bytearray(), [(0, b"x")], others)
    with pytest.raises(ProtocolError, match="tag 5 twice"):
        read_tags(b"\x02\x05\x00\x05\x00", 0)


def test_a_tagged_field_may_not_reach_beyond_the_message() -> None:
    with pytest.raises(ProtocolError, match="size of tag 5 at byte 1: expected up to 1, found 2"):
        read_tags(b"\x01\x05\x02x", 0)


def test_unknown_tagged_fields_are_kept_in_every_struct() -> None:
    plain = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3), ApiVersion(api_key=4, unknown_tags=((9, b"nine"),))])
    plain.unknown_tags = ((7, b"seven"), (1000, b""))
    data = plain.encode(3)
    assert ApiVersionsResponse.read(data, 3) == plain
    with pytest.raises(
        UnsupportedVersionError, match="ApiVersionsResponse version 2 has no tagged fields, which is set"
    ):
        plain.encode(2)


# ---- records


def produce(*records: object) -> ProduceRequest:
    partitions = [PartitionProduceData(index=at, records=each) for at, each in enumerate(records)]  # type: ignore[arg-type]
    return ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=partitions)])


@pytest.mark.parametrize("version", [0, 9])
def test_records_are_views_into_the_frame_and_written_without_a_copy(version: int) -> None:
    large = bytes(range(256)) * 16
    data = produce(large, None).encode(version)
    found = ProduceRequest.read(data, version).topic_data[0].partition_data
    view = found[0].records
    assert isinstance(view, memoryview)
    assert view.obj is data
    assert (view, found[1].records) == (large, None)
    out = Writer()
    ProduceRequest.read(data, version).write(out, version)
    assert sum(isinstance(each, memoryview) and each.obj is data for each in out.buffers()) == 1
    assert b"".join(out.buffers()) == bytes(out) == data


@pytest.mark.parametrize("version", [0, 9])
def test_records_may_be_several_buffers_of_any_kind(version: int) -> None:
    large = bytearray(range(256)) * 16
    parts = [b"head", large, memoryview(large)[1:], memoryview(large).cast("i")]
    whole = b"head" + large + large[1:] + large
    assert (
        produce(parts).encode(version) == produce(whole).encode(version) == produce(memoryview(whole)).encode(version)
    )
    assert produce(parts).size(version) == len(produce(whole).encode(version))
    out = Writer()
    produce(parts, b"small").write(out, version)
    assert len(out) == len(bytes(out))
    assert any(each is large for each in out.buffers())
    assert produce(()).encode(version) == produce(b"").encode(version)


@pytest.mark.parametrize("length", [0, 126, 127, 2047, 2048, 16382, 16383, 2097150, 2097151])
def test_records_of_any_length_read_back(length: int) -> None:
    for version in (8, 9):
        data = produce(bytes(length), b"next").encode(version)
        found = ProduceRequest.read(data, version)
        assert found == produce(bytes(length), b"next")
        assert found.size(version) == len(data)


def test_any_buffer_can_be_read() -> None:
    data = produce(b"records").encode(9)
    for buffer in (bytearray(data), memoryview(data), memoryview(bytearray(b"x" + data))[1:]):
        assert ProduceRequest.read(buffer, 9) == produce(b"records")


# ---- many structs in one step


def partitions(*shapes: tuple[int, int, int]) -> list[MetadataResponsePartition]:
    return [
        MetadataResponsePartition(
            error_code=at % 3,
            partition_index=at,
            leader_id=1000 + at,
            replica_nodes=tuple(range(replicas)),
            isr_nodes=tuple(range(isr)),
            offline_replicas=tuple(range(offline)),
        )
        for at, (replicas, isr, offline) in enumerate(shapes)
    ]


@pytest.mark.parametrize("version", [0, 4, 5, 7, 9, 12])
@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 2, 0)] * 3,
        [(2, 2, 0)] * 50,
        [(1, 0, 0)] * 600,
        [(3, 3, 0)] * 7 + [(3, 2, 1)] + [(3, 3, 0)] * 9,
        [(at % 4, at % 3, 0) for at in range(40)],
        [(0, 0, 0)] * 20 + [(200, 130, 126)] * 5 + [(127, 16, 17)] * 8,
    ],
    ids=["few", "alike", "more than at once", "one odd", "all odd", "long"],
)
def test_partitions_read_back_whatever_arrays_they_have(shapes: list[tuple[int, int, int]], version: int) -> None:
    topic = MetadataResponseTopic(name="t", partitions=partitions(*shapes))
    if version < 5:
        for partition in topic.partitions:
            partition.offline_replicas = ()
    message = MetadataResponse(topics=[topic, topic])
    data = message.encode(version)
    assert len(data) == message.size(version)
    assert MetadataResponse.read(data, version) == message
    assert MetadataResponse.read(memoryview(data), version) == message


@pytest.mark.parametrize("odd", [0, 5, 19])
def test_a_struct_with_unknown_tags_among_many_alike_keeps_them(odd: int) -> None:
    topic = MetadataResponseTopic(name="t", partitions=partitions(*[(2, 2, 0)] * 20))
    topic.partitions[odd].unknown_tags = ((1, b"x"), (70, b"y"))
    message = MetadataResponse(topics=[topic])
    assert MetadataResponse.read(message.encode(12), 12) == message


@pytest.mark.parametrize("version", [0, 12])
def test_every_cut_of_many_structs_is_reported(version: int) -> None:
    topic = MetadataResponseTopic(name="t", partitions=partitions(*[(2, 2, 0)] * 6))
    data = MetadataResponse(topics=[topic]).encode(version)
    for end in range(len(data)):
        with pytest.raises(ProtocolError, match=f"MetadataResponse version {version}"):
            MetadataResponse.read(data[:end], version)


def test_rows_and_shapes_keep_a_bounded_number_of_layouts() -> None:
    rows, shapes = Rows("i[i[i", flexible=True), Shapes("i[i[i", flexible=True)
    for first in range(40):
        for second in range(40):
            lengths = (first, second)
            values = (7, first + 1, *range(first), second + 1, *range(second))
            data = shapes[lengths](*values) + b"\0"
            found, end = rows.read(data * 3, 0, 3)
            if max(lengths) > 16 or lengths not in rows.plans:
                assert (list(found), end) == ([], 0)
            else:
                row = ((7,), tuple(range(first)), tuple(range(second)))
                assert (list(found), end) == ([row] * 3, 3 * len(data))
    assert len(rows.plans) <= Rows.KEPT
    assert len(shapes) <= Shapes.KEPT


def test_an_attempt_to_read_rows_looks_at_a_bounded_number() -> None:
    found, end = Rows("i", flexible=False).read(memoryview(bytes(4000)), 0, 1000)
    assert (len(list(found)), end) == (Rows.AT_ONCE, 4 * Rows.AT_ONCE)


def test_structs_whose_arrays_stand_between_numbers_read_back() -> None:
    state = LeaderAndIsrPartitionState(partition_index=1, isr=(1, 2), replicas=(1, 2, 3), is_new=True)
    out = Writer()
    LeaderAndIsrPartitionState._write_each([state], out, 4)
    many, end = LeaderAndIsrPartitionState._read_many(memoryview(bytes(out) * 5), 0, 5, 4)
    assert (many, end) == ([state] * 5, 5 * len(bytes(out)))


# ---- versions and values


@pytest.mark.parametrize("version", [-1, 2, 99])
def test_a_version_that_there_is_not_is_refused(version: int) -> None:
    said = f"SaslHandshakeRequest has no version {version}: known are 0 to 1"
    with pytest.raises(UnsupportedVersionError, match=said):
        SaslHandshakeRequest().encode(version)
    with pytest.raises(UnsupportedVersionError, match=said):
        SaslHandshakeRequest.read(b"\0\0", version)


def test_a_field_that_a_version_lacks_may_not_be_set_unless_it_is_ignorable() -> None:
    request = MetadataRequest(topics=[], include_topic_authorized_operations=True)
    assert len(request.encode(8)) > 0
    with pytest.raises(UnsupportedVersionError) as caught:
        request.encode(7)
    assert str(caught.value) == (
        "MetadataRequest version 7 has no field include_topic_authorized_operations, which is set"
    )
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=uuid.UUID(int=5))])
    assert MetadataRequest.read(by_id.encode(9), 9).topics == [MetadataRequestTopic(name="t")]


def test_null_where_a_version_has_none_is_refused() -> None:
    assert MetadataRequest(topics=None).encode(1) == b"\xff\xff\xff\xff"
    with pytest.raises(ProtocolError, match="MetadataRequest version 0, topics: expected not null, found null"):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(
        ProtocolError, match="MetadataRequest version 0, topics at byte 0: expected not null, found null"
    ):
        MetadataRequest.read(b"\xff\xff\xff\xff", 0)


def test_a_number_beyond_its_type_is_refused_and_its_struct_named() -> None:
    topic = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(error_code=40_000)])
    with pytest.raises(ProtocolError, match="MetadataResponse version 12, a number in MetadataResponsePartition"):
        MetadataResponse(topics=[topic]).encode(12)


def test_an_error_tells_the_struct_and_the_position_that_were_reached() -> None:
    topic = MetadataResponseTopic(name="a longer name", partitions=partitions((2, 2, 0), (2, 2, 0)))
    data = MetadataResponse(topics=[topic]).encode(9)
    last = data.index((1001).to_bytes(4, "big")) - 6  # where the second partition begins
    with pytest.raises(ProtocolError) as caught:
        MetadataResponse.read(data[: last + 7], 9)
    said = f"MetadataResponsePartition at byte {last}: expected more bytes, found the end after {last + 7}"
    assert str(caught.value) == f"MetadataResponse version 9, {said}"
    with pytest.raises(ProtocolError) as caught:
        MetadataResponse.read(data[: last - 34], 9)
    said = f"partitions at byte {last - 35}: expected at most 0 elements, found 2"
    assert str(caught.value) == f"MetadataResponse version 9, {said}"


def test_a_long_array_of_numbers_beyond_their_type_is_refused_and_its_struct_named() -> None:
    topic = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(replica_nodes=(2**31,) * 200)])
    with pytest.raises(ProtocolError, match="a number in MetadataResponsePartition"):
        MetadataResponse(topics=[topic]).encode(12)


def test_bytes_behind_a_message_are_refused() -> None:
    with pytest.raises(ProtocolError, match="FetchResponse version 0, bytes after the message at byte 4"):
        FetchResponse.read(bytes(5), 0)
    assert FetchResponse.read_at(b"?" + bytes(5), 1, 0) == (FetchResponse(), 5)
