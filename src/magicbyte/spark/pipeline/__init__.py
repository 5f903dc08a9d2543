"""Pipelines over whole archives: `run(load(Path("pipeline.toml")))`. docs/spark/pipeline.md."""

from magicbyte.spark.pipeline.config import Pipeline, PipelineError, load
from magicbyte.spark.pipeline.driver import PipelineRun, RunFailedError, plan, run

__all__ = ["Pipeline", "PipelineError", "PipelineRun", "RunFailedError", "load", "plan", "run"]
