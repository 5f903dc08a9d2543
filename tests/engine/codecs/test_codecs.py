"""All four codecs: round trips, peers, bounds, and what any bytes at all may do."""

import contextlib
import gzip
import random
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import kafka.codec
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from builders import tries
from magicbyte.engine.codecs import Codec, Lz4Header, OutputFull, compress, decompress, decompress_into
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
RANDOM = random.Random(7)
TEXT = b"".join(b'{"id": %d, "user": "user-%d"}\n' % (i, i % 97) for i in range(5000))
NOISE = RANDOM.randbytes(200_000)
SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": TEXT,
    "noise": NOISE,
    "mixed": b"".join(NOISE[i : i + 50] + TEXT[i : i + 50] for i in range(0, 100_000, 50)),
    "zeros": bytes(300_000),
    "a block exactly": TEXT[: 64 << 10],
    "a block and a byte": TEXT[: (64 << 10) + 1],
}
NOT_EMPTY = [name for name in SAMPLES if name != "empty"]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("name", SAMPLES)
def test_decompress_after_compress_is_the_identity(codec: Codec, name: str) -> None:
    plain = SAMPLES[name]
    assert decompress(codec, compress(codec, plain), limit=len(plain)) == plain


@tries(200)
@given(
    codec=st.sampled_from(list(Codec)),
    seed=st.binary(max_size=300),
    times=st.integers(1, 900),
    header=st.sampled_from([Lz4Header.CORRECT, Lz4Header.BROKEN]),
)
def test_any_bytes_come_back(codec: Codec, seed: bytes, times: int, header: Lz4Header) -> None:
    plain = seed * times
    compressed = compress(codec, plain, lz4_header=header)
    assert decompress(codec, compressed, limit=len(plain), lz4_header=header) == plain


@pytest.mark.parametrize("codec", Codec)
def test_bytearrays_and_views_are_as_good_as_bytes(codec: Codec) -> None:
    compressed = compress(codec, memoryview(bytearray(b"...") + TEXT)[3:])
    assert decompress(codec, bytearray(compressed), limit=1 << 20) == TEXT
    assert decompress(codec, memoryview(b"." + compressed)[1:], limit=1 << 20) == TEXT


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 12)), (Codec.ZSTD, (1, 19))])
def test_a_higher_level_makes_less(codec: Codec, levels: tuple[int, int]) -> None:
    low, high = (compress(codec, TEXT, level=level) for level in levels)
    assert len(high) < len(low)
    assert decompress(codec, low, limit=len(TEXT)) == decompress(codec, high, limit=len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_it_shrinks_no_less_than_the_jvms_defaults(codec: Codec) -> None:
    jvm = {  # the same algorithms, or better ones than Java has
        Codec.GZIP: zlib.compress(TEXT, 6),
        Codec.SNAPPY: kafka.codec.snappy_encode(TEXT),
        Codec.LZ4: lz4.frame.compress(TEXT, block_linked=False),
        Codec.ZSTD: zstandard.compress(TEXT, 3),
    }
    assert len(compress(codec, TEXT)) <= 1.02 * len(jvm[codec])


@pytest.mark.parametrize("name", NOT_EMPTY)  # Kafka compresses nothing that is empty, and peers differ on it
def test_peers_read_what_we_write(name: str) -> None:
    plain = SAMPLES[name]
    assert gzip.decompress(compress(Codec.GZIP, plain)) == plain
    assert kafka.codec.gzip_decode(compress(Codec.GZIP, plain)) == plain
    assert kafka.codec.snappy_decode(compress(Codec.SNAPPY, plain)) == plain
    assert lz4.frame.decompress(compress(Codec.LZ4, plain)) == plain
    assert kafka.codec.lz4_decode(compress(Codec.LZ4, plain)) == plain
    assert kafka.codec.lz4_decode_old_kafka(compress(Codec.LZ4, plain, lz4_header=Lz4Header.BROKEN)) == plain
    assert zstandard.decompress(compress(Codec.ZSTD, plain)) == plain
    assert kafka.codec.zstd_decode(compress(Codec.ZSTD, plain)) == plain


@pytest.mark.parametrize("name", NOT_EMPTY)
def test_we_read_what_peers_write(name: str) -> None:
    plain = SAMPLES[name]
    for codec, data, header in (
        (Codec.GZIP, gzip.compress(plain), Lz4Header.CORRECT),
        (Codec.GZIP, bytes(cramjam.gzip.compress(plain)), Lz4Header.CORRECT),
        (Codec.SNAPPY, kafka.codec.snappy_encode(plain), Lz4Header.CORRECT),
        (Codec.SNAPPY, kafka.codec.snappy_encode(plain, xerial_compatible=False), Lz4Header.CORRECT),
        (Codec.LZ4, kafka.codec.lz4_encode(plain), Lz4Header.CORRECT),
        (Codec.LZ4, kafka.codec.lz4_encode_old_kafka(plain), Lz4Header.BROKEN),
        (Codec.LZ4, lz4.frame.compress(plain, block_linked=False), Lz4Header.CORRECT),
        (Codec.ZSTD, kafka.codec.zstd_encode(plain), Lz4Header.CORRECT),
        (Codec.ZSTD, bytes(cramjam.zstd.compress(plain)), Lz4Header.CORRECT),
    ):
        assert decompress(codec, data, limit=len(plain), lz4_header=header) == plain


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("name", SAMPLES)
def test_decompress_into_fills_a_buffer_of_the_exact_size_and_no_byte_more(codec: Codec, name: str) -> None:
    plain = SAMPLES[name]
    scratch = bytearray(b"\xaa" * (len(plain) + 1000))
    out = memoryview(scratch)[500 : 500 + len(plain)]
    assert decompress_into(codec, memoryview(compress(codec, plain)), out) == len(plain)
    assert out == plain
    assert scratch[:500] == scratch[500 + len(plain) :] == b"\xaa" * 500


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("name", NOT_EMPTY)
def test_a_buffer_too_small_is_said_so_and_nothing_is_written_beyond_it(codec: Codec, name: str) -> None:
    plain = SAMPLES[name]
    compressed = memoryview(compress(codec, plain))
    for room in {0, len(plain) // 2, len(plain) - 1}:
        scratch = bytearray(b"\xaa" * (len(plain) + 1000))
        with pytest.raises(OutputFull):
            decompress_into(codec, compressed, memoryview(scratch)[500 : 500 + room])
        assert scratch[:500] == b"\xaa" * 500
        assert scratch[500 + room :] == b"\xaa" * (500 + len(plain) - room)


@pytest.mark.parametrize("codec", CODECS)
def test_no_bytes_are_no_compressed_data(codec: Codec) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(codec, b"", limit=100)


def test_uncompressed_data_over_the_limit_is_too_large() -> None:
    with pytest.raises(BatchTooLargeError):
        decompress(Codec.NONE, b"12345", limit=4)


@pytest.mark.parametrize("codec", CODECS)
def test_four_threads_at_once_do_not_disturb_each_other(codec: Codec) -> None:
    samples = [TEXT, NOISE, bytes(300_000), TEXT[::-1]]
    sound = []

    def work(plain: bytes) -> None:
        sound.append(all(decompress(codec, compress(codec, plain), limit=1 << 20) == plain for _ in range(20)))

    threads = [threading.Thread(target=work, args=(plain,)) for plain in samples]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sound == [True] * 4


# ---- bombs and lies


def zstd_frame(window_log: int, *blocks: tuple[int, bytes, int]) -> bytes:
    """Build a frame without content size from blocks of (type, bytes, stated size)."""
    frame = bytearray(b"\x28\xb5\x2f\xfd\x00" + bytes([(window_log - 10) << 3]))
    for i, (kind, content, size) in enumerate(blocks):
        frame += (size << 3 | kind << 1 | (i == len(blocks) - 1)).to_bytes(3, "little") + content
    return bytes(frame)


ZEROS = bytes(50 << 20)
BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, lambda: zlib.compress(ZEROS, 9, 31)),
    "gzip that claims to hold 4 GiB": (Codec.GZIP, lambda: zlib.compress(ZEROS, 9, 31)[:-4] + b"\xff" * 4),
    "gzip that says it holds nothing": (Codec.GZIP, lambda: zlib.compress(ZEROS, 9, 31)[:-4] + bytes(4)),
    "gzip of many members": (Codec.GZIP, lambda: zlib.compress(bytes(100_000), 9, 31) * 500),
    "snappy stream": (Codec.SNAPPY, lambda: compress(Codec.SNAPPY, ZEROS)),
    "snappy block": (Codec.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(ZEROS))),
    "snappy blocks that say they hold 4 GiB": (
        Codec.SNAPPY,
        lambda: (
            compress(Codec.SNAPPY, b"x")
            + (struct.pack(">i", 1 << 20) + b"\xff\xff\xff\xff\x0f" + bytes((1 << 20) - 5)) * 2
        ),
    ),
    "lz4": (Codec.LZ4, lambda: compress(Codec.LZ4, ZEROS)),
    "lz4 of 4 MiB blocks": (Codec.LZ4, lambda: lz4.frame.compress(ZEROS, block_size=7, block_linked=False)),
    "lz4 of 4 MiB blocks without content size": (
        Codec.LZ4,
        lambda: lz4.frame.compress(ZEROS, block_size=7, block_linked=False, store_size=False),
    ),
    "zstd": (Codec.ZSTD, lambda: zstandard.compress(ZEROS)),
    "zstd without content size": (
        Codec.ZSTD,
        lambda: zstandard.ZstdCompressor(write_content_size=False).compress(ZEROS),
    ),
    "zstd of run-length blocks": (Codec.ZSTD, lambda: zstd_frame(27, *[(1, b"x", 128 << 10)] * 400)),
    "zstd of many frames": (Codec.ZSTD, lambda: zstandard.compress(bytes(100_000)) * 500),
    "zstd that says it holds 2 ** 60 bytes": (
        Codec.ZSTD,
        lambda: b"\x28\xb5\x2f\xfd\xc0\x58" + struct.pack("<Q", 1 << 60) + bytes([0x03, 0x00, 0x10, 0x78]),
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_the_limit_and_costs_no_more_memory_than_it(name: str) -> None:
    codec, make = BOMBS[name]
    bomb = make()
    limit = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError):
            decompress(codec, bomb, limit=limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    block = 4 << 20 if "4 MiB" in name else 1 << 18
    assert peak < 2 * limit + 2 * block + len(bomb)


@pytest.mark.parametrize("name", [name for name in BOMBS if "hold 4 GiB" not in name and "2 **" not in name])
def test_a_bomb_over_the_limit_is_called_too_large(name: str) -> None:
    codec, make = BOMBS[name]
    with pytest.raises(BatchTooLargeError, match="1048576"):
        decompress(codec, make(), limit=1 << 20)


@pytest.mark.parametrize(
    ("codec", "claim"),
    [
        (Codec.GZIP, compress(Codec.GZIP, b"small")[:-4] + b"\xff\xff\xff\x7f"),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + bytes(20)),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x68\x40" + struct.pack("<Q", 1 << 62) + b"\x00" + b"\1" * 20),
        (Codec.ZSTD, zstd_frame(27, (0, b"small", 5)) + zstd_frame(31, (0, b"small", 5))),
    ],
)
def test_a_small_payload_that_claims_much_allocates_little(codec: Codec, claim: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError):
            decompress(codec, claim, limit=1 << 30, lz4_header=Lz4Header.ANY)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("codec", CODECS)
def test_a_million_bytes_of_tiny_parts_take_linear_time(codec: Codec) -> None:
    part = {Codec.GZIP: gzip.compress(b""), Codec.ZSTD: zstandard.compress(b"")}.get(codec) or compress(codec, b"")
    if codec is Codec.LZ4:  # stored blocks without content
        data = part[:7] + struct.pack("<I", 1 << 31) * 250_000 + bytes(4)
    else:
        data = part * (1_000_000 // len(part))
    assert decompress(codec, data, limit=10) == b""


# ---- any bytes at all

ANY_HEADER = st.sampled_from(list(Lz4Header))


def survives(codec: Codec, data: bytes, header: Lz4Header, limit: int) -> None:
    with contextlib.suppress(CorruptRecordError):
        assert len(decompress(codec, data, limit=limit, lz4_header=header)) <= limit
    scratch = bytearray(b"\xaa" * (limit + 64))
    with contextlib.suppress(CorruptRecordError, OutputFull):
        out = memoryview(scratch)[32 : 32 + limit]
        assert decompress_into(codec, memoryview(data), out, lz4_header=header) <= limit
    assert scratch[:32] == scratch[32 + limit :] == b"\xaa" * 32


@tries(300)
@given(codec=st.sampled_from(CODECS), data=st.binary(max_size=200), header=ANY_HEADER, limit=st.integers(0, 2000))
def test_junk_is_corrupt_or_within_the_limit(codec: Codec, data: bytes, header: Lz4Header, limit: int) -> None:
    magic = {Codec.GZIP: b"\x1f\x8b\x08\x00", Codec.SNAPPY: b"\x82SNAPPY\0", Codec.LZ4: b"\x04\x22\x4d\x18\x60\x40\x82"}
    survives(codec, data, header, limit)
    survives(codec, magic.get(codec, b"\x28\xb5\x2f\xfd") + data, header, limit)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(4))
def test_mutated_payloads_are_corrupt_or_within_the_limit(codec: Codec, seed: int) -> None:
    rng = random.Random(seed)
    plains = [TEXT[:3000], NOISE[:500], bytes(5000), TEXT[: 70 << 10]]
    originals = [compress(codec, plain) for plain in plains]
    if codec is Codec.LZ4:
        options = {"block_linked": False, "block_checksum": True, "content_checksum": True}
        originals += [lz4.frame.compress(plain, **options) for plain in plains]
    if codec is Codec.ZSTD:
        streaming = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
        originals += [streaming.compress(plain) for plain in plains]
    for _ in range(500):
        data = bytearray(rng.choice(originals))
        for _ in range(rng.choice((1, 1, 2, 8))):
            action, at = rng.randrange(5), rng.randrange(len(data))
            if action == 0:
                data[at] = rng.randrange(256)
            elif action == 1:
                data[at] ^= 1 << rng.randrange(8)
            elif action == 2:
                del data[at : at + rng.randrange(1, 9)]
            elif action == 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            else:
                data[at : at + 4] = rng.choice((b"\xff" * 4, bytes(4), b"\xff\xff\xff\x7f"))
            data = data or bytearray(1)
        survives(codec, bytes(data), rng.choice(list(Lz4Header)), rng.choice((0, 100, 3000, 5000, 1 << 20)))
