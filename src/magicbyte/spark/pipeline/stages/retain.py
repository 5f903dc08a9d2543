"""Delete the segments of a partition that are too old, or above its size limit."""

from __future__ import annotations

from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.work import (
    Json,
    Work,
)


def run(work: Work, stage: Stage) -> Json:
    """Delete segments beyond the limits of time, size and offset."""
    from magicbyte.tools.offline.retain import RetentionLimits, retain_logs

    given = stage.options
    limits = RetentionLimits(
        now_ms=work.unit.now_ms,
        retention_ms=-1 if given["older-than"] is None else given["older-than"],
        retention_bytes=-1 if given["bytes"] is None else given["bytes"],
        before_offset=given["before-offset"],
        head_truncation=given["head-truncation"],
        rules=None if given["kafka"] is None else IndexRules.of(given["kafka"]),
    )
    (done,) = retain_logs([work.own()], limits)
    work.refresh()
    found = done.to_json()
    kept = {name: found[name] for name in ("removedBytes", "logStartOffset", "logEndOffset")}
    return {**kept, "segments": len(done.removed)}
