"""Run pipelines in tests."""

from pathlib import Path
from typing import Any

from cli.command import is_in_use, state
from magicbyte.spark.pipeline import driver
from magicbyte.spark.pipeline.config import Pipeline
from magicbyte.spark.pipeline.driver import PipelineRun
from spark.in_process import InProcess


def run(given: Pipeline, *, resume: bool = False, context: Any = None) -> PipelineRun:
    """Run a pipeline, by default in this process, where it also checks that the sources are unchanged."""
    if context is not None:
        return driver.run(given, context=context, resume=resume)
    paths = [Path(each.removeprefix("file://")) for source in given.sources for each in source.paths]
    before = {path: state(path) for path in paths if path.exists() and not is_in_use(path)}
    done = driver.run(given, context=InProcess(), resume=resume)
    assert {path: state(path) for path in before} == before, "a pipeline changed what it was to read"
    return done
