"""Generated from EndTxnMarker.json. Do not edit: the schema compiler makes it.

EndTxnMarker: version 0.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.message import Message, Writer

_I = struct.Struct(">i")


class EndTxnMarker(Message, gc=False, kw_only=True):
    """Value of the control record that ends a transaction in a partition, after an int16 version; its key says whether
    it commits or aborts.

    coordinator_epoch: Epoch of the transaction coordinator that had it written, so that a marker of an older
        coordinator is refused.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(0)

    coordinator_epoch: int = 0  # int32, versions 0+

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.coordinator_epoch)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[EndTxnMarker, int]:
        self = EndTxnMarker()
        (self.coordinator_epoch,) = _I.unpack_from(data, at)
        at += 4
        return self, at
