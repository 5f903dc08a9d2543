"""Run pipelines in tests."""

from pathlib import Path
from typing import Any

from cli.command import is_in_use, state
from magicbyte.spark.pipeline import driver
from magicbyte.spark.pipeline.config import Pipeline, load
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


NOW = "now = 2026-01-07T00:00:00Z\n"


def ran(folder: Path, source: Path, sink: str | None, stages: str, above: int | None) -> PipelineRun:
    """Run stages; each with `{above}` is shared in parts of at most so many bytes, or not shared."""
    path = folder / f"{above}.toml"
    ends = f'[source]\npath = "{source}"\n' + (f'[sink]\npath = "{sink}"\n' if sink else "")
    path.write_text(f"{NOW}{stages.replace('{above}', f'part-above = {above}' if above else '')}\n{ends}")
    return driver.run(load(path), context=InProcess())


def comparable(run: PipelineRun) -> list[Any]:
    """Return the report of each partition, without the worker, the date and the duration."""
    found = []
    for unit in run.units:
        stages = [{**stage, "seconds": 0} for stage in unit["stages"]]
        for stage in stages:
            stage.pop("parts", None)
        files = [each["files"] for each in unit.get("outputs", [])]
        found.append({**unit, "stages": stages, "seconds": 0, "outputs": files})
    return found
