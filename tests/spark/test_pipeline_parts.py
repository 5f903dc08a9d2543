"""Conversion of one partition by several workers: the result is that of one, byte for byte."""

from pathlib import Path
from typing import Any

import pytest

import golden_data
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.producer_state import LeaderEpochs
from magicbyte.engine.records.batch import build_batch
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.message import build_message
from magicbyte.engine.records.scan import scan
from magicbyte.spark.pipeline import driver, runner, units
from magicbyte.spark.pipeline.config import load
from magicbyte.spark.pipeline.driver import PipelineRun
from magicbyte.spark.pipeline.stages.writing import WritePart, WrittenPart
from magicbyte.spark.pipeline.units import find
from magicbyte.tools.offline.writer import PartitionWriter
from spark.builders import NOW, comparable, ran
from spark.conftest import lay_out, topic_of
from spark.in_process import InProcess
from spark.logs import some_records, write_partition
from stage_proof import contents


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What asks for it is parted, each segment by itself, whatever else there is to do."""
    monkeypatch.setattr(driver, "parted_stages", lambda unit, units, cores: _asked(unit))


def _asked(unit: units.Unit) -> set[str]:
    return {stage.do for stage in unit.stages if stage.options.get("part-above") == 1}


def converted(
    folder: Path, sink: str, stage: str, *, parted: bool, source: str = "logs", before: str = "", behind: str = ""
) -> PipelineRun:
    path = folder / f"{sink}.toml"
    above = "part-above = 1\n" if parted else ""
    ends = f'[source]\npath = "{source}"\n[sink]\npath = "{sink}"\n'
    path.write_text(f'{NOW}{before}[[stage]]\ndo = "convert"\n{stage}{above}{behind}{ends}')
    return driver.run(load(path), context=InProcess())


def same(folder: Path) -> None:
    """Compare the log directories `parted` and `whole`, with what lies beside the partitions."""
    assert contents(folder / "parted") == contents(folder / "whole")
    for path in (folder / "whole").glob("*checkpoint"):
        assert (folder / "parted" / path.name).read_text() == path.read_text(), path.name


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Golden logs in small segments: transactions that reach over several of them."""
    folder = tmp_path_factory.mktemp("cut")
    topics = {"g3.9.1.txn-none", "g2.8.2.txn-zstd", "g0.10.2.2.basic-gzip", "g3.9.1.trimmed-none"}
    cases = [case for case in golden_data.log_cases() if topic_of(case) in topics]
    assert len(cases) == len(topics)
    lay_out(folder / "logs", cases)
    stage = '[[stage]]\ndo = "split"\nsegment-bytes = 3000\n'
    (folder / "p.toml").write_text(f'{stage}[source]\npath = "logs"\n[sink]\npath = "cut"\n')
    assert driver.run(load(folder / "p.toml"), context=InProcess()).status == 0
    counts = [len(each.segments) for each in discover([str(folder / "cut")])]
    assert (min(counts) > 1, max(counts) > 4) == (True, True)
    return folder / "cut"


@pytest.mark.parametrize(
    "stage",
    [
        'format = "v2"\ncodec = "zstd"\n',
        'format = "v2"\nkafka = "0.11.0.3"\n',
        'format = "v2"\nkafka = "2.7"\n',
        'format = "v1"\ncodec = "gzip"\n',
        'format = "enriched"\ncodec = "lz4"\n',
    ],
)
def test_each_format_and_version_comes_out_as_from_one_worker(cut: Path, tmp_path: Path, stage: str) -> None:
    runs = [converted(tmp_path, sink, stage, parted=sink == "parted", source=str(cut)) for sink in ("parted", "whole")]
    assert [each.status for each in runs] == [0, 0], [unit["error"] for unit in runs[0].units]
    same(tmp_path)
    for one, other in zip(runs[0].units, runs[1].units, strict=True):
        (first,), (second,) = one["stages"], other["stages"]
        assert first.pop("parts") == len(discover([one["path"]])[0].segments)
        assert {**first, "seconds": 0} == {**second, "seconds": 0}
        assert one["inputs"] == other["inputs"]
        assert [each["files"] for each in one["outputs"]] == [each["files"] for each in other["outputs"]]


def test_stages_around_a_parted_conversion_are_done_as_ever(tmp_path: Path) -> None:
    parts = [some_records(50, first=first, magic=1) for first in range(0, 200, 50)]
    write_partition(tmp_path / "logs", "orders-0", *parts, target=Format.V1, codec=Codec.GZIP)
    before = '[[stage]]\ndo = "filter"\nfrom-offset = 60\n'
    behind = (
        '[[stage]]\ndo = "compare"\nwith = "filtered"\n[[stage]]\ndo = "compact"\ntopics = ["*"]\nshuffle-above = 1\n'
    )
    (tmp_path / "f.toml").write_text(f'{before}[source]\npath = "logs"\n[sink]\npath = "filtered"\n')
    assert driver.run(load(tmp_path / "f.toml"), context=InProcess()).status == 0
    for sink in ("parted", "whole"):
        done = converted(
            tmp_path, sink, 'format = "v2"\ncodec = "zstd"\n', parted=sink == "parted", before=before, behind=behind
        )
        assert done.status == 0, done.units[0]["error"]
    same(tmp_path)
    assert not (tmp_path / "parted/.pipeline").exists()


def test_two_attempts_at_a_part_at_once_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark makes them when it speculates, and when a machine is only thought to be lost."""
    write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=each) for each in (0, 50, 100)))
    append, convert, others = PartitionWriter.append, runner._DOERS[WritePart], []

    def interrupted(self: PartitionWriter, data: Any) -> None:
        if parts and not others:
            others.append(parts[-1])
            others.append(convert(parts[-1]))
        append(self, data)

    parts: list[WritePart] = []

    def noted(part: WritePart) -> WrittenPart:
        parts.append(part)
        others.clear()
        return convert(part)

    stage = 'format = "v1"\ncodec = "gzip"\n'
    with monkeypatch.context() as patch:
        patch.setattr(PartitionWriter, "append", interrupted)
        patch.setitem(runner._DOERS, WritePart, noted)
        done = converted(tmp_path, "parted", stage, parted=True)
    assert (done.status, len(parts)) == (0, 3), done.units[0]["error"]
    assert isinstance(others[1], WrittenPart)
    assert others[1].error is None
    converted(tmp_path, "whole", stage, parted=False)
    same(tmp_path)
    assert not (tmp_path / "parted/.pipeline").exists()


@pytest.mark.parametrize(("policy", "outcome"), [("stop", "damaged"), ("salvage", "done")])
def test_damage_in_one_part_is_that_of_the_partition(tmp_path: Path, policy: str, outcome: str) -> None:
    folder = write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=each) for each in (0, 50, 100)))
    path = folder / f"{50:020}.log"
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    stage, policy = 'format = "v2"\ncodec = "lz4"\n', f'on-damage = "{policy}"\n'
    runs = [converted(tmp_path, sink, stage, parted=sink == "parted", before=policy) for sink in ("parted", "whole")]
    told = [[(unit["outcome"], unit["error"], unit.get("salvagedFor")) for unit in each.units] for each in runs]
    assert told[0] == told[1]
    assert told[0][0][0] == outcome
    same(tmp_path)


def test_a_full_disk_in_one_part_fails_the_partition_and_the_rerun_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=each) for each in (0, 50, 100)))
    append, stage = PartitionWriter.append, 'format = "v2"\ncodec = "lz4"\n'

    def full(self: PartitionWriter, data: Any) -> None:
        if self._base == 50:
            raise OSError(28, "No space left on device", str(self.folder))
        append(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionWriter, "append", full)
        done = converted(tmp_path, "parted", stage, parted=True)
    assert (done.status, [unit["outcome"] for unit in done.units]) == (2, ["failed"])
    again = driver.run(load(tmp_path / "parted.toml"), context=InProcess(), resume=True)
    assert again.status == 0
    converted(tmp_path, "whole", stage, parted=False)
    same(tmp_path)


def test_a_partition_is_parted_where_the_other_cores_would_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for name, count in (("huge-0", 900), ("small-0", 90), ("small-1", 90), ("single-0", 900)):
        parts = (
            [some_records(count)]
            if name == "single-0"
            else [some_records(count // 2, first=each * count // 2) for each in (0, 1)]
        )
        write_partition(tmp_path / "logs", name, *parts)
    stage = '[[stage]]\ndo = "convert"\nformat = "v2"\npart-above = "10KiB"\n'
    (tmp_path / "p.toml").write_text(f'{stage}[source]\npath = "logs"\n[sink]\npath = "out"\n')
    found = find(load(tmp_path / "p.toml"), 0)
    parted = {cores: {unit.name for unit in found if driver.parted_stages(unit, found, cores)} for cores in (1, 2, 4)}
    assert parted == {1: set(), 2: set(), 4: {"huge-0"}}, "one segment is not parted"
    (huge,) = (unit for unit in found if unit.name == "huge-0")
    assert driver.parted_stages(huge, found, 4) == {"convert"}


def compared(folder: Path, sink: str, source: Path, other: str, *, parted: bool) -> PipelineRun:
    above = "part-above = 1\n" if parted else ""
    behind = f'[[stage]]\ndo = "compare"\n{other}{above}'
    stage = 'format = "v1"\ncodec = "gzip"\n'
    return converted(folder, sink, stage, parted=parted, source=str(source), behind=behind)


def test_a_comparison_in_parts_says_what_one_worker_says(cut: Path, tmp_path: Path) -> None:
    """From v2 with transactions to v1, which has no place for headers and markers."""
    logs = tmp_path / "txn"
    logs.mkdir()
    for folder in cut.glob("*txn*"):
        (logs / folder.name).symlink_to(folder)
    runs = [compared(tmp_path, sink, logs, "", parted=sink == "parted") for sink in ("parted", "whole")]
    assert [each.status for each in runs] == [0, 0], [unit["error"] for unit in runs[0].units]
    same(tmp_path)
    for one, other in zip(runs[0].units, runs[1].units, strict=True):
        first, second = one["stages"][1], other["stages"][1]
        assert {**first, "seconds": 0, "parts": 0} == {**second, "seconds": 0, "parts": 0}
    assert max(unit["stages"][1].get("parts", 0) for unit in runs[0].units) > 4


def test_a_comparison_in_parts_finds_the_differences_that_one_worker_finds(tmp_path: Path) -> None:
    parts = [some_records(50, first=first) for first in (0, 50, 100, 150)]
    write_partition(tmp_path / "logs", "orders-0", *parts)
    changed = [
        record._replace(value=b"another") if record.offset in (7, 70, 71, 199) else record
        for each in parts
        for record in each
    ]
    write_partition(tmp_path / "else", "orders-0", changed[:100], changed[100:150], changed[150:])
    runs = [
        compared(tmp_path, sink, tmp_path / "logs", f'with = "{tmp_path / "else"}"\n', parted=sink == "parted")
        for sink in ("parted", "whole")
    ]
    told = [[(unit["outcome"], unit["error"]) for unit in each.units] for each in runs]
    assert told[0] == told[1]
    assert told[0][0][0] == "different"
    assert "the first at offset 7: " in told[0][0][1]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("depth", ["quick", "usual", "deep"])
@pytest.mark.parametrize("sink", [None, "out"])
def test_a_check_in_parts_finds_what_one_worker_finds(cut: Path, tmp_path: Path, depth: str, sink: str | None) -> None:
    stages = f'[[stage]]\ndo = "verify"\ndepth = "{depth}"\n{{above}}'
    runs = [ran(tmp_path, cut, sink and f"{sink}-{parted}", stages, 1 if parted else None) for parted in (True, False)]
    assert [each.status for each in runs] == [0, 0], runs[0].units[0]["error"]
    assert comparable(runs[0]) == comparable(runs[1])
    assert min(unit["stages"][0]["parts"] for unit in runs[0].units) > 1


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("kind", ["flipped", "cut", "epoch", "swapped"])
def test_a_check_in_parts_finds_the_damage_that_one_worker_finds(tmp_path: Path, number: int, kind: str) -> None:
    folder = write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=each) for each in (0, 50, 100)))
    path = sorted(folder.glob("*.log"))[number]
    content = bytearray(path.read_bytes())
    if kind == "flipped":
        content[300] ^= 1
    elif kind == "epoch":
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    elif kind == "swapped":
        content = bytearray((folder / f"{50:020}.log").read_bytes()) + content
    path.write_bytes(content[:-5] if kind == "cut" else content)
    stages = '[[stage]]\ndo = "verify"\n{above}'
    runs = [ran(tmp_path, tmp_path / "logs", None, stages, 1 if parted else None) for parted in (True, False)]
    assert comparable(runs[0]) == comparable(runs[1])
    assert [each.status for each in runs] == ([1, 1] if kind != "epoch" else [runs[1].status] * 2)


def test_offsets_of_the_next_segment_are_found_by_a_check_in_parts(tmp_path: Path) -> None:
    segments = [some_records(50, first=each) for each in (0, 40, 100)]
    write_partition(tmp_path / "logs", "orders-0", *segments)
    stages = '[[stage]]\ndo = "verify"\n{above}'
    runs = [ran(tmp_path, tmp_path / "logs", None, stages, 1 if parted else None) for parted in (True, False)]
    assert comparable(runs[0]) == comparable(runs[1])
    assert runs[0].units[0]["outcome"] == "damaged"


def test_tables_written_in_parts_are_those_of_one_worker(cut: Path, tmp_path: Path) -> None:
    convert = '[[stage]]\ndo = "convert"\nformat = "v2"\n'  # else a pipeline that only writes tables has small units
    stages = convert + '[[stage]]\ndo = "records"\n{above}'
    runs = [ran(tmp_path, cut, str(parted), stages, 1 if parted else None) for parted in (True, False)]
    assert [each.status for each in runs] == [0, 0], [unit["error"] for unit in runs[0].units]
    assert comparable(runs[0]) == comparable(runs[1])
    tables = [{name: each for name, each in files_of(tmp_path / str(at)).items() if name.endswith(".parquet")}
              for at in (True, False)]  # fmt: skip
    assert tables[0] == tables[1]
    assert len(tables[0]) > 8
    assert not (tmp_path / "True/.pipeline").exists()


def test_a_log_that_is_copied_in_parts_is_retained_as_by_one_worker(cut: Path, tmp_path: Path) -> None:
    stages = '[[stage]]\ndo = "verify"\n{above}\n[[stage]]\ndo = "retain"\nbytes = "4KiB"\n{above}'
    runs = [ran(tmp_path, cut, sink, stages, 1 if sink == "parted" else None) for sink in ("parted", "whole")]
    assert [each.status for each in runs] == [0, 0], [unit["error"] for unit in runs[0].units]
    assert comparable(runs[0]) == comparable(runs[1])
    assert sum(unit["stages"][1]["segments"] for unit in runs[0].units) > 4
    same(tmp_path)


FILTERS = (
    "from-offset = 20",
    "to-offset = 45",
    "from-offset = 30\nto-offset = 31",
    "to-offset = 0",
    "from-offset = 100000",
    "since = 2023-11-14T22:13:21Z",
)


@pytest.mark.parametrize("limits", FILTERS)
def test_a_log_filtered_in_parts_is_that_of_one_worker(cut: Path, tmp_path: Path, limits: str) -> None:
    stages = f'[[stage]]\ndo = "filter"\n{limits}\n{{above}}'
    runs = [ran(tmp_path, cut, sink, stages, 1 if sink == "parted" else None) for sink in ("parted", "whole")]
    assert [each.status for each in runs] == [0, 0], [unit["error"] for unit in runs[0].units]
    assert comparable(runs[0]) == comparable(runs[1])
    assert [unit["outputs"][0]["files"] for unit in runs[0].units] == [
        unit["outputs"][0]["files"] for unit in runs[1].units
    ]
    same(tmp_path)
    assert not (tmp_path / "parted/.pipeline").exists()


def test_a_filter_in_parts_meets_the_damage_that_one_worker_meets(tmp_path: Path) -> None:
    segments = [some_records(50, first=each) for each in (0, 40, 100)]
    write_partition(tmp_path / "logs", "overlap-0", *segments)
    folder = write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=each) for each in (0, 50, 100)))
    path = folder / f"{50:020}.log"
    path.write_bytes(path.read_bytes()[:300] + b"?" + path.read_bytes()[301:])
    stages = '[[stage]]\ndo = "filter"\nfrom-offset = 20\n{above}'
    runs = [
        ran(tmp_path, tmp_path / "logs", sink, stages, 1 if sink == "parted" else None) for sink in ("parted", "whole")
    ]
    assert [(unit["outcome"], unit["error"]) for unit in runs[0].units] == [
        (unit["outcome"], unit["error"]) for unit in runs[1].units
    ]
    assert {unit["outcome"] for unit in runs[0].units} == {"damaged"}


def test_leader_epochs_of_parts_are_those_of_the_whole() -> None:
    def epochs(*entries: tuple[int, int], ended: bool = False) -> LeaderEpochs:
        written = [build_message(1, 0, 0, None, b"")] if ended else []
        written += [
            build_batch(
                b"", base_offset=offset, last_offset_delta=0, base_timestamp=0, max_timestamp=0, record_count=0,
                partition_leader_epoch=epoch,
            )
            for epoch, offset in entries
        ]  # fmt: skip
        found = LeaderEpochs()
        found.append(scan(memoryview(b"".join(written))))
        return found

    whole = epochs((1, 0), (3, 50))
    whole.follow(epochs((3, 100), (4, 120)))
    assert whole.entries == [(1, 0), (3, 50), (4, 120)]
    whole.follow(epochs((2, 200), ended=True))
    assert whole.entries == [(2, 200)]
    whole.follow(epochs())
    assert whole.entries == [(2, 200)]
