"""A worker that dies while it puts the parts of a partition together: the task is repeated, and nothing is missing."""

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from magicbyte.archive.writer import PartitionWriter
from magicbyte.spark.pipeline import driver, units
from magicbyte.spark.pipeline.config import load
from magicbyte.spark.pipeline.sink import SinkPlace
from spark.in_process import InProcess, Tasks
from spark.logs import some_records, write_partition
from stage_proof import contents

BASES = (0, 50, 100)
STAGES = (
    'convert"\nformat = "v2"\ncodec = "zstd"',
    'filter"\nfrom-offset = 20',
    'split"\nsegment-bytes = 3000',
    'salvage"',
)


class Killed(BaseException):
    """The end of a worker: no `except` in the code under test sees it."""


class RepeatedTasks(Tasks):
    """Tasks of which each is done again when its worker dies, from the same pickled task."""

    def mapPartitions(self, work: Callable[[Iterable[Any]], Iterable[Any]]) -> Tasks:  # noqa: N802
        done = []
        for part in self.parts:
            task = pickle.dumps(part)
            try:
                made = [*work(iter(pickle.loads(task)))]
            except Killed:
                made = [*work(iter(pickle.loads(task)))]
            done.append(made)
        return Tasks(done)


class Repeating(InProcess):
    """Repeats tasks as Spark does."""

    def parallelize(self, tasks: list[Any], pieces: int) -> Tasks:
        return RepeatedTasks(super().parallelize(tasks, pieces).parts)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(unit: units.Unit, _units: Iterable[units.Unit], _cores: int) -> set[str]:
        return {stage.do for stage in unit.stages if stage.options.get("part-above") == 1}

    monkeypatch.setattr(driver, "parted_stages", asked)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("at", [1, 2, 3, "finish", "commit"])
def test_a_worker_that_dies_while_it_joins_parts_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, at: int | str
) -> None:
    write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=base) for base in BASES))
    behind = '[[stage]]\ndo = "merge"\n'  # removes what the stage before made
    for sink, above in (("parted", "part-above = 1\n"), ("whole", "")):
        path = tmp_path / f"{sink}.toml"
        path.write_text(f'[[stage]]\ndo = "{stage}\n{above}{behind}[source]\npath = "logs"\n[sink]\npath = "{sink}"\n')
    holder = SinkPlace if at == "commit" else PartitionWriter
    name = at if isinstance(at, str) else "adopt"
    method, calls = getattr(holder, name), []
    last = {"adopt": at, "finish": len(BASES) + 1, "commit": 1}[name]  # of parts, then of the whole

    def killed(self: Any, *given: Any) -> Any:
        calls.append(self)
        found = method(self, *given) if name != "adopt" or len(calls) != last else None
        if len(calls) == last:
            raise Killed
        return found

    with monkeypatch.context() as patch:
        patch.setattr(holder, name, killed)
        done = driver.run(load(tmp_path / "parted.toml"), context=Repeating())
    assert done.status == 0, done.units[0]["error"]
    assert len(calls) >= last
    assert driver.run(load(tmp_path / "whole.toml"), context=InProcess()).status == 0
    assert contents(tmp_path / "parted") == contents(tmp_path / "whole")
    assert not (tmp_path / "parted/.pipeline").exists()
