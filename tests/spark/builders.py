"""What tests of pipelines run."""

from typing import Any

from magicbyte.spark.pipeline import driver
from magicbyte.spark.pipeline.config import Pipeline
from magicbyte.spark.pipeline.driver import PipelineRun
from spark.in_process import InProcess


def run(given: Pipeline, *, resume: bool = False, context: Any = None) -> PipelineRun:
    """Run a pipeline, in this process unless a context is given."""
    return driver.run(given, context=context or InProcess(), resume=resume)
