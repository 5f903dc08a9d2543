"""Pipelines that compact all partitions, each by one worker or through Spark's shuffle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from magicbyte.spark.pipeline import driver
from magicbyte.spark.pipeline.config import load
from magicbyte.spark.pipeline.driver import PipelineRun
from spark.in_process import InProcess

if TYPE_CHECKING:
    from pyspark import SparkContext


def compacted(
    folder: Path,
    source: Path,
    sink: str,
    options: str = "",
    *,
    shuffled: bool,
    context: SparkContext | InProcess | None = None,
    before: str = "",
    now: str = "2026-01-07T00:00:00Z",
) -> PipelineRun:
    """Compact the partitions of `source` into `folder`/`sink`, at the time `now`, behind the stages of `before`."""
    path, above = folder / f"{sink}.toml", 1 if shuffled else 1 << 40
    stage = f'[[stage]]\ndo = "compact"\ntopics = ["*"]\ndelete-retention = "1d"\nshuffle-above = {above}\n{options}'
    path.write_text(f'now = {now}\n{before}{stage}[source]\npath = "{source}"\n[sink]\npath = "{sink}"\n')
    return driver.run(load(path), context=context or InProcess())
