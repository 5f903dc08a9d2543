"""Report the folders that a command does not read, and what a log directory proves to be missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from magicbyte.cli.output import complain

if TYPE_CHECKING:
    from magicbyte.ports import TopicPartition


def complain_of_gaps(
    paths: Iterable[str], topics: Collection[str], as_: TopicPartition | None, *, quorum: bool = False
) -> int:
    """Print a line for each folder at `paths` that is left out, and for each gap.

    Return how many of them may have had records. `quorum`: whether the quorum's own log is read.
    """
    from magicbyte.log.files.directory import FoundLogs, survey
    from magicbyte.log.files.left_out import in_use, left_out
    from magicbyte.log.files.missing import Certainty, missing_in

    logs = survey(list(paths), as_)
    only_copies = 0
    for folder, why, is_only_copy in left_out(logs.partitions, topics, quorum=quorum):
        advice = " (no other folder has this partition: give this path itself)" if is_only_copy else ""
        complain(f"left out: {folder.path}: {why}{advice}")
        only_copies += is_only_copy
    missing = missing_in(FoundLogs(in_use(logs.partitions, topics, quorum=quorum), logs.directories), topics)
    for each in missing:
        complain(f"missing: {each}")
    return only_copies + sum(each.certainty is not Certainty.NOTHING for each in missing)
