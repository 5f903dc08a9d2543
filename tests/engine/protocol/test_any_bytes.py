"""No bytes crash, hang or blow up a reader: they are a message, or there is a ProtocolError that says what is wrong."""

import contextlib
import random
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import tries
from engine.protocol.any_bytes import LIES, changed, check_any_bytes
from engine.protocol.any_values import encoded
from engine.protocol.generated import codecs, compiled
from engine.protocol.golden_messages import golden_messages
from engine.protocol.interpreter import Values, present, write
from engine.protocol.schemas import all_schemas, versions
from engine.protocol.values import examples
from magicbyte.engine.errors import MagicbyteError, ProtocolError
from magicbyte.engine.protocol import APIS, Frames, Message, read_request, read_response
from magicbyte.schema import FieldSchema, MessageSchema

SMALL = 16384  # bytes that reading may take, whatever there is to read
TIMES = 80  # bytes of memory for a byte of a message: an empty struct is an object with a place in a list


@pytest.mark.parametrize("part", range(4))
def test_changed_golden_messages_are_read_or_refused_as_the_interpreter_does(part: int) -> None:
    rng = random.Random(part)
    kept = sum(
        check_any_bytes(codecs()[name], version, changed(data, rng)) for name, version, _, data in golden_messages()
    )
    assert 300 < kept < len(golden_messages()) / 2


def test_changed_messages_with_encoded_integers_are_read_or_refused_as_the_interpreter_does() -> None:
    rng = random.Random(9)
    for name in (
        "MetadataResponse",
        "FetchResponse",
        "ProduceRequest",
        "OffsetFetchResponse",
        "DescribeClusterResponse",
    ):
        codec = compiled(encoded(all_schemas()[name], rng))
        for version in codec.schema.valid_versions:
            for values in examples(codec.schema, version):
                data = write(codec.schema, version, values)
                for _ in range(10):
                    check_any_bytes(codec, version, changed(data, rng))


@given(data=st.data())
@tries(300)
def test_junk_is_a_message_or_refused(data: st.DataObject) -> None:
    name, version = data.draw(st.sampled_from(versions()))
    check_any_bytes(codecs()[name], version, data.draw(st.binary(max_size=200)))


def test_a_message_cut_anywhere_is_refused() -> None:
    for name, version, _, data in golden_messages()[::7]:
        for end in range(0, len(data), max(1, len(data) // 10)):
            with pytest.raises(ProtocolError):
                codecs()[name].kind.read(data[:end], version)


@given(junk=st.binary(max_size=300), key=st.sampled_from(sorted(APIS)), version=st.integers(-1, 20))
@tries(300)
def test_frames_of_junk_are_refused_with_our_errors(junk: bytes, key: int, version: int) -> None:
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    for frame in (junk, head + junk):
        with contextlib.suppress(MagicbyteError):
            read_request(frame)
        with contextlib.suppress(MagicbyteError):
            read_response(frame, APIS[key], version)
    with contextlib.suppress(ProtocolError):
        assert all(len(frame) <= 100 for frame in Frames(100).feed(junk))


# ---- memory


def peak(kind: type[Message], version: int, data: bytes) -> int:
    """Return how much memory reading took at most; tracemalloc runs."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    with contextlib.suppress(ProtocolError):
        kind.read(data, version)
    return tracemalloc.get_traced_memory()[1] - before


def check_memory(messages: Sequence[tuple[str, int, bytes]]) -> None:
    """Check what reading takes. The messages are made before: tracing triples the time of all that allocates."""
    kinds = {name: codecs()[name].kind for name, _, _ in messages}
    tracemalloc.start()
    try:
        for name, version, data in messages:
            assert peak(kinds[name], version, data) <= SMALL + TIMES * len(data), (name, version, data)
    finally:
        tracemalloc.stop()


def test_lengths_and_counts_that_lie_take_no_memory() -> None:
    rng, lying = random.Random(3), list[tuple[str, int, bytes]]()
    for name, version, _, data in golden_messages()[::2]:
        for _ in range(4):
            at, lie = rng.randrange(len(data) + 1), rng.choice(LIES)
            lying.append((name, version, data[:at] + lie + data[at + len(lie) :]))
    check_memory(lying)


def test_arrays_of_the_smallest_elements_take_a_small_multiple_of_their_bytes() -> None:
    check_memory(
        [
            (name, version, write(schema, version, crowded(schema, schema.fields, version, 150)))
            for name, schema in all_schemas().items()
            for version in {schema.valid_versions.lowest, schema.valid_versions.highest} & set(schema.valid_versions)
        ]
    )


def crowded(schema: MessageSchema, fields: tuple[FieldSchema, ...], version: int, count: int) -> Values:
    """Return values whose arrays have `count` elements each, with the least of bytes in them."""
    values: Values = {}
    for field in present(fields, version):
        if field.type.struct:
            inner = crowded(schema, schema.structs[field.type.name].fields, version, 0)
            values[field.json_name] = [inner] * count if field.type.array else inner
        elif field.type.array:
            texts = {"string": "", "bytes": "", "uuid": "A" * 22}
            values[field.json_name] = [texts.get(field.type.name, 0)] * count
        elif field.type.name == "records":
            values[field.json_name] = ""
    return values
