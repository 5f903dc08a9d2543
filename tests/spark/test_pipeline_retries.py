"""A worker that dies, lags or has a twin while it puts the parts of a partition together: nothing is missing."""

import errno
import pickle
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from builders import one_pair_of_each
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.spark.pipeline import driver, runner, turns, units
from magicbyte.spark.pipeline.config import load
from magicbyte.spark.pipeline.sink import SinkPlace
from magicbyte.tools.offline.writer import PartitionWriter
from spark.in_process import InProcess, KilledError, Repeating, Tasks
from spark.logs import some_records, write_partition
from stage_proof import contents

BASES = (0, 50, 100)
STAGES = (
    'convert"\nformat = "v2"\ncodec = "zstd"',
    'filter"\nfrom-offset = 20',
    'split"\nsegment-bytes = 3000',
    'salvage"',
)


class TwinTasks(Tasks):
    """Tasks of which Spark runs two attempts at once; the result of either one counts."""

    counts = 0

    def mapPartitions(self, work: Callable[[Iterable[Any]], Iterable[Any]]) -> Tasks:  # noqa: N802
        done = []
        for part in self.parts:
            task = pickle.dumps(part)
            with ThreadPoolExecutor(2) as threads:
                twins = [threads.submit(lambda each: [*work(iter(pickle.loads(each)))], task) for _ in range(2)]
            done.append(twins[self.counts].result())
        return Tasks(done)


class LateTasks(Tasks):
    """Tasks whose executor was lost, and that lives on: it does them again when the tasks that follow are done."""

    lost: Callable[[], object] = staticmethod(lambda: None)

    def mapPartitions(self, work: Callable[[Iterable[Any]], Iterable[Any]]) -> Tasks:  # noqa: N802
        tasks = pickle.dumps(self.parts)
        done = super().mapPartitions(work)
        LateTasks.lost()
        LateTasks.lost = staticmethod(lambda: [[*work(iter(part))] for part in pickle.loads(tasks)])
        return done


class Attempting(InProcess):
    """Runs tasks of a class."""

    def __init__(self, tasks: type[Tasks]) -> None:
        super().__init__()
        self._tasks = tasks

    def parallelize(self, tasks: list[Any], pieces: int) -> Tasks:
        return self._tasks(super().parallelize(tasks, pieces).parts)


class SecondTwinTasks(TwinTasks):
    counts = 1


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
            raise KilledError
        return found

    with monkeypatch.context() as patch:
        patch.setattr(holder, name, killed)
        done = driver.run(load(tmp_path / "parted.toml"), context=Repeating())
    assert done.status == 0, done.units[0]["error"]
    assert len(calls) >= last
    assert driver.run(load(tmp_path / "whole.toml"), context=InProcess()).status == 0
    assert contents(tmp_path / "parted") == contents(tmp_path / "whole")
    assert not (tmp_path / "parted/.pipeline").exists()


def test_a_task_that_is_repeated_finds_what_the_task_before_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=base) for base in BASES))
    for sink, above in (("parted", "part-above = 1\n"), ("whole", "")):
        stages = f'[[stage]]\ndo = "{STAGES[1]}\n[[stage]]\ndo = "{STAGES[2]}\n{above}'
        (tmp_path / f"{sink}.toml").write_text(f'{stages}[source]\npath = "logs"\n[sink]\npath = "{sink}"\n')
    commit, calls = SinkPlace.commit, []

    def killed(self: SinkPlace, *given: Any) -> Any:
        calls.append(self)
        if len(calls) == 1:
            raise KilledError
        return commit(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(SinkPlace, "commit", killed)
        done = driver.run(load(tmp_path / "parted.toml"), context=Repeating())
    assert (done.status, len(calls)) == (0, 2), done.units[0]["error"]
    assert driver.run(load(tmp_path / "whole.toml"), context=InProcess()).status == 0
    assert contents(tmp_path / "parted") == contents(tmp_path / "whole")


_deaths: list[object] = []


def continue_and_die(*given: Any) -> Any:
    """Finish a stage, and die before the result arrives, the first time that there is no output."""
    found = runner.continue_unit(*given)
    if isinstance(found, dict) and found["outcome"] != "done" and not _deaths:
        _deaths.append(found)
        raise KilledError
    return found


@pytest.mark.parametrize("stage", STAGES[:2])
def test_damage_that_a_worker_found_before_it_died_is_reported_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    folder = write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=base) for base in BASES))
    log = folder / f"{BASES[1]:020}.log"
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    log.write_bytes(damaged)
    path = tmp_path / "parted.toml"
    path.write_text(f'[[stage]]\ndo = "{stage}\npart-above = 1\n[source]\npath = "logs"\n[sink]\npath = "parted"\n')
    _deaths.clear()
    monkeypatch.setattr(driver, "continue_unit", continue_and_die)
    done = driver.run(load(path), context=Repeating())
    assert len(_deaths) == 1
    assert (done.status, done.units[0]["outcome"]) == (1, "damaged")
    assert "crc" in done.units[0]["error"]
    assert not (tmp_path / "parted/.pipeline").exists() or not [*(tmp_path / "parted/.pipeline").glob("orders*")]


@pytest.mark.parametrize(("stage", "attempts"), one_pair_of_each(STAGES, [TwinTasks, SecondTwinTasks, LateTasks]))
def test_attempts_at_one_task_take_turns_and_the_first_result_counts(
    tmp_path: Path, stage: str, attempts: type[Tasks]
) -> None:
    write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=base) for base in BASES))
    for sink, above in (("parted", "part-above = 1\n"), ("whole", "")):
        stages = f'[[stage]]\ndo = "{stage}\n{above}[[stage]]\ndo = "split"\nsegment-bytes = 2000\n{above}'
        path = tmp_path / f"{sink}.toml"
        path.write_text(f'{stages}[[stage]]\ndo = "digest"\n{above}[source]\npath = "logs"\n[sink]\npath = "{sink}"\n')
    done = driver.run(load(tmp_path / "parted.toml"), context=Attempting(attempts))
    LateTasks.lost()  # after the end of the run
    LateTasks.lost = staticmethod(lambda: None)
    assert done.status == 0, done.units[0]["error"]
    assert driver.run(load(tmp_path / "whole.toml"), context=InProcess()).status == 0
    assert contents(tmp_path / "parted") == contents(tmp_path / "whole")


def test_a_result_that_no_attempt_signed_is_not_unpickled(tmp_path: Path) -> None:
    turns.store_result(tmp_path, b"key", [1])
    assert turns.stored_result(tmp_path, b"key") == [1]
    assert turns.stored_result(tmp_path, b"another") is None
    (stored,) = tmp_path.iterdir()
    stored.write_bytes(bytes(32) + pickle.dumps([2]))
    with pytest.raises(LogDirectoryError, match="earlier attempt"):
        turns.stored_result(tmp_path, b"key")


def test_parts_are_copied_where_a_file_system_has_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=base) for base in BASES))
    for sink, above in (("parted", "part-above = 1\n"), ("whole", "")):
        stage = f'[[stage]]\ndo = "split"\nsegment-bytes = 2000\n{above}'
        (tmp_path / f"{sink}.toml").write_text(f'{stage}[source]\npath = "logs"\n[sink]\npath = "{sink}"\n')

    refused = []

    def refuse(self: Path, _target: Path) -> None:
        refused.append(self)
        raise OSError(errno.EPERM, "Operation not permitted", str(self))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    for sink in ("parted", "whole"):
        assert driver.run(load(tmp_path / f"{sink}.toml"), context=InProcess()).status == 0
    assert refused
    assert contents(tmp_path / "parted") == contents(tmp_path / "whole")
