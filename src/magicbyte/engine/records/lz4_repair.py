"""Repair LZ4 wrappers that have the header checksum of the other message format, without touching their blocks.

Magic 0 must have the checksum that the first Kafka clients computed wrongly, magic 1 the correct one. Some clients
wrote the other one. Source: KIP-57.
"""

from __future__ import annotations

from magicbyte.engine.codecs import Codec, Lz4Header, set_lz4_header_checksum
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.layout import CODEC_MASK, MAGIC, MESSAGE_CRC, Dialect
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.records.scan import BatchTable
from magicbyte.engine.wire.checksum import crc32


def repair_lz4_headers(table: BatchTable) -> tuple[memoryview, int]:
    """Return the entries of `table` with the LZ4 header checksum that their format requires, and how many were
    repaired.

    A repair changes one byte, the header checksum, and the CRC of the message. If nothing needs repair, the buffer of
    the table is returned. v2 batches and the enriched dialect never had the problem. Raises CorruptRecordError, with
    the position in the table's buffer, for a wrapper that fails its CRC, which must not get a valid one.
    """
    entries = table.buffer[: table.end]
    if table.dialect is Dialect.ENRICHED:
        return entries, 0
    repaired: bytearray | None = None
    count = 0
    for row in range(len(table)):
        magic, position = int(table.magic[row]), int(table.position[row])
        if magic > 1 or int(table.attributes[row]) & CODEC_MASK != Codec.LZ4:
            continue
        end = position + int(table.size[row])
        message = MessageView(entries[position:end])
        try:
            value = message.value
            if value is None:
                continue
            frame = memoryview(bytearray(value[:15]))
            if not set_lz4_header_checksum(frame, Lz4Header.CORRECT if magic else Lz4Header.BROKEN):
                continue
            message.verify()
        except CorruptRecordError as error:
            raise error.locate(shift=position) from None
        if repaired is None:
            repaired = bytearray(entries)
        start = end - len(value)
        repaired[start : start + len(frame)] = frame
        with memoryview(repaired)[position:end] as whole:
            MESSAGE_CRC.write(whole, crc32(whole[MAGIC.start :]))
        count += 1
    return (entries if repaired is None else memoryview(repaired).toreadonly()), count
