"""The same bytes through Kafka's Java classes and through ours, on random batches of every format and codec."""

import random

import pytest

from engine.log.test_verify import READ_BY_KAFKA
from interop import jvm, ours
from interop.batches import FORMATS, Json, batches, expected
from magicbyte.engine.records.batch import build_batch

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

SEED = 20260101
MARKERS = [
    {"marker": kind, "offset": offset, "timestamp": 3000, "leaderEpoch": 2, "producerId": 9, "producerEpoch": 1}
    | {"coordinatorEpoch": 4}
    for offset, kind in ((2**45, "COMMIT"), (2**45 + 1, "ABORT"))
]


@pytest.fixture(scope="module")
def written_by_java() -> dict[tuple[int, str], bytes]:
    """The log bytes of `batches(SEED, ...)` by format and codec."""
    return {(magic, codec): jvm.encode(batches(SEED, magic, codec)) for magic, codec in FORMATS}


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_we_read_what_java_wrote_as_java_reads_it(
    magic: int, codec: str, written_by_java: dict[tuple[int, str], bytes]
) -> None:
    data = written_by_java[magic, codec]
    found = ours.decode(data)
    assert found == jvm.decode(data)
    assert found == expected(batches(SEED, magic, codec))


def test_all_formats_in_one_log_and_markers_between_read_as_java_reads_them(
    written_by_java: dict[tuple[int, str], bytes],
) -> None:
    data = b"".join(written_by_java.values()) + jvm.encode(MARKERS) + written_by_java[2, "none"]
    assert ours.decode(data) == jvm.decode(data)


def test_a_log_large_enough_for_the_compiled_kernels_reads_as_java_reads_it(
    written_by_java: dict[tuple[int, str], bytes],
) -> None:
    data = b"".join(written_by_java.values())
    assert len(data) > 8 << 20
    found = jvm.decode(data)
    assert ours.decode(data, packed=True) == found
    assert ours.decode(data) == found


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_damage_that_java_refuses_we_refuse_after_the_same_records(
    magic: int, codec: str, written_by_java: dict[tuple[int, str], bytes]
) -> None:
    rng = random.Random(SEED)
    data = bytearray(written_by_java[magic, codec])
    data[rng.randrange(len(data) // 2, len(data) - 200)] ^= 0x40
    found, refusal = ours.decode_to_damage(bytes(data))
    *sound, damage = jvm.decode(bytes(data))
    assert "error" in damage
    assert refusal is not None
    assert found == sound


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_java_reads_what_we_wrote_as_it_was_given(magic: int, codec: str) -> None:
    specs = batches(SEED, magic, codec)
    assert jvm.decode(ours.encode(specs)) == expected(specs)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_we_write_uncompressed_batches_byte_for_byte_as_java_does(
    magic: int, written_by_java: dict[tuple[int, str], bytes]
) -> None:
    assert ours.encode(batches(SEED, magic, "none")) == written_by_java[magic, "none"]


@pytest.mark.parametrize(
    ("magic", "codec", "target"),
    [(*format_, target) for format_ in FORMATS for target in range(format_[0]) if format_[1] != "zstd"],
)
def test_we_convert_down_as_java_does_for_an_old_consumer(
    magic: int, codec: str, target: int, written_by_java: dict[tuple[int, str], bytes]
) -> None:
    data = written_by_java[magic, codec]
    found = ours.convert(data, target)
    assert jvm.decode(found) == ours.decode(found) == jvm.decode(jvm.convert("down", target, data))


def as_produced(specs: list[Json]) -> list[Json]:
    """Return batches as an old producer sends them: the timestamps its own, offsets without holes."""
    offset = specs[0]["baseOffset"]
    for spec in specs:
        spec["baseOffset"] = offset
        if spec["magic"]:
            spec["timestampType"], spec["logAppendTime"] = "CreateTime", -1
        for record in spec["records"]:
            record["offset"] = offset
            offset += 1
    return specs


@pytest.mark.parametrize(
    ("magic", "codec", "target"), [(*format_, target) for format_ in FORMATS for target in range(format_[0] + 1, 3)]
)
def test_we_convert_up_as_java_does_for_an_old_producer(magic: int, codec: str, target: int) -> None:
    data = jvm.encode(as_produced(batches(SEED, magic, codec)))
    found = ours.convert(data, target)
    assert jvm.decode(found) == ours.decode(found) == jvm.decode(jvm.convert("up", target, data))


def test_odd_payloads_that_java_reads_we_read() -> None:
    odd = b"".join(
        build_batch(payload, base_offset=20 * at, last_offset_delta=19, base_timestamp=5, max_timestamp=5,
                    record_count=20, attributes=codec)
        for at, (codec, payload) in enumerate(READ_BY_KAFKA.values())
    )  # fmt: skip
    found = jvm.decode(odd)
    assert len(found) == 20 * len(READ_BY_KAFKA)
    assert ours.decode(odd) == found
