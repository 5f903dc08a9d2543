"""A digest of all records of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.log.files.partitions import log_start_offset
from magicbyte.records.digest import NOTHING
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.work import (
    Json,
    Work,
)

if TYPE_CHECKING:
    pass


def run(work: Work, _stage: Stage) -> Json:
    """Return the digest of all records."""
    from magicbyte.log.files.reader import SegmentReader, Selection
    from magicbyte.records.decode import DecodeOptions
    from magicbyte.records.digest import hash_records

    found = NOTHING
    options = DecodeOptions(control=True, limit=work.unit.limit)
    for columns in SegmentReader(work.log).records(Selection(first=log_start_offset(work.log)), options):
        found = found.plus(hash_records(columns).digest())
    return {"digest": found._asdict()}
