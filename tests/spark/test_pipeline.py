"""Pipelines, without Spark: each stage equals its command, digest for digest; sinks, reruns and what is damaged."""

import io
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from cli.command import run as command
from magicbyte.engine.errors import LogDirectoryError, MagicbyteError, UnknownTopicError
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.spark import first_line
from magicbyte.spark.pipeline import driver
from magicbyte.spark.pipeline.config import Pipeline, PipelineError, load
from magicbyte.spark.pipeline.driver import PipelineRun, RunFailedError
from magicbyte.spark.pipeline.report import as_html, as_json, write_report
from magicbyte.spark.pipeline.sink import Sink, SinkPlace
from magicbyte.spark.pipeline.units import Unit, find
from spark.builders import run
from spark.in_process import InProcess, Tasks
from spark.logs import content_of, some_records, write_partition
from stage_proof import contents

VERSIONS = ("g0.8.2.2.", "g0.10.2.2.", "g3.9.1.")
"""The golden logs of a broker without timestamps, of one without producers, and of a late one."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory that its broker closed, with golden logs of three versions."""
    import golden_data
    from spark.conftest import lay_out_closed, topic_of

    folder = tmp_path_factory.mktemp("golden") / "logs"
    cases = [case for case in golden_data.log_cases() if case.has_records and topic_of(case).startswith(VERSIONS)]
    lay_out_closed(folder, cases)
    return folder


def pipeline(folder: Path, text: str, *, source: Path | None = None, sink: str | None = "out") -> Pipeline:
    """Return the pipeline of these stages, from `source` (default: logs) to a folder beside it."""
    path = folder / "pipeline.toml"
    to = "" if sink is None else f'[sink]\npath = "{sink}"\n'
    path.write_text(f'{text}\n[source]\npath = "{source or folder / "logs"}"\n{to}')
    return load(path)


def names(folder: Path) -> set[str]:
    """Return what is in a folder beside partitions and what a broker puts there."""
    beside = {".lock", ".kafka_cleanshutdown", "meta.properties"}
    found = {path.name for path in folder.iterdir() if path.is_file() and not path.name.endswith("-checkpoint")}
    return found - beside | {path.name for path in folder.iterdir() if path.is_dir() and path.name.startswith(".")}


# ---- each stage is its command


def test_a_conversion_is_the_commands_byte_for_byte(logs: Path, tmp_path: Path) -> None:
    done = run(pipeline(tmp_path, '[[stage]]\ndo = "convert"\nformat = "v2"\ncodec = "zstd"', source=logs))
    assert done.status == 0
    assert (
        command("convert", str(logs), "--to", "v2", "--codec", "zstd", "--out", str(tmp_path / "other")).exit_code == 0
    )
    assert contents(tmp_path / "out") == contents(tmp_path / "other")
    for path in (tmp_path / "other").glob("*checkpoint"):
        assert (tmp_path / "out" / path.name).read_text() == path.read_text(), path.name
    assert names(tmp_path / "out") == {"pipeline-00000001.json"}


def test_compaction_and_retention_are_the_commands_byte_for_byte(logs: Path, tmp_path: Path) -> None:
    topics = [each.topic for each in discover([str(logs)]) if each.topic and each.topic.startswith("g3.9.1.")]
    stages = f'[[stage]]\ndo = "compact"\ntopics = ["g3.9.1.*"]\nmin-lag = "0s"\n{RETAIN}'
    done = run(pipeline(tmp_path, stages, source=logs))
    shutil.copytree(logs, tmp_path / "other")
    chosen = [word for topic in topics for word in ("--topic", topic)]
    assert command("compact", str(tmp_path / "other"), "--in-place", "--drop-unkeyed", *chosen).exit_code == 0
    assert (
        command("retain", str(tmp_path / "other"), "--in-place", "--bytes", "3000", "--head-truncation").exit_code == 0
    )
    assert done.status == 0
    ours, theirs = contents(tmp_path / "out"), contents(tmp_path / "other")
    assert {name: each for name, each in ours.items() if "g0" in name} == {
        name: each for name, each in theirs.items() if "g0" in name
    }
    assert logs_of(ours).keys() == logs_of(theirs).keys()
    same = command("diff", str(tmp_path / "out"), str(tmp_path / "other"))
    assert same.exit_code == 0, same.stdout


RETAIN = '[[stage]]\ndo = "retain"\nbytes = 3000\nhead-truncation = true'


def logs_of(found: dict[str, str]) -> dict[str, str]:
    return {name: each for name, each in found.items() if name.endswith(".log")}


def test_a_digest_is_that_of_diff_and_a_comparison_proves_a_conversion(logs: Path, tmp_path: Path) -> None:
    text = '[[stage]]\ndo = "digest"\n[[stage]]\ndo = "convert"\nformat = "v2"\nsame-cluster = true\n'
    text += '[[stage]]\ndo = "compare"'
    done = run(pipeline(tmp_path, text, source=logs))
    assert done.status == 0
    told = json.loads(command("diff", str(logs), str(tmp_path / "out"), "--format", "json").stdout)
    by_name = {each["partition"]: each for each in told["partitions"]}
    for unit in done.units:
        digest, _, compared = unit["stages"]
        known = by_name[unit["unit"]]
        assert compared["compared"] == known["compared"]
        if "trimmed" not in unit["unit"]:
            assert digest["digest"]["records"] == known["compared"]


def test_verify_and_inventory_find_what_the_commands_find(logs: Path, tmp_path: Path) -> None:
    text = '[[stage]]\ndo = "verify"\ndepth = "deep"\n[[stage]]\ndo = "inventory"\ndeep = true'
    done = run(pipeline(tmp_path, text, source=logs, sink=None))
    told = json.loads(command("verify", str(logs), "--deep", "--format", "json").stdout)
    found = {json.dumps(each["what"]) for unit in done.units for each in unit["stages"][0]["findings"]}
    assert found == {json.dumps(each["what"]) for each in told["findings"]}
    counted = json.loads(command("inventory", str(logs), "--deep", "--format", "json").stdout)
    by_name = {f"{each['topic']}-{each['partition']}": each for each in counted["partitions"]}
    for unit in done.units:
        inventory, known = unit["stages"][1], by_name[unit["unit"]]
        assert inventory["formats"] == known["formats"]
        assert (inventory["records"], inventory["firstOffset"]) == (known["records"], known["firstOffset"])
    assert not (tmp_path / "out").exists()


def test_segments_are_split_and_merged_and_hold_the_same_entries(tmp_path: Path) -> None:
    records = [some_records(100, first=first) for first in range(0, 300, 100)]
    source = write_partition(tmp_path / "logs", "orders-0", *records)
    split = run(pipeline(tmp_path, '[[stage]]\ndo = "split"\nsegment-bytes = 3000', sink="split"))
    merge = run(pipeline(tmp_path, '[[stage]]\ndo = "merge"', sink="merged", source=tmp_path / "split"))
    assert (split.status, merge.status) == (0, 0)
    whole = b"".join(path.read_bytes() for path in sorted(source.glob("*.log")))
    parts = sorted((tmp_path / "split/orders-0").glob("*.log"))
    assert len(parts) > 6
    assert all(path.stat().st_size <= 3000 for path in parts)
    assert {path.stem for path in source.glob("*.log")} <= {path.stem for path in parts}
    assert b"".join(path.read_bytes() for path in parts) == whole
    (merged,) = (tmp_path / "merged/orders-0").glob("*.log")
    assert merged.read_bytes() == whole
    assert command("verify", str(tmp_path / "split"), str(tmp_path / "merged"), "--deep").exit_code == 0


@pytest.mark.parametrize("codec", ["", "snappy", "none"])
def test_records_become_tables_that_hold_them_all(codec: str, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    records = [some_records(100, first=first) for first in (0, 100)]
    write_partition(tmp_path / "logs", "orders-3", *records)
    done = run(pipeline(tmp_path, '[[stage]]\ndo = "records"' + (f'\ncodec = "{codec}"' if codec else "")))
    assert done.status == 0
    paths = sorted((tmp_path / "out").glob("*.parquet"))
    assert [path.name for path in paths] == [f"orders-3-{first:020}.parquet" for first in (0, 100)]
    rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (each.offset, each.key, each.value) for some in records for each in some
    ]
    assert {(row["topic"], row["partition"]) for row in rows} == {("orders", 3)}
    assert pq.ParquetFile(paths[0]).metadata.row_group(0).column(1).compression == {
        "": "ZSTD", "snappy": "SNAPPY", "none": "UNCOMPRESSED"
    }[codec]  # fmt: skip


def test_a_filter_leaves_what_its_limits_say_whatever_order_its_keys_are_given_in(tmp_path: Path) -> None:
    records = some_records(200)
    write_partition(tmp_path / "logs", "orders-0", records)
    stage = '[[stage]]\ndo = "filter"\nsince = 1_700_000_050_000\nkeys = ["key-61", "key-3", "key-99"]'
    done = run(pipeline(tmp_path, stage))
    assert (done.status, done.units[0]["stages"][0]["kept"]) == (0, 2)
    (found,) = discover([str(tmp_path / "out")])
    assert [record.offset for columns in SegmentReader(found).records() for record in columns] == [61, 99]
    again = run(pipeline(tmp_path, stage.replace('"key-61", "key-3"', '"key-3", "key-61"')), resume=True)
    assert again.kept == 1


# ---- a sink


CONVERT = '[[stage]]\ndo = "convert"\nformat = "v2"\ncodec = "lz4"'


def test_a_rerun_does_only_what_is_missing_or_changed(archive: Path) -> None:
    given = pipeline(archive, CONVERT)
    run(given)
    before, stamps = contents(archive / "out"), {path: path.stat().st_ino for path in archive.glob("out/*/*.log")}
    idle = InProcess()
    again = run(given, resume=True, context=idle)
    assert (again.status, again.kept, idle.tasks) == (0, 3, 0)
    assert names(archive / "out") == {"pipeline-00000001.json"}, "nothing new: no manifest"
    with (archive / "logs/orders-1" / f"{0:020}.log").open("ab") as file:
        file.write(
            (write_partition(archive / "more", "orders-1", some_records(5, first=20)) / f"{20:020}.log").read_bytes()
        )
    shutil.rmtree(archive / "out/orders-2")
    changed = run(given, resume=True)
    assert (changed.status, changed.kept) == (0, 1)
    after = contents(archive / "out")
    assert {name for name in before if before[name] != after.get(name)} >= {f"orders-1/{0:020}.log"}
    assert {name: each for name, each in after.items() if "orders-1" not in name} == {
        name: each for name, each in before.items() if "orders-1" not in name
    }
    assert (archive / "out/orders-0" / f"{0:020}.log").stat().st_ino in stamps.values()
    assert names(archive / "out") == {"pipeline-00000001.json", "pipeline-00000002.json"}
    assert command("diff", str(archive / "logs"), str(archive / "out")).exit_code == 0


def test_other_parameters_are_another_output(archive: Path) -> None:
    run(pipeline(archive, CONVERT))
    done = run(pipeline(archive, CONVERT.replace("lz4", "gzip")), resume=True)
    assert (done.status, done.kept) == (0, 0)
    codecs = json.loads(command("inventory", str(archive / "out"), "--format", "json").stdout)["total"]["formats"]
    assert [each["codec"] for each in codecs] == ["gzip"]


def test_a_partition_whose_source_is_gone_keeps_its_output(archive: Path) -> None:
    given = pipeline(archive, CONVERT)
    run(given)
    shutil.rmtree(archive / "logs/orders-0")
    write_partition(archive / "logs", "orders-7", some_records(3))
    assert run(given, resume=True).status == 0
    assert {path.name for path in (archive / "out").glob("orders-*")} == {f"orders-{n}" for n in (0, 1, 2, 7)}
    assert "orders 0" in (archive / "out/recovery-point-offset-checkpoint").read_text()
    shutil.rmtree(archive / "out/orders-0")
    write_partition(archive / "logs", "orders-8", some_records(3))
    assert run(given, resume=True).status == 0, "an output without a source may be removed"
    assert "orders 0" not in (archive / "out/recovery-point-offset-checkpoint").read_text()


def test_a_sink_with_something_in_it_is_refused(archive: Path) -> None:
    given = pipeline(archive, CONVERT)
    (archive / "out").mkdir()
    (archive / "out/mine").touch()
    with pytest.raises(LogDirectoryError, match="found mine"):
        run(given, resume=True)
    (archive / "out/mine").unlink()
    run(given)
    with pytest.raises(LogDirectoryError, match="--resume continues"):
        run(given)


def test_a_changed_output_is_not_overwritten(archive: Path) -> None:
    given = pipeline(archive, CONVERT)
    run(given)
    with (archive / "out/orders-0" / f"{0:020}.log").open("ab") as file:
        file.write(b"more")
    with pytest.raises(LogDirectoryError, match="but it was changed since"):
        run(given, resume=True)


def test_two_runs_at_one_sink_exclude_each_other(archive: Path) -> None:
    class Meanwhile(InProcess):
        def parallelize(self, tasks: list[Any], pieces: int) -> Any:
            with pytest.raises(LogDirectoryError, match="another run, or a broker, is using"):
                run(given, resume=True)
            return super().parallelize(tasks, pieces)

    given = pipeline(archive, CONVERT)
    assert run(given, context=Meanwhile()).status == 0


def test_a_second_attempt_at_a_partition_leaves_the_first_ones_output(archive: Path) -> None:
    class Twice(InProcess):
        def parallelize(self, tasks: list[Any], pieces: int) -> Any:
            return super().parallelize([task for task in tasks for _ in range(2)], 2 * pieces)

    given = pipeline(archive, CONVERT)
    run(given, context=Twice())
    run(pipeline(archive, CONVERT, sink="other"))
    assert contents(archive / "out") == contents(archive / "other")
    assert names(archive / "out") == {"pipeline-00000001.json"}


def test_a_record_of_a_worker_that_outlived_its_driver_and_lost_its_output_counts_for_nothing(archive: Path) -> None:
    class Late(InProcess):
        def parallelize(self, tasks: list[Any], pieces: int) -> Tasks:
            unit = tasks[0][0]
            output = {"name": unit.name, "staged": "gone/1/orders-0", "files": [{"name": f"{0:020}.log", "size": 7}]}
            SinkPlace(unit.sink, unit.name, unit.fingerprint).record.write_text(json.dumps({"outputs": [output]}))
            return super().parallelize(tasks, pieces)

    assert run(pipeline(archive, CONVERT), context=Late()).status == 0
    run(pipeline(archive, CONVERT, sink="other"))
    assert contents(archive / "out") == contents(archive / "other")


@pytest.mark.parametrize("tasks", [0, 1, 2])
def test_after_a_crash_the_rerun_completes_what_an_undisturbed_run_gives(archive: Path, tasks: int) -> None:
    class Dying(Tasks):
        def collect(self) -> list[Any]:
            raise OSError("the driver dies here")

    class Crashing(InProcess):
        def parallelize(self, work: list[Any], pieces: int) -> Tasks:
            return Dying([[[unit]] for bundle in work for unit in bundle][:tasks])

    given = pipeline(archive, CONVERT)
    with pytest.raises(OSError, match="dies"):
        run(given, context=Crashing())
    assert not list((archive / "out").glob("orders-*"))
    (leftover := archive / "out/.pipeline/orders-0.killed.attempt").mkdir(parents=True)
    (leftover / "half").write_bytes(b"half")
    again = run(given, resume=True)
    assert (again.status, again.kept) == (0, tasks)
    run(pipeline(archive, CONVERT, sink="other"))
    assert contents(archive / "out") == contents(archive / "other")
    assert names(archive / "out") == {"pipeline-00000001.json"}


@pytest.mark.parametrize("renamed", [0, 1, 2])
def test_a_crash_behind_the_manifest_is_finished_by_the_next_run(
    archive: Path, renamed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, count, rename = pipeline(archive, CONVERT), 0, Path.rename

    def dying(self: Path, target: Path) -> Path:
        nonlocal count
        if Path(target).parent == archive / "out" and Path(target).name.startswith("orders-"):
            if count == renamed:
                raise OSError("the driver dies here")
            count += 1
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dying)
        with pytest.raises(OSError, match="dies"):
            run(given)
    idle = InProcess()
    assert run(given, resume=True, context=idle).kept == 3
    assert idle.tasks == 0
    run(pipeline(archive, CONVERT, sink="other"))
    assert contents(archive / "out") == contents(archive / "other")
    assert names(archive / "out") == {"pipeline-00000001.json"}


def test_a_full_disk_fails_one_partition_and_the_rerun_completes(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magicbyte.tools.offline.writer import PartitionWriter

    append = PartitionWriter.append

    def full(self: PartitionWriter, data: Any) -> None:
        if self.name == "orders-0":
            raise OSError(28, "No space left on device", str(self.folder))
        append(self, data)

    given = pipeline(archive, CONVERT)
    with monkeypatch.context() as patch:
        patch.setattr(PartitionWriter, "append", full)
        done = run(given)
    assert done.status == 2
    assert {unit["unit"]: unit["outcome"] for unit in done.units} == {
        "orders-0": "failed", "orders-1": "done", "orders-2": "done",
    }  # fmt: skip
    assert sorted(path.name for path in archive.glob("out/orders-*")) == ["orders-1", "orders-2"]
    assert run(given, resume=True).kept == 2
    assert command("diff", str(archive / "logs"), str(archive / "out")).exit_code == 0


@pytest.mark.parametrize("torn", [True, False])
def test_an_input_that_grows_while_it_is_read_is_reported_and_is_no_damage(archive: Path, torn: bool) -> None:
    class Growing(InProcess):
        def parallelize(self, tasks: list[Any], pieces: int) -> Any:
            with (archive / "logs/orders-1" / f"{0:020}.log").open("ab") as file:
                file.write(content_of(some_records(5, first=20))[: 100 if torn else None])
            return super().parallelize(tasks, pieces)

    done = run(pipeline(archive, '[[stage]]\ndo = "inventory"', sink=None), context=Growing())
    assert done.status == 2
    assert {unit["unit"] for unit in done.units if unit["outcome"] == "changed"} == {"orders-1"}


@pytest.mark.parametrize("torn", [True, False])
def test_when_an_input_has_stopped_growing_the_rerun_gives_what_an_undisturbed_run_gives(
    archive: Path, torn: bool
) -> None:
    path, more = archive / "logs/orders-1" / f"{0:020}.log", content_of(some_records(20, first=20))

    class Growing(InProcess):
        def parallelize(self, tasks: list[Any], pieces: int) -> Any:
            with path.open("ab") as file:
                file.write(more[: 100 if torn else len(more) // 2])
            return super().parallelize(tasks, pieces)

    given = pipeline(archive, CONVERT)
    assert {unit["unit"]: unit["outcome"] for unit in run(given, context=Growing()).units}["orders-1"] == "changed"
    assert not (archive / "out/orders-1").exists()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - (100 if torn else len(more) // 2))
        file.seek(0, 2)
        file.write(more)
    again = run(given, resume=True)
    assert (again.status, again.kept) == (0, 2)
    run(pipeline(archive, CONVERT, sink="other"))
    assert contents(archive / "out") == contents(archive / "other")


def test_an_input_that_vanishes_fails_alone_and_the_rerun_has_it_when_it_is_back(archive: Path) -> None:
    class Vanishing(InProcess):
        def parallelize(self, tasks: list[Any], pieces: int) -> Any:
            (archive / "logs/orders-2").rename(archive / "elsewhere")
            return super().parallelize(tasks, pieces)

    given = pipeline(archive, CONVERT)
    done = run(given, context=Vanishing())
    assert done.status == 2
    assert {unit["unit"] for unit in done.units if unit["outcome"] == "failed"} == {"orders-2"}
    assert sorted(path.name for path in archive.glob("out/orders-*")) == ["orders-0", "orders-1"]
    (archive / "elsewhere").rename(archive / "logs/orders-2")
    again = run(given, resume=True)
    assert (again.status, again.kept) == (0, 2)
    run(pipeline(archive, CONVERT, sink="other"))
    assert contents(archive / "out") == contents(archive / "other")


# ---- damage


@pytest.fixture
def damaged(archive: Path) -> Path:
    """The archive with one byte of a record of orders-2 changed."""
    path = archive / "logs/orders-2" / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return archive


@pytest.mark.parametrize(("policy", "status"), [("stop", 1), ("skip", 0)])
def test_damage_stops_its_partition_alone(damaged: Path, policy: str, status: int) -> None:
    done = run(pipeline(damaged, f'on-damage = "{policy}"\n{CONVERT}'))
    assert done.status == status
    (bad,) = (unit for unit in done.units if unit["outcome"] == "damaged")
    assert bad["unit"] == "orders-2"
    assert f"{0:020}.log, position" in bad["error"]
    assert sorted(path.name for path in damaged.glob("out/orders-*")) == ["orders-0", "orders-1"]
    assert names(damaged / "out") == {"pipeline-00000001.json"}


OVER_ALL = {
    "convert": CONVERT,
    "digest": '[[stage]]\ndo = "digest"',
    "filter": '[[stage]]\ndo = "filter"\nfrom-offset = 0',
    "inventory": '[[stage]]\ndo = "inventory"',
    "salvage": '[[stage]]\ndo = "salvage"',
    "salvage when damaged": f'on-damage = "salvage"\n{CONVERT}',
    "verify": '[[stage]]\ndo = "verify"',
}


@pytest.mark.parametrize("stage", OVER_ALL)
def test_a_partition_without_its_log_is_never_done(archive: Path, stage: str) -> None:
    (archive / "logs/orders-2" / f"{0:020}.log").unlink()
    sink = "out" if "format" in OVER_ALL[stage] or stage in ("filter", "salvage") else None
    done = run(pipeline(archive, OVER_ALL[stage], sink=sink))
    assert done.status == 1
    assert {unit["unit"]: unit["outcome"] for unit in done.units}["orders-2"] == "damaged"
    assert not (archive / "out/orders-2").exists()


def test_a_partition_without_one_of_its_segments_is_damaged_or_salvaged(archive: Path) -> None:
    (archive / "logs/orders-2" / f"{1000:020}.index").write_bytes(b"")  # of a segment without its .log
    done = run(pipeline(archive, CONVERT))
    (bad,) = (unit for unit in done.units if unit["outcome"] == "damaged")
    assert (done.status, bad["unit"], f"{1000:020}.log: segment" in bad["error"]) == (1, "orders-2", True)
    done = run(pipeline(archive, f'on-damage = "salvage"\n{CONVERT}', sink="salvaged"))
    (bad,) = (unit for unit in done.units if "salvagedFor" in unit)
    assert (done.status, bad["unit"], bad["salvagedFor"].startswith("missing: ")) == (0, "orders-2", True)


def test_damage_is_salvaged_and_told_when_asked_for(damaged: Path) -> None:
    done = run(pipeline(damaged, f'on-damage = "salvage"\n{CONVERT}'))
    assert done.status == 0
    (bad,) = (unit for unit in done.units if "salvagedFor" in unit)
    assert bad["unit"] == "orders-2"
    assert [stage["do"] for stage in bad["stages"]] == ["salvage", "convert"]
    (loss,) = bad["stages"][0]["lost"]
    assert command("salvage", str(damaged / "logs"), "--out", str(damaged / "sound")).exit_code == 1
    command("convert", str(damaged / "sound"), "--to", "v2", "--codec", "lz4", "--out", str(damaged / "other"))
    assert contents(damaged / "out") == contents(damaged / "other")
    assert loss["offsets"][1] - loss["offsets"][0] == 9, "one batch"


def test_where_nothing_was_done_only_the_report_is_in_the_sink_and_the_next_run_may_have_it(damaged: Path) -> None:
    text = f'{CONVERT}\ntopics = ["orders"]\n'
    shutil.rmtree(damaged / "logs/orders-0")
    shutil.rmtree(damaged / "logs/orders-1")
    done = run(pipeline(damaged, text))
    assert write_report(done) is not None
    assert {path.name for path in (damaged / "out").iterdir()} == {
        ".lock", "pipeline-report.html", "pipeline-report.json",
    }  # fmt: skip
    assert run(pipeline(damaged, f'on-damage = "salvage"\n{text}')).status == 0


def test_verify_stops_a_partition_and_lists_what_it_found(damaged: Path) -> None:
    done = run(pipeline(damaged, '[[stage]]\ndo = "verify"', sink=None))
    assert done.status == 1
    (bad,) = (unit for unit in done.units if unit["outcome"] == "damaged")
    assert any(each["what"] == "crc" for each in bad["stages"][0]["findings"])


def test_records_that_differ_stop_a_partition(archive: Path) -> None:
    write_partition(archive / "else", "orders-0", some_records(300))
    write_partition(archive / "else", "orders-1", some_records(19))
    write_partition(archive / "else", "orders-2", some_records(100))
    done = run(pipeline(archive, '[[stage]]\ndo = "compare"\nwith = "else"', sink=None))
    assert done.status == 1
    (bad,) = (unit for unit in done.units if unit["outcome"] == "different")
    assert (bad["unit"], "1 records differ" in bad["error"]) == ("orders-1", True)


def test_a_source_may_be_in_any_store_that_fsspec_knows(archive: Path) -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    store.put(str(archive / "logs"), "/pipeline-logs", recursive=True)
    text = f'now = 2026-01-07T00:00:00Z\n[[stage]]\ndo = "compact"\ntopics = ["*"]\n{CONVERT}'
    try:
        path = archive / "remote.toml"
        path.write_text(f'{text}\n[source]\npath = "memory://pipeline-logs"\n[sink]\npath = "remote"\n')
        done = run(load(path))
    finally:
        store.rm("/pipeline-logs", recursive=True)
    assert done.status == 0, [unit["error"] for unit in done.units]
    run(pipeline(archive, text))
    assert contents(archive / "remote") == contents(archive / "out")


# ---- plans and reports


def test_the_largest_partitions_come_first_and_small_ones_share_a_task(archive: Path) -> None:
    given = pipeline(archive, CONVERT)
    units = find(given, 0)
    assert [unit.name for unit in units] == ["orders-0", "orders-2", "orders-1"]
    many = [units[0]] + [units[2]] * 4000
    bundles = driver.bundles(many, 2)
    assert sum(map(len, bundles)) == 4001
    assert max(map(len, bundles)) == driver._MOST_UNITS
    assert len(driver.bundles(units, 2)) == 3, "no more in a task than leaves each core some"


def test_digests_go_segment_by_segment_so_that_one_partition_uses_all_cores(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magicbyte.engine.records.digest import Digest
    from magicbyte.spark.pipeline import units

    write_partition(archive / "large", "clicks-0", *(some_records(50, first=first) for first in range(0, 200, 50)))
    given = pipeline(archive, '[[stage]]\ndo = "digest"', source=archive / "large", sink=None)
    (whole,) = run(given).units
    monkeypatch.setattr(units, "LARGEST_PIECE", 1)
    parts = run(given).units
    assert sorted(unit["unit"] for unit in parts) == [f"clicks-0@{first:020}" for first in range(0, 200, 50)]
    total = Digest()
    for unit in parts:
        total = total.plus(Digest(**unit["stages"][0]["digest"]))
    assert total == Digest(**whole["stages"][0]["digest"])
    copied = run(pipeline(archive, '[[stage]]\ndo = "digest"', source=archive / "large"))
    assert [unit["unit"] for unit in copied.units] == ["clicks-0"], "what is copied is copied whole"
    assert (copied.status, copied.units[0]["stages"][0]["digest"]) == (0, whole["stages"][0]["digest"])
    assert copied.units[0]["logEndOffset"] == 200


def test_a_plan_changes_nothing_and_lists_the_work(archive: Path) -> None:
    given = pipeline(archive, CONVERT)
    assert [unit.name for unit in driver.plan(given).due] == ["orders-0", "orders-2", "orders-1"]
    assert not (archive / "out").exists()
    run(given)
    planned = driver.plan(given)
    assert (planned.due, len(planned.done)) == ([], 3)


def test_wrong_sources_and_sinks_are_refused(archive: Path) -> None:
    text = f'{CONVERT}\n[sink]\npath = "logs/out"\n[source]\npath = "logs"\n'
    (archive / "p.toml").write_text(text)
    with pytest.raises(LogDirectoryError, match="outside of"):
        run(load(archive / "p.toml"))
    (archive / "p.toml").write_text(text.replace("logs/out", "out") + 'topics = ["orders", "payments-*"]\n')
    with pytest.raises(UnknownTopicError, match="payments"):
        run(load(archive / "p.toml"))
    assert not (archive / "out").exists(), "what cannot be found leaves no sink behind"


PLACES = ("logs", "logs/orders-0", "logs/new", "link", "link/new", "out/../logs/new")


@pytest.mark.parametrize(
    ("what", "sink"),
    [
        *((what, sink) for what in ("sink", "compared", "source by a URL", "scratch", "report") for sink in PLACES),
        *((what, ".") for what in ("sink", "compared", "source by a URL")),
    ],
)
def test_a_pipeline_writes_into_nothing_that_it_reads(archive: Path, what: str, sink: str) -> None:
    (archive / "link").symlink_to("logs")
    (archive / "out").mkdir()
    sources = f"file://{archive}/logs" if what == "source by a URL" else "logs"
    stages, report, place = CONVERT, "", sink
    if what == "compared":
        shutil.copytree(archive / "logs", archive / "other/logs")
        sources, stages = "other/logs", f'{CONVERT}\n[[stage]]\ndo = "compare"\nwith = "logs"'
    elif what == "scratch":
        place = f'memory://unseen"\nscratch = "{sink}'
    elif what == "report":
        report, place = f'report = "{sink}"\n', "out"
    (archive / "p.toml").write_text(f'{report}{stages}\n[sink]\npath = "{place}"\n[source]\npath = "{sources}"\n')
    before = {each: each.lstat().st_mtime_ns for each in archive.rglob("*")}
    for do in (run, driver.plan):
        with pytest.raises(LogDirectoryError, match="which is an input"):
            do(load(archive / "p.toml"))
    assert {each: each.lstat().st_mtime_ns for each in archive.rglob("*")} == before


@pytest.mark.parametrize("key", ["sink", "report"])
def test_a_plan_says_that_a_folder_cannot_be_written_and_why(
    archive: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = pipeline(archive, CONVERT)
    given = replace(given, **{key: archive / "a file/deeper"})
    (archive / "a file").touch()
    with pytest.raises(LogDirectoryError, match=r"deeper: cannot be written: .*a file is not a folder"):
        driver.plan(given)
    given = replace(given, **{key: archive / "shut/deeper"})
    (archive / "shut").mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "shut" and real(path, mode))
    with pytest.raises(
        LogDirectoryError, match=r"deeper: cannot be written: .*shut may not be written to by this user"
    ):
        driver.plan(given)
    assert list((archive / "shut").iterdir()) == []


UNKNOWN = {
    "no topic 'clikcs-": '[[stage]]\ndo = "verify"\ntopics = ["orders", "clikcs-*"]\n',
    "partition 7": '[source]\npath = "logs"\npartitions = [1, 7]\n[[stage]]\ndo = "verify"\n',
    "outside of": 'report = "logs/told"\n[[stage]]\ndo = "verify"\n',
}


@pytest.mark.parametrize("said", UNKNOWN)
def test_a_setting_that_would_be_ignored_is_refused(archive: Path, said: str) -> None:
    text = UNKNOWN[said]
    (archive / "p.toml").write_text(text if "[source]" in text else text + '[source]\npath = "logs"\n')
    with pytest.raises(MagicbyteError, match=re.escape(said)):
        driver.plan(load(archive / "p.toml"))


def test_a_plan_refuses_the_sink_that_a_run_would_refuse(archive: Path) -> None:
    (archive / "out").mkdir()
    (archive / "out/letter.txt").write_text("not a pipeline's")
    given = pipeline(archive, CONVERT)
    with pytest.raises(LogDirectoryError, match=r"found letter\.txt"):
        driver.plan(given)
    with pytest.raises(LogDirectoryError, match=r"found letter\.txt"):
        run(given)
    with pytest.raises(LogDirectoryError, match="expected a folder, found a file"):
        run(replace(given, sink=archive / "out/letter.txt"))


@pytest.mark.parametrize("master", ["", "foo", "local[x]", "local[0]", "local[*", "spark://host", "mesos://host:1"])
def test_a_master_that_is_none_is_refused_before_anything_is_made(archive: Path, master: str) -> None:
    with pytest.raises(PipelineError, match="--master: expected local"):
        driver.run(pipeline(archive, CONVERT), master=master)
    assert not (archive / "out").exists()


def test_a_spark_that_stops_by_itself_is_reported_in_a_line(archive: Path) -> None:
    """As where no master answers: Spark takes a minute to find that out, when all seems to be well."""

    class Stopped(InProcess):
        def parallelize(self, tasks: list[Any], pieces: int) -> Tasks:
            raise Py4JError("Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was")

    with pytest.raises(RunFailedError, match=r"^Spark gave up: Cannot call .* stopped SparkContext\.; --resume"):
        run(pipeline(archive, CONVERT), context=Stopped())
    assert run(pipeline(archive, CONVERT), resume=True).status == 0


def test_an_error_in_a_workers_python_is_reported_without_its_trace() -> None:
    trace = 'Traceback (most recent call last):\n  File "worker.py", line 1, in <module>\n    import a\n'
    error = Py4JError(f"[PYTHON_EXCEPTION] An exception was thrown: {trace}ModuleNotFoundError: No module named 'a'\n")
    assert first_line(error) == "in a worker's Python, ModuleNotFoundError: No module named 'a'"
    assert first_line(Py4JError("Job aborted\n\tat org.apache")) == "Job aborted"


@pytest.mark.parametrize("memory", ["lots", "", "0g", "-1g", "1024", "1.5g"])
def test_memory_that_a_worker_would_not_take_is_refused(memory: str) -> None:
    done = command("pipeline", "cluster", "up", "--memory", memory)
    assert done.exit_code == 2
    assert f"{memory!r}: expected a size such as 512m or 1g" in done.stderr


def test_an_interrupt_says_how_to_continue(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: Any, **__: Any) -> PipelineRun:
        raise KeyboardInterrupt

    pipeline(archive, CONVERT)
    monkeypatch.setattr(driver, "run", stopped)
    done = command("pipeline", "run", str(archive / "pipeline.toml"))
    assert (done.exit_code, done.stderr) == (130, "magicbyte: stopped; --resume continues after the finished work\n")


def test_an_output_of_which_something_is_gone_is_not_committed(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a second attempt gives up, and takes away what the first one finished."""
    commit = Sink.commit

    def late(sink: Sink, manifest: dict[str, Any]) -> None:
        next(sink.work.glob("orders-0.*.*/*/orders-0/*.log")).unlink()
        commit(sink, manifest)

    given = pipeline(archive, CONVERT)
    with monkeypatch.context() as patch:
        patch.setattr(Sink, "commit", late)
        with pytest.raises(LogDirectoryError, match=r"the output orders-0 is missing: run again with --resume"):
            run(given)
    assert not list((archive / "out").glob("pipeline-*"))
    again = run(given, resume=True)
    assert (again.status, again.kept) == (0, 2), "the other two are kept"


def test_an_abandoned_attempt_does_not_disturb_the_clearing(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes into its folder until that is gone, as one does whose executor was given up."""
    removed, late = shutil.rmtree, []

    def remove(path: Path, **how: Any) -> None:
        folder = archive / "out/.pipeline/orders-0.0123456789abcdef.late"
        if folder.is_dir():
            (folder / "more").write_bytes(b"")
            late.append(folder)
        removed(path, **how)

    run(pipeline(archive, CONVERT))
    (archive / "out/.pipeline/orders-0.0123456789abcdef.late").mkdir(parents=True)
    monkeypatch.setattr(shutil, "rmtree", remove)
    assert run(pipeline(archive, CONVERT), resume=True).status == 0
    assert not late, "it has nothing to write into when the removal begins"
    assert not (archive / "out/.pipeline").exists()


def test_a_report_has_every_number_and_needs_nothing_else(damaged: Path) -> None:
    text = f'[[stage]]\ndo = "inventory"\n{CONVERT}\n[[stage]]\ndo = "inventory"\n'
    done = run(pipeline(damaged, text))
    found = as_json(done)
    assert json.loads(json.dumps(found)) == found
    assert set(found["formatsBefore"]) == {"magic 2, none"}
    assert set(found["formatsAfter"]) == {"magic 2, lz4"}
    assert [each["do"] for each in found["stages"]] == ["inventory", "convert", "inventory 2"]
    assert found["bytesOut"] == sum(path.stat().st_size for path in damaged.glob("out/*/*.log"))
    page = as_html(found)
    assert page.count("<svg") == 5
    assert "orders-2" in page
    assert "http" not in page, "nothing is fetched"
    assert write_report(done) == damaged / "out/pipeline-report.html"
    assert run(pipeline(damaged, text), resume=True).kept == 2, "a report in the sink is no stranger"


def test_a_unit_says_what_it_holds(archive: Path) -> None:
    unit = find(pipeline(archive, CONVERT), 0)[0]
    assert isinstance(unit, Unit)
    assert unit.size == (archive / "logs/orders-0" / f"{0:020}.log").stat().st_size


def test_a_terminal_shows_a_bar_for_each_stage_and_one_for_all(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from magicbyte.cli.pipeline import _progress

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    given, screen = pipeline(archive, f'[[stage]]\ndo = "verify"\n{CONVERT}'), Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with _progress(given) as advance:
        done = driver.run(given, context=InProcess(), progress=advance)
    assert done.status == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    for name in ("verify", "convert", "all"):
        assert re.search(rf"{name}[^\n]*3 of 3", shown), shown[-2000:]


def test_the_command_runs_a_pipeline_and_its_status_says_how_it_went(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline(archive, CONVERT)
    real = driver.run
    monkeypatch.setattr(driver, "run", lambda given, **how: real(given, **{**how, "context": InProcess()}))
    planned = command("pipeline", "run", str(archive / "pipeline.toml"), "--dry-run")
    assert (planned.exit_code, planned.stdout.splitlines()[-1]) == (
        0,
        "3 partitions, 29.7 KiB, to be done; 0 done before",
    )
    done = command("pipeline", "run", str(archive / "pipeline.toml"), "--format", "json")
    assert (done.exit_code, json.loads(done.stdout)["partitions"]) == (0, 3)
    again = command("pipeline", "run", str(archive / "pipeline.toml"))
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    resumed = command("pipeline", "run", str(archive / "pipeline.toml"), "--resume")
    assert (resumed.exit_code, resumed.stdout.splitlines()[-1]) == (
        0,
        "3 partitions: 3 done; 3 of them by earlier runs",
    )


def test_partitions_that_the_source_lacks_are_reported_if_they_are_selected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = tmp_path / "logs"
    write_partition(logs, "there-0", some_records(30))
    (logs / "replication-offset-checkpoint").write_text("0\n3\ngone 0 12\nother 0 5\nthere 0 30\n")
    (logs / "lost-0").mkdir()
    (logs / "lost-0/00000000000000000057.snapshot").write_bytes(b"")
    stages = '[[stage]]\ndo = "digest"\n'
    (tmp_path / "p.toml").write_text(f'[source]\npath = "{logs}"\ntopics = ["lost", "[gt]*"]\n{stages}')
    run(load(tmp_path / "p.toml"))
    told = [each.getMessage().split(", expected")[0] for each in caplog.records if "missing" in each.getMessage()]
    assert [text.removeprefix(f"missing: {logs}/").split(":")[0] for text in told] == ["lost-0", "gone-0"]
