"""Report the folders that a command does not read, and what a log directory proves to be missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from magicbyte.cli.output import complain
from magicbyte.engine.errors import LogDirectoryError

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import FoundLogs, PartitionDirectory
    from magicbyte.engine.log.files.gaps import Gaps


def complain_of_gaps(logs: FoundLogs, topics: Collection[str], *, quorum: bool = False) -> Gaps:
    """Print a line for each gap of `gaps_of`, and return them."""
    from magicbyte.engine.log.files.gaps import gaps_of

    gaps = gaps_of(logs, topics, quorum=quorum)
    for line in gaps.lines():
        complain(line)
    return gaps


def refuse_change_of_incomplete(gaps: Gaps, partitions: Iterable[PartitionDirectory]) -> None:
    """Raise LogDirectoryError if records are missing inside of partitions that would be changed in place.

    A change may remove the files that prove what is missing.
    """
    for missing in gaps.inside(partitions):
        raise LogDirectoryError(
            f"{missing.path}: cannot change this log in place, because records may be missing from it (see above): "
            "copy them from a replica or a backup, or write the result to --out DIR, or give --accept-missing"
        )
