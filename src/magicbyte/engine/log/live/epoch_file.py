"""The leader epochs of a log and their file, which is written at each change. Source: Kafka's LeaderEpochFileCache.

Invariants:
1. Epochs and their start offsets ascend.
2. An epoch is in the file before its first record is written. A crash in between leaves an epoch without records, which
   a truncation or the next start removes; the other order would leave records that no follower could compare.
3. The file is replaced as a whole, by one thread at a time: two would share its temporary name. So `begin` needs the
   locks of an append (`test_followers.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.engine.log.files.checkpoints import LEADER_EPOCHS, format_leader_epochs
from magicbyte.engine.log.files.filesystem import exists, put_file

if TYPE_CHECKING:
    from magicbyte.engine.log.append.record_set import RecordSet
    from magicbyte.engine.log.files.producer_state import LeaderEpochs
    from magicbyte.engine.ports import WritableFileSystem


class EpochFile:
    """`leader-epoch-checkpoint` in the folder of a log with the leader epochs `epochs`."""

    def __init__(self, files: WritableFileSystem, folder: str, epochs: LeaderEpochs) -> None:
        self._files, self._path, self._epochs = files, f"{folder}/{LEADER_EPOCHS}", epochs
        self._is_behind = False  # an append could not write it for lack of a descriptor

    def assign(self, records: RecordSet) -> None:
        """Add the leader epochs of a set that is about to be written."""
        epochs = self._epochs
        if records.has_older and epochs.end_with_older():
            self._is_behind = True
        for batch in records.batches:
            if not (known := epochs.entries) or batch.partition_leader_epoch > known[-1].epoch:
                self._is_behind |= epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        if self._is_behind:
            self.put()
            self._is_behind = False

    def begin(self, epoch: int, offset: int) -> None:
        """Add the epoch in which this replica leads from `offset` on, before anything is written in it."""
        if self._epochs.assign(epoch, offset):
            self.put()

    def truncate_start(self, offset: int) -> None:
        """Remove epochs that end at `offset` or before it."""
        if self._epochs.truncate_start(offset):
            self.put()

    def truncate_end(self, offset: int) -> None:
        """Remove epochs that begin at `offset` or after it."""
        if self._epochs.truncate_end(offset):
            self.put()

    def put(self) -> None:
        """Write the file."""
        put_file(self._files, self._path, format_leader_epochs(self._epochs.entries))

    def put_empty(self) -> None:
        """Write an empty file unless there is one, as some brokers do for a log without epochs."""
        if not exists(self._files, self._path):
            put_file(self._files, self._path, b"")
