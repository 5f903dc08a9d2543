"""What must hold for any bytes at all that come in as a message; and bytes that are nearly messages."""

import random

from engine.protocol.generated import Codec
from engine.protocol.interpreter import RefusedError, Values, read, write
from magicbyte.engine.errors import ProtocolError

LIES = (  # lengths and counts that promise much, in both forms; varints that are too long, or longer than needed
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x7f\xff", b"\xff\xff", b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x1f", b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x00", b"\x81\x00",
)  # fmt: skip


def check_any_bytes(codec: Codec, version: int, data: bytes) -> bool:
    """Return whether `data` is a message of that version.

    Fails by any exception but a ProtocolError, unless the interpreter of schemas says the same of the bytes, and unless
    the message is written as the interpreter writes it and read again.
    """
    expected, message, refusal = interpreted(codec, version, data), None, ""
    try:
        message = codec.kind.read(data, version)
    except ProtocolError as error:
        refusal = str(error)
    where = (codec.schema.name, version, data.hex(), refusal)
    assert (message is None) == (expected is None), where
    if message is None:
        return False
    values = codec.values(message, version)
    assert repr(values) == repr(expected), where  # as text, for NaN
    written = bytes(message.encode(version))
    assert written == write(codec.schema, version, values), where
    assert repr(codec.read(version, written)) == repr(values), where
    return True


def interpreted(codec: Codec, version: int, data: bytes) -> Values | None:
    try:
        values, end = read(codec.schema, version, data)
    except RefusedError:
        return None
    return values if end == len(data) else None


def changed(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with one to three changes: other bits, cuts, insertions, lengths that lie."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(6):
            case 0 if found:
                found[at - 1] ^= 1 << rng.randrange(8)
            case 1 if found:
                found[at - 1] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))
            case 2:
                del found[at:]
            case 3:
                lie = rng.choice(LIES)
                found[at : at + rng.choice((0, 1, len(lie)))] = lie
            case 4:
                found[at:at] = rng.randbytes(rng.randrange(1, 5))
            case _:
                del found[at : at + rng.randrange(1, 6)]
    return bytes(found)
