"""Compute a digest of all records of a partition; of a large one with several workers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.log.files.partitions import log_start_offset
from magicbyte.engine.records.digest import NOTHING, Digest
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.units import LARGEST_PIECE, pieces
from magicbyte.spark.pipeline.work import (
    Json,
    TaskOutcome,
    Work,
    failed,
    raise_first,
)

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory


@dataclass(frozen=True, slots=True)
class DigestPart:
    """Some segments of a partition, whose records from offset `first` on are hashed."""

    partition: PartitionDirectory
    first: int
    limit: int


class Hashed(NamedTuple):
    """The digest of a part."""

    digest: Digest
    seconds: float
    error: tuple[TaskOutcome, str] | None = None


def run(work: Work, _stage: Stage) -> Json:
    """Return the digest of all records."""
    return {"digest": _hashed(_part(work, work.log))._asdict()}


def parts(work: Work, stage: Stage) -> list[DigestPart]:
    """Divide a partition by its segments."""
    groups = pieces(work.log, min(LARGEST_PIECE, stage.options["part-above"]))
    return [_part(work, group) for group in groups]


def do(part: DigestPart) -> Hashed:
    """Hash a part. Runs in a worker; errors are part of the result."""
    begun = time.monotonic()
    try:
        return Hashed(_hashed(part), time.monotonic() - begun)
    except (MagicbyteError, OSError) as error:
        return Hashed(NOTHING, time.monotonic() - begun, failed(error))


def join(_work: Work, _stage: Stage, parts: list[Hashed]) -> Json:
    """Return the sum of all parts' digests."""
    raise_first(part.error for part in parts)
    found = NOTHING
    for part in parts:
        found = found.plus(part.digest)
    told = {"parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}
    return {"digest": found._asdict(), **told}


def _part(work: Work, partition: PartitionDirectory) -> DigestPart:
    return DigestPart(partition, log_start_offset(work.log), work.unit.limit)


def _hashed(to_digest: DigestPart) -> Digest:
    from magicbyte.engine.log.files.reader import SegmentReader, Selection
    from magicbyte.engine.records.decode import DecodeOptions
    from magicbyte.engine.records.digest import hash_records

    found = NOTHING
    options = DecodeOptions(control=True, limit=to_digest.limit)
    for columns in SegmentReader(to_digest.partition).records(Selection(first=to_digest.first), options):
        found = found.plus(hash_records(columns).digest())
    return found
