"""Find what a reader of folders does not read: folders that are left out, and everything that is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from magicbyte.engine.log.files.directory import FoundLogs
from magicbyte.engine.log.files.left_out import LeftOut, in_use, left_out
from magicbyte.engine.log.files.missing import END_OF_LOG, Missing, missing_in

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory


class Gaps(Struct, frozen=True):
    """What is not read at some paths."""

    left_out: list[LeftOut]
    missing: list[Missing]

    @property
    def count(self) -> int:
        """How many of them may have had records that no other folder has."""
        only_copies = sum(folder.is_only_copy for folder in self.left_out)
        return only_copies + sum(each.is_loss for each in self.missing)

    def lines(self) -> Iterator[str]:
        """Yield a line for each of them."""
        for folder, why, is_only_copy in self.left_out:
            advice = " (no other folder has this partition: give this path itself)" if is_only_copy else ""
            yield f"left out: {folder.path}: {why}{advice}"
        for missing in self.missing:
            yield f"missing: {missing}"

    def inside(self, partitions: Iterable[PartitionDirectory]) -> list[Missing]:
        """Return what is missing in the folders of these partitions, if it may have had records.

        Without the ends of logs: checkpoints prove those, not the folder.
        """
        paths = {each.path.rstrip("/") for each in partitions}
        return [
            each
            for each in self.missing
            if each.may_have_records and each.what != END_OF_LOG and {each.path, each.path.rpartition("/")[0]} & paths
        ]


def gaps_of(logs: FoundLogs, topics: Collection[str] = (), *, quorum: bool = False) -> Gaps:
    """Return what a reader of these topics (none: of all) does not read. `quorum`: it reads the quorum's own log."""
    used = in_use(logs.partitions, topics, quorum=quorum)
    return Gaps(left_out(logs.partitions, topics, quorum=quorum), missing_in(FoundLogs(used, logs.directories), topics))
