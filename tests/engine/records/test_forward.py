"""Headers for batches that stay closed, many at a time: what the one-by-one way makes, and damage that stays damage."""

import random
from typing import Any

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.compiled.checksums import CASTAGNOLI
from magicbyte.engine.protocol.fields import as_bytes
from magicbyte.engine.records import forward_kernels as kernels
from magicbyte.engine.records.batch import RecordBatch, build_batch
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.forward import powers
from magicbyte.engine.wire.checksum import crc32c
from magicbyte.tools.mirror.rewrite import ProducerIdentity, closed_batch
from tools.mirror.sets import some, stored

OURS = ProducerIdentity(4000, 3, 0x7FFFFFF0)
NO_PRODUCER = ProducerIdentity()
NO_LIMIT = 1 << 62
OPENED = 0x60


def forwarded(
    data: bytes,
    identity: ProducerIdentity = OURS,
    *,
    compiled: bool,
    stable: int = NO_LIMIT,
    codecs: int = 0x1F,
    room: int = 9,
) -> tuple[list[bytes], list[list[int]], list[int]]:
    """Headers, rows and state that the kernel leaves."""
    form: Any = form_for(compiled=compiled)
    heads, rows = form.outputs([(room * kernels.HEADER, "B"), (room * kernels.ROW, "q")])
    state = form.int64([0, 0, stable, codecs, OPENED, *identity])
    arguments = form.bytes_of(data), len(data), heads, rows, state, form.int64(powers()), form.crc_table(CASTAGNOLI)
    count = form.form(kernels.forward_batches)(*arguments)
    made = [bytes(heads[at * kernels.HEADER : (at + 1) * kernels.HEADER]) for at in range(count)]
    table = [[int(each) for each in rows[at * kernels.ROW : (at + 1) * kernels.ROW]] for at in range(count)]
    return made, table, [int(each) for each in state]


def batches(*sizes: int) -> list[bytes]:
    found, offset = [], 7
    for turn, size in enumerate(sizes):
        found.append(stored(Format.V2, list(Codec)[turn % 5], offset, size, producer_id=turn - 1, base_sequence=turn))
        offset += size
    return found


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("identity", [OURS, NO_PRODUCER])
def test_the_headers_are_those_of_the_one_by_one_way(identity: ProducerIdentity, compiled: bool) -> None:
    sources = batches(1, 10, 300, 2, 40)
    made, rows, state = forwarded(b"".join(sources), identity, compiled=compiled)
    at, offset = 0, 7
    for head, row, source in zip(made, rows, sources, strict=True):
        batch = RecordBatch(memoryview(source))
        assert head == as_bytes(closed_batch(batch, identity))[: kernels.HEADER]
        count = batch.record_count
        assert row == [at, len(source), offset, offset + count, count, batch.codec]
        identity, at, offset = identity.behind(count), at + len(source), offset + count
    assert (state[kernels.AT], state[kernels.FIRST]) == (at, offset)
    assert state[kernels.SEQUENCE] == identity.sequence


@pytest.mark.parametrize("compiled", [False, True])
def test_of_sizes_of_all_kinds_the_checksum_holds(compiled: bool) -> None:
    chance = random.Random(5)
    for size in (0, 1, 2, 3, 255, 256, 4095, 65_537, 1 << 20):
        source = build_batch(
            chance.randbytes(size),
            base_offset=3,
            base_timestamp=4,
            max_timestamp=5,
            last_offset_delta=0,
            record_count=1,
        )
        ((head,), _, _) = forwarded(bytes(source), compiled=compiled)
        batch = RecordBatch.parse(memoryview(head + bytes(source)[kernels.HEADER :]))
        assert batch is not None
        batch.verify()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_damaged_batch_stays_damaged_wherever_its_checksum_reaches(compiled: bool) -> None:
    sound = stored(Format.V2, Codec.GZIP, 0, 3)
    survived = []
    for at in range(17, len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 1 << at % 8
        made, _, _ = forwarded(bytes(damaged), compiled=compiled)
        for head in made:
            whole = head + bytes(damaged[kernels.HEADER :])
            survived += [at] if RecordBatch(memoryview(whole)).crc == crc32c(whole[21:]) else []
    assert survived == []


@pytest.mark.parametrize("compiled", [False, True])
def test_it_ends_before_a_batch_that_must_be_decompressed_or_left_out(compiled: bool) -> None:
    sound, behind = batches(10, 5)
    holes = encode_records(some(17, 5, holes=True), Format.V2, Codec.GZIP)
    marker = stored(Format.V2, Codec.NONE, 17, 1, producer_id=1, is_control=True)
    horizon = stored(Format.V2, Codec.GZIP, 17, 5, has_delete_horizon=True)
    empty = build_batch(b"", base_offset=17, last_offset_delta=0, base_timestamp=1, max_timestamp=1, record_count=0)
    wrapper = stored(Format.V1, Codec.GZIP, 17, 5)
    earlier = stored(Format.V2, Codec.GZIP, 16, 5)
    for other in (holes, marker, horizon, bytes(empty), wrapper, earlier, behind[:-1], behind[:60], b""):
        made, rows, state = forwarded(sound + other, compiled=compiled)
        assert (len(made), rows[0][:4], state[kernels.AT]) == (1, [0, len(sound), 7, 17], len(sound))
    assert len(forwarded(sound + behind, compiled=compiled, stable=22)[0]) == 2
    assert len(forwarded(sound + behind, compiled=compiled, stable=21)[0]) == 1
    assert len(forwarded(sound + behind, compiled=compiled, codecs=0b01)[0]) == 1  # the second has gzip
    assert len(forwarded(sound + behind, compiled=compiled, room=1)[0]) == 1


@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_give_the_same_in_both_forms(seed: int) -> None:
    chance, sound = random.Random(seed), b"".join(batches(3, 4, 5))
    for _ in range(200):
        data = bytearray(sound)
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 127, 128, 255])
        cut = bytes(data[: chance.randrange(len(data) + 1)])
        assert forwarded(cut, compiled=True) == forwarded(cut, compiled=False)
