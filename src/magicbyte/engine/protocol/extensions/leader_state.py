"""Generated from LeaderState.json. Do not edit: the schema compiler makes it.

LeaderState: versions 0-10; leader_id is fixed32 in 0-9, unpacked32 in 10+ (KIP-625).
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_unpacked, write_unpacked
from magicbyte.engine.protocol.message import Message, Writer

_I = struct.Struct(">i")
_II = struct.Struct(">ii")
_III = struct.Struct(">iii")


class LeaderState(Message, gc=False, kw_only=True):
    """Leader of a partition. An example of KIP-625: version 10 changes the leader's id from fixed to unpacked, and
    nothing else.

    partition_index: Number of the partition within its topic, counted from 0.
    leader_id: Broker that leads the partition; -1 if there is none, which takes five bytes from version 10 on.
    leader_epoch: Number of the leadership, one higher with each change of leader; -1 if it is not known.
    """

    VALID_VERSIONS = range(11)
    FLEXIBLE_VERSIONS = range(0)

    partition_index: int = 0  # int32, versions 0+
    leader_id: int = -1  # int32, versions 0+, fixed32 in 0-9, unpacked32 in 10+
    leader_epoch: int = -1  # int32, versions 7+, ignorable

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version >= 10:
            buffer += _I.pack(self.partition_index)
            write_unpacked(buffer, self.leader_id, 32, "leader_id")
            buffer += _I.pack(self.leader_epoch)
        elif version >= 7:
            buffer += _III.pack(self.partition_index, self.leader_id, self.leader_epoch)
        else:
            buffer += _II.pack(self.partition_index, self.leader_id)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[LeaderState, int]:
        self = LeaderState()
        if version >= 10:
            (self.partition_index,) = _I.unpack_from(data, at)
            at += 4
            self.leader_id, at = read_unpacked(data, at, 32, "leader_id")
            (self.leader_epoch,) = _I.unpack_from(data, at)
            at += 4
        elif version >= 7:
            self.partition_index, self.leader_id, self.leader_epoch = _III.unpack_from(data, at)
            at += 12
        else:
            self.partition_index, self.leader_id = _II.unpack_from(data, at)
            at += 8
            self.leader_epoch = -1
        return self, at
