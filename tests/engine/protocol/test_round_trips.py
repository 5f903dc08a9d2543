"""Messages read back as written, for any values: as the schemas are, and with random encodings of the integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import tries
from engine.protocol.any_values import encoded_codec, message_values
from engine.protocol.generated import codecs
from engine.protocol.interpreter import read, write
from engine.protocol.schemas import all_schemas, versions
from engine.protocol.values import examples
from magicbyte.engine.protocol.message import Writer


@pytest.mark.parametrize("part", range(8))
def test_every_version_reads_back_with_random_encodings_on_its_integers(part: int) -> None:
    for name in sorted(all_schemas())[part::8]:
        codec = encoded_codec(name)
        for version in codec.schema.valid_versions:
            for values in examples(codec.schema, version):
                message = codec.message(values)
                data = bytes(message.encode(version))
                assert data == write(codec.schema, version, values), (name, version, values)
                assert message.size(version) == len(data), (name, version, values)
                assert codec.read(version, data) == values, (name, version)


@tries(500)
@given(data=st.data(), encodings=st.booleans())
def test_any_values_read_back_in_any_version(data: st.DataObject, encodings: bool) -> None:
    name, version = data.draw(st.sampled_from(versions()))
    values = data.draw(message_values(name, version, encodings=encodings))
    codec = encoded_codec(name) if encodings else codecs()[name]
    message = codec.message(values)
    out = Writer()
    message.write(out, version)
    assert bytes(out) == b"".join(out.buffers()) == write(codec.schema, version, values)
    assert message.size(version) == len(bytes(out))
    assert codec.read(version, bytes(out)) == values
    assert read(codec.schema, version, bytes(out)) == (values, len(bytes(out)))
