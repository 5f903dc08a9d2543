"""Converting logs: every golden log in every direction, and the same bytes however often it is interrupted."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import golden_data
from builders import contents, in_turn, unbase64
from magicbyte.access import workers
from magicbyte.engine.codecs import Codec, Lz4Header, compress
from magicbyte.engine.errors import (
    CorruptRecordError,
    LogDirectoryError,
    UnsupportedCompressionError,
)
from magicbyte.engine.log.files import checkpoints, reader
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import MESSAGE_CRC
from magicbyte.engine.records.message import build_message, build_wrapper
from magicbyte.engine.wire.checksum import crc32
from magicbyte.tools.offline import convert
from magicbyte.tools.offline.convert import (
    STATE,
    ConvertOptions,
    PartitionConversion,
    convert_partitions,
    partitions_to_convert,
)

ALL = golden_data.log_cases()
SMALL = [
    golden_data.log_case(name)
    for name in ("0.9.0.1/basic-gzip", "0.10.2.2/basic-lz4", "3.9.1/txn-none", "4.3.1/basic-zstd", "2.8.2/basic-none")
]


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that loses nothing: hundreds of partitions are written."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def run(source: Path | list[Path], out: Path, options: ConvertOptions) -> list[PartitionConversion]:
    partitions = partitions_to_convert(map(str, source if isinstance(source, list) else [source]))
    return list(convert_partitions(partitions, out, options))


def logs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.log")}


def records(folder: Path) -> list[Record]:
    (partition,) = discover([str(folder)])
    return [record for columns in SegmentReader(partition).records() for record in columns]


def as_json(record: Record, case: golden_data.Case, target: Format) -> dict[str, Any]:
    """A record as the golden data have it, without what the target could not hold."""
    found: dict[str, Any] = {"offset": record.offset, "key": record.key, "value": record.value}
    if target is not Format.V0 and case.magics != (0,):
        found["timestamp"] = record.timestamp
    if target is Format.V2:
        found["headers"] = [list(pair) for pair in record.headers]
    return found


def expected_records(case: golden_data.Case, target: Format) -> list[dict[str, Any]]:
    found = []
    for said in case.records():
        one: dict[str, Any] = {"offset": said["offset"]} | {name: unbase64(said[name]) for name in ("key", "value")}
        if target is not Format.V0 and case.magics != (0,):
            one["timestamp"] = said["timestamp"]
        if target is Format.V2:
            one["headers"] = [[name, unbase64(value)] for name, value in said["headers"]]
        found.append(one)
    return found


# ---- golden logs


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("case", golden_data.one_of_each_kind(ALL))
def test_every_golden_log_in_every_direction(case: golden_data.Case, tmp_path: Path) -> None:
    source = case.partition_dir(named=True)
    sizes = {name: len(content) for name, content in case.segments().items()}
    for target in Format:
        codec = Codec.GZIP if target is not Format.V2 and "zstd" in case.codecs_found else None
        out = tmp_path / target.name
        (done,) = run(source, out, ConvertOptions(target, codec, verify=True))
        if case.state == "crashed" and case.name != "crash-kill.crashed":
            assert isinstance(done.error, CorruptRecordError)
            assert [path.name for path in out.iterdir()] == [STATE]
            continue
        assert done.error is None
        assert done.verified
        assert done.comparison is not None
        assert done.comparison.same
        assert done.report.bytes_in == sum(sizes.values())
        if case.has_records:
            expected = expected_records(case, target)
            first = expected[0]["offset"] if case.group == "trimmed" else 0
            found = [as_json(record, case, target) for record in records(done.folder) if record.offset >= first]
            assert found == expected
        if {target.magic} == set(case.magics) and target is not Format.ENRICHED:
            assert logs(done.folder) == case.segments()
            assert done.report.bytes_passed_through == done.report.bytes_in


OF_EACH_KIND = golden_data.those_of_each_kind(case for case in ALL if case.group == "basic")
OTHERS = [case for case in ALL if case.state != "crashed" and case not in OF_EACH_KIND]


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("case", OF_EACH_KIND, ids=str)
def test_every_codec_holds_the_same_records(case: golden_data.Case, codec: Codec, tmp_path: Path) -> None:
    holds_the_same_records(case, codec, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize(("case", "codec"), in_turn(OTHERS, list(Codec)), ids=str)
def test_every_codec_holds_the_same_records_of_all_golden_logs(
    case: golden_data.Case, codec: Codec, tmp_path: Path
) -> None:
    holds_the_same_records(case, codec, tmp_path)


def holds_the_same_records(case: golden_data.Case, codec: Codec, tmp_path: Path) -> None:
    for target in Format:
        if codec is Codec.ZSTD and target is not Format.V2:
            continue
        (done,) = run(
            case.partition_dir(named=True), tmp_path / target.name, ConvertOptions(target, codec, verify=True)
        )
        assert done.verified
        own = {target.magic} == set(case.magics) and target is not Format.ENRICHED
        if own and set(case.codecs_found) == {codec.name.lower()}:
            assert logs(done.folder) == case.segments()
        found = {
            entry.codec
            for content in logs(done.folder).values()
            for _, entry in entries(content, target.dialect)
            if not entry.is_control and entry.record_count != 0  # what compaction emptied stays as it is
        }
        assert found == {codec}


# ---- a log directory


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A log directory of several partitions, in all formats, with what lies beside them."""
    folder = tmp_path / "source"
    for number, case in enumerate(SMALL):
        shutil.copytree(case.partition_dir(), folder / f"orders-{number}")
    trimmed = golden_data.log_case("3.9.1/trimmed-none")
    shutil.copytree(trimmed.partition_dir(), folder / "trimmed-0")
    shutil.copytree(SMALL[0].partition_dir(), folder / f"gone-0.{'ab' * 16}-delete")
    (folder / checkpoints.LOG_START).write_text("0\n1\ntrimmed 0 77\n")
    (folder / checkpoints.META_PROPERTIES).write_text("version=0\nbroker.id=7\n")
    return folder


def test_a_log_directory_comes_with_all_that_a_broker_looks_at(source: Path, tmp_path: Path) -> None:
    before = contents(source)
    out = tmp_path / "out"
    done = run(source, out, ConvertOptions(Format.V2, verify=True))
    assert [str(each.name) for each in done] == [*(f"orders-{number}" for number in range(5)), "trimmed-0"]
    assert all(each.sound and each.verified and not each.resumed for each in done)
    assert contents(source) == before
    found = {path.name for path in out.iterdir()}
    assert found == {
        *(str(each.name) for each in done),
        *(checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK, checkpoints.LOG_START),
        *(checkpoints.META_PROPERTIES, checkpoints.CLEAN_SHUTDOWN, STATE),
    }
    assert (out / checkpoints.META_PROPERTIES).read_bytes() == (source / checkpoints.META_PROPERTIES).read_bytes()
    assert (out / checkpoints.LOG_START).read_text() == "0\n1\ntrimmed 0 77\n"
    ends = checkpoints.parse_offset_checkpoint((out / checkpoints.HIGH_WATERMARK).read_bytes())
    last = {str(each.name): records(each.folder)[-1].offset + 1 for each in done}
    assert {str(name): end for name, end in ends.items() if name != ("orders", 2)} == {
        name: end for name, end in last.items() if name != "orders-2"
    }
    assert ends[TopicPartition("orders", 2)] == SMALL[2].batches()[-1]["lastOffset"] + 1  # a marker


@pytest.mark.parametrize(("noted", "kept"), [("0\n2\n0 0\n9 {end}\n", 2), ("0\n1\n0 0\n", 1), ("nonsense", 1)])
def test_the_epoch_of_a_leader_that_wrote_nothing_is_kept(noted: str, kept: int, tmp_path: Path) -> None:
    case = golden_data.log_case("3.9.1/txn-none")
    path = Path(shutil.copytree(case.partition_dir(), tmp_path / "txn-0"))
    end = case.batches()[-1]["lastOffset"] + 1
    assert (path / checkpoints.LEADER_EPOCHS).read_text() == "0\n1\n0 0\n"
    (path / checkpoints.LEADER_EPOCHS).write_text(noted.format(end=end))
    (done,) = run(path, tmp_path / "out", ConvertOptions(Format.V2))
    expected = "0\n2\n0 0\n9 {end}\n" if kept == 2 else "0\n1\n0 0\n"
    assert (done.folder / checkpoints.LEADER_EPOCHS).read_text() == expected.format(end=end)
    (older,) = run(path, tmp_path / "older", ConvertOptions(Format.V1))
    assert not (older.folder / checkpoints.LEADER_EPOCHS).exists()


def test_the_end_of_the_log_stays_where_the_last_entry_is_left_out(tmp_path: Path) -> None:
    case = golden_data.log_case("3.9.1/txn-none")
    end = case.batches()[-1]["lastOffset"] + 1
    assert case.batches()[-1]["isControl"]
    (done,) = run(case.partition_dir(named=True), tmp_path / "out", ConvertOptions(Format.V1, verify=True))
    assert records(done.folder)[-1].offset < end - 1
    assert (done.folder / f"{end:020}.log").read_bytes() == b""
    assert f"txn-none 0 {end}" in (tmp_path / "out" / checkpoints.HIGH_WATERMARK).read_text()
    assert done.report.lost()["transaction_markers"] > 0


def test_segments_begin_where_the_source_rolled_and_where_they_would_grow_too_large(tmp_path: Path) -> None:
    case = golden_data.log_case("3.9.1/basic-gzip")
    (name,) = case.segments()
    options = ConvertOptions(Format.V0, Codec.NONE, verify=True, segment_bytes=1000)
    (done,) = run(case.partition_dir(named=True), tmp_path / "out", options)
    assert done.verified
    found = sorted(logs(done.folder))
    assert found[0] == name
    assert len(found) > 1
    most = len(case.segments()[name])
    assert all(len(content) <= most or len(list(entries(content))) == 1 for content in logs(done.folder).values())


@pytest.mark.parametrize("held", [1, 128 << 20])
def test_threads_make_the_same_bytes(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(reader, "CHUNK_BYTES", 9000)
    monkeypatch.setattr(workers, "HELD_BYTES", held)
    for threads in (1, 4):
        done = run(source, tmp_path / str(threads), ConvertOptions(Format.V2, Codec.LZ4, threads=threads, verify=True))
        assert all(each.verified for each in done)
    assert contents(tmp_path / "1") == contents(tmp_path / "4")


@pytest.mark.parametrize("held", [1, 128 << 20])
@pytest.mark.parametrize("at", [0, -1])
def test_threads_find_the_same_damage(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, at: int
) -> None:
    monkeypatch.setattr(workers, "HELD_BYTES", held)
    log = min((source / "orders-2").glob("*.log"))
    content = bytearray(log.read_bytes())
    position, _ = list(entries(content))[at]
    content[position + 70] ^= 1
    log.write_bytes(content)
    errors = []
    for threads in (1, 4):
        done = run(source, tmp_path / str(threads), ConvertOptions(Format.V2, Codec.NONE, threads=threads))
        assert [each.sound for each in done] == [True, True, False, True, True, True]
        errors.append(str(done[2].error))
    assert errors[0] == errors[1]
    assert f"{log}, position {position}, " in errors[0]
    assert contents(tmp_path / "1") == contents(tmp_path / "4")


def test_both_forms_of_the_kernels_make_the_same_bytes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for form in ("plain", "compiled"):
        monkeypatch.setenv("MAGICBYTE_KERNELS", form)
        run(source, tmp_path / form, ConvertOptions(Format.V1, Codec.GZIP, verify=True))
    assert contents(tmp_path / "plain") == contents(tmp_path / "compiled")


def test_a_damaged_partition_is_left_out_and_the_others_are_converted(source: Path, tmp_path: Path) -> None:
    log = min((source / "orders-3").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    out = tmp_path / "out"
    done = run(source, out, ConvertOptions(Format.V2, Codec.NONE))
    assert [str(each.name) for each in done if each.error is not None] == ["orders-3"]
    error = done[3].error
    assert isinstance(error, CorruptRecordError)
    assert (error.path, error.what) == (str(log), "crc")
    assert not (out / "orders-3").exists()
    assert not list(out.glob(".*.part"))
    assert "orders 3" not in (out / checkpoints.HIGH_WATERMARK).read_text()
    shutil.copyfile(SMALL[3].partition_dir() / log.name, log)
    done = run(source, out, ConvertOptions(Format.V2, Codec.NONE))
    assert all(each.sound for each in done)
    assert [each.resumed for each in done] == [True, True, True, False, True, True]
    run(source, tmp_path / "other", ConvertOptions(Format.V2, Codec.NONE))
    assert contents(out) == contents(tmp_path / "other")


def test_zstd_needs_another_codec_below_v2(source: Path, tmp_path: Path) -> None:
    done = run(source, tmp_path / "out", ConvertOptions(Format.V1))
    assert isinstance(done[3].error, UnsupportedCompressionError)
    assert sum(each.sound for each in done) == 5


def test_a_partition_that_differs_from_its_source_is_reported_and_gets_no_clean_shutdown_file(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lying(*arguments: Any, **named: Any) -> Iterator[memoryview]:
        for chunk in real(*arguments, **named):
            yield memoryview(bytes(chunk).replace(b"value-", b"VALUE-"))

    real = convert.convert
    monkeypatch.setattr(convert, "convert", lying)
    out = tmp_path / "out"
    (done,) = run(source / "orders-0", out, ConvertOptions(Format.V0, Codec.NONE, verify=True))
    assert not done.sound
    assert isinstance(done.error, CorruptRecordError)  # here by the checksum
    assert not (out / checkpoints.CLEAN_SHUTDOWN).exists()


# ---- LZ4


def lz4_log(folder: Path, *headers: Lz4Header, magic: int = 1) -> Path:
    """A partition of one wrapper per header checksum."""
    content = b""
    for number, header in enumerate(headers):
        first = 10 * number
        inner = [build_message(magic, at, 7, b"k", b"v%d" % at * 20) for at in range(first, first + 10)]
        relative = [build_message(magic, at, 7, b"k", b"v%d" % (first + at) * 20) for at in range(10)]
        plain = b"".join(relative if magic else inner)
        sound = build_wrapper(magic, Codec.LZ4, plain, first + 9, 7)
        frame = compress(Codec.LZ4, plain, lz4_header=header)
        entry = bytearray(sound[: -len(frame)] + frame)
        MESSAGE_CRC.write(memoryview(entry), crc32(entry[16:]))
        content += entry
    target = folder / "orders-0"
    target.mkdir(parents=True)
    (target / f"{0:020}.log").write_bytes(content)
    return target


BROKEN, CORRECT = Lz4Header.BROKEN, Lz4Header.CORRECT


def test_broken_lz4_headers_are_repaired_and_nothing_else_changes(tmp_path: Path) -> None:
    source = lz4_log(tmp_path / "a", BROKEN, CORRECT, BROKEN)
    right = lz4_log(tmp_path / "b", CORRECT, CORRECT, CORRECT)
    (done,) = run(source, tmp_path / "out", ConvertOptions(Format.V1, fix_lz4=True, verify=True))
    assert done.verified
    assert done.lz4_headers == 2
    assert logs(done.folder) == logs(right)
    assert len(records(done.folder)) == 30


def test_the_header_checksum_of_v0_becomes_what_old_clients_expect(tmp_path: Path) -> None:
    source = lz4_log(tmp_path / "a", CORRECT, BROKEN, magic=0)
    (done,) = run(source, tmp_path / "out", ConvertOptions(Format.V0, fix_lz4=True, verify=True))
    assert done.lz4_headers == 1
    assert logs(done.folder) == logs(lz4_log(tmp_path / "b", BROKEN, BROKEN, magic=0))


@pytest.mark.parametrize("target", [Format.V0, Format.V2, Format.ENRICHED])
def test_a_log_with_broken_lz4_headers_is_converted_when_they_are_repaired(tmp_path: Path, target: Format) -> None:
    source = lz4_log(tmp_path / "a", BROKEN, CORRECT)
    (done,) = run(source, tmp_path / "out", ConvertOptions(target))
    assert isinstance(done.error, CorruptRecordError)
    assert "lz4 header checksum" in done.error.what
    (done,) = run(source, tmp_path / "fixed", ConvertOptions(target, fix_lz4=True, verify=True))
    assert done.verified
    assert done.lz4_headers == 1


# ---- interruptions


class Crash(BaseException):
    """The power goes."""


class Power:
    """Goes at the nth of all the calls that make something durable or visible."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = sys.maxsize
        self.calls = 0
        monkeypatch.setattr(os, "fsync", lambda _: None)
        for owner, name in ((os, "fsync"), (Path, "rename"), (Path, "replace"), (Path, "mkdir"), (shutil, "rmtree")):
            monkeypatch.setattr(owner, name, self.watched(getattr(owner, name)))

    def watched(self, real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            self.left -= 1
            if self.left < 0:
                raise Crash
            return real(*arguments, **named)

        return call

    def goes_after(self, calls: int) -> None:
        self.left = calls


OPTIONS = ConvertOptions(Format.V2, Codec.LZ4, verify=True)


def is_noted_as_whole(out: Path, name: str) -> bool:
    lines = (out / STATE).read_text().splitlines() if (out / STATE).exists() else []
    return any("whole" in json.loads(line) for line in lines if f'"partition": "{name}"' in line)


def test_a_crash_anywhere_and_a_rerun_give_the_bytes_of_an_undisturbed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, case in enumerate(SMALL[:2]):
        shutil.copytree(case.partition_dir(), tmp_path / "source" / f"orders-{number}")
    run(tmp_path / "source", tmp_path / "warm", OPTIONS)  # kernels may be compiled, and kept in files
    power = Power(monkeypatch)
    run(tmp_path / "source", tmp_path / "whole", OPTIONS)
    whole, calls = contents(tmp_path / "whole"), power.calls
    assert calls > 20
    nameless = 0
    for moment in range(calls):
        out = tmp_path / f"out-{moment}"
        power.goes_after(moment)
        with pytest.raises(Crash):
            run(tmp_path / "source", out, OPTIONS)
        visible = [path for path in out.glob("orders-*") if path.is_dir()] if out.exists() else []
        for path in visible:  # what has its name is complete
            assert {name: whole[f"{path.name}/{name}"] for name in contents(path)} == contents(path)
            assert len(contents(path)) == sum(name.startswith(path.name) for name in whole)
        power.goes_after(sys.maxsize)
        only_nameless = {name for name in ("orders-0", "orders-1") if is_noted_as_whole(out, name)} - {
            path.name for path in visible
        }
        done = run(tmp_path / "source", out, OPTIONS)
        assert contents(out) == whole
        assert sum(each.resumed for each in done) == len(visible) + len(only_nameless)
        nameless += len(only_nameless)
    assert nameless >= 2  # a crash between the note and the name, of each partition


@pytest.mark.parametrize("seed", range(3))
def test_crashes_in_a_row_do_not_matter_either(
    source: Path, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    run(source, tmp_path / "whole", OPTIONS)
    power, out = Power(monkeypatch), tmp_path / "out"
    for _ in range(50):
        power.goes_after(rng.randrange(5, 40))
        try:
            run(source, out, OPTIONS)
            break
        except Crash:
            continue
    power.goes_after(sys.maxsize)
    run(source, out, OPTIONS)
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("name", ["3.9.1/txn-none", "0.9.0.1/compact-gzip.after"])
@pytest.mark.parametrize("version", ["0.11.0.3", "2.3.1", "4.3"])
def test_segments_that_an_interrupted_run_has_done_are_not_converted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str
) -> None:
    source, out = tmp_path / "source" / "orders-0", tmp_path / "out"
    shutil.copytree(golden_data.log_case(name).partition_dir(), source)
    segments = len(list(source.glob("*.log")))
    assert segments > 2
    options = ConvertOptions(Format.V2, Codec.GZIP, version=version)
    whole = run(source, tmp_path / "whole", options)
    read: list[str] = []
    real = convert.read_chunks

    def counted(file: Any, **named: Any) -> Any:
        read.append(Path(file.path).name)
        return real(file, **named)

    monkeypatch.setattr(convert, "read_chunks", counted)
    remember = convert._Job.remember_segments
    for stop in range(1, segments):

        def stopped(job: Any, done: Any, writer: Any, base_offset: int, next_offset: int) -> None:
            remember(job, done, writer, base_offset, next_offset)
            raise Crash

        monkeypatch.setattr(convert._Job, "remember_segments", stopped)
        read.clear()
        with pytest.raises(Crash):
            run(source, out, options)
        assert read[0] == sorted(path.name for path in source.glob("*.log"))[stop - 1]
    monkeypatch.setattr(convert._Job, "remember_segments", remember)
    read.clear()
    again = run(source, out, options)
    assert read == sorted(path.name for path in source.glob("*.log"))[-1:]
    assert [each.report for each in again] == [each.report for each in whole]
    assert contents(out) == contents(tmp_path / "whole")


def test_segments_that_are_not_there_as_they_were_are_converted_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(source, tmp_path / "whole", OPTIONS)
    power, out = Power(monkeypatch), tmp_path / "out"
    power.goes_after(12)
    with pytest.raises(Crash):
        run(source, out, OPTIONS)
    power.goes_after(sys.maxsize)
    for log in out.glob(".*.part/*.log"):
        log.write_bytes(log.read_bytes()[:-1])
    run(source, out, OPTIONS)
    assert contents(out) == contents(tmp_path / "whole")


def command(source: Path, out: Path, *, before: str = "") -> list[str]:
    program = f"{before}\nfrom magicbyte.cli.main import main; main()"
    arguments = [
        "convert",
        source,
        "--to",
        "v2",
        "--codec",
        "gzip",
        "--out",
        out,
        "--verify",
        "--threads",
        "2",
        "--same-cluster",
    ]
    return [sys.executable, "-c", program, *map(str, arguments)]


@pytest.fixture
def larger(tmp_path: Path) -> Path:
    """Some megabytes of plain messages in three partitions."""
    rng = random.Random(4)
    for number in range(3):
        folder = tmp_path / "larger" / f"orders-{number}"
        folder.mkdir(parents=True)
        for base in (0, 4000):
            messages = [build_message(1, at, at, b"k", rng.randbytes(100)) for at in range(base, base + 4000)]
            (folder / f"{base:020}.log").write_bytes(b"".join(messages))
    return tmp_path / "larger"


@pytest.mark.parametrize(
    "seed",
    [
        0,
        pytest.param(1, marks=pytest.mark.slow),
        *(pytest.param(seed, marks=[pytest.mark.slow, pytest.mark.campaign]) for seed in range(2, 30)),
    ],
)
def test_a_killed_process_and_a_rerun_give_the_bytes_of_an_undisturbed_run(
    larger: Path, tmp_path: Path, seed: int
) -> None:
    run(larger, tmp_path / "whole", ConvertOptions(Format.V2, Codec.GZIP, verify=True))
    rng, out = random.Random(seed), tmp_path / "out"
    kills = 0
    while kills < 5:
        process = subprocess.Popen(command(larger, out), stdout=subprocess.DEVNULL)
        try:
            assert process.wait(rng.uniform(0.2, 1.2)) == 0
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert subprocess.run(command(larger, out), stdout=subprocess.DEVNULL).returncode == 0
    assert contents(out) == contents(tmp_path / "whole")


def test_ctrl_c_reports_the_progress_and_a_rerun_continues(larger: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(command(larger, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (out / "orders-0").exists():
        pass
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=240)
    if process.returncode != 0:  # it may have been through by then
        assert process.returncode == 130
        assert "of 3 partitions finished" in said
    done = run(larger, out, ConvertOptions(Format.V2, Codec.GZIP, verify=True))
    assert done[0].resumed


@pytest.mark.parametrize("limit", [1000, 30_000, 300_000])
def test_a_disk_that_takes_no_more_leaves_the_source_and_what_was_finished(
    source: Path, larger: Path, tmp_path: Path, limit: int
) -> None:
    shutil.copytree(larger / "orders-0", source / "zzz-0")
    before, out = contents(source), tmp_path / "out"
    full = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))"
    stopped = subprocess.run(command(source, out, before=full), capture_output=True, text=True)
    assert stopped.returncode == 2
    finished = sorted(path.name for path in out.glob("*-?"))
    assert f"stopped: {len(finished)} of 7 partitions finished in {out}" in stopped.stderr
    assert "File too large" in stopped.stderr
    assert contents(source) == before
    run(source, tmp_path / "whole", ConvertOptions(Format.V2, Codec.GZIP, verify=True))
    for name in finished:
        assert contents(out / name) == contents(tmp_path / "whole" / name)
    assert subprocess.run(command(source, out), capture_output=True).returncode == 0
    assert contents(out) == contents(tmp_path / "whole")


# ---- continuing, or not


def test_a_finished_conversion_is_not_written_again(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = run(source, out, OPTIONS)
    (out / checkpoints.CLEAN_SHUTDOWN).unlink()  # as a broker does when it starts
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = run(source, out, OPTIONS)
    assert [each.report for each in again] == [each.report for each in first]
    assert all(each.resumed and each.verified for each in again)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == times


def test_a_rerun_may_ask_for_verification_that_the_first_run_did_not(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert not any(each.verified for each in run(source, out, ConvertOptions(Format.V1, Codec.GZIP)))
    assert all(each.verified for each in run(source, out, ConvertOptions(Format.V1, Codec.GZIP, verify=True)))


def test_another_conversion_is_not_continued(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(source / "orders-0", out, ConvertOptions(Format.V1))
    for options in (
        ConvertOptions(Format.V2),
        ConvertOptions(Format.V1, Codec.GZIP),
        ConvertOptions(Format.V1, version="0.11.0"),
    ):
        with pytest.raises(LogDirectoryError, match="found another"):
            run(source / "orders-0", out, options)
    with pytest.raises(LogDirectoryError, match="found a complete one"):
        run(source, out, ConvertOptions(Format.V1))


def test_a_source_that_changed_is_not_continued(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(source / "orders-0", out, ConvertOptions(Format.V1))
    log = max((source / "orders-0").glob("*.log"))
    log.write_bytes(log.read_bytes() * 2)
    with pytest.raises(LogDirectoryError, match="expected the conversion of"):
        run(source / "orders-0", out, ConvertOptions(Format.V1))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("orders.txt", ""),
        (STATE, ""),
        (STATE, "[]\n"),
        (STATE, "{\n"),
        (STATE, '{"version": 2, "conversion": {}, "complete": false}\n'),
        (STATE, '{"version": 1, "conversion": {}}\n'),
    ],
)
def test_a_folder_with_other_things_in_it_is_refused(source: Path, tmp_path: Path, name: str, content: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text(content)
    before = contents(out)
    with pytest.raises(LogDirectoryError, match=r"interrupted conversion|expected version 1"):
        run(source, out, ConvertOptions(Format.V1))
    assert contents(out) == before


def test_a_line_that_was_being_written_is_as_if_it_were_not_there(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(source, tmp_path / "whole", OPTIONS)
    run(source / "orders-0", out, OPTIONS)
    shutil.rmtree(out / "orders-0")
    state = out / STATE
    first, line, _ = state.read_bytes().split(b"\n")
    state.write_bytes(first.replace(b"true", b"false") + b"\n" + line[:-20])
    assert not any(each.resumed for each in run(source, out, OPTIONS))
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("place", [".", "orders-0", "orders-0/deeper", "new"])
def test_the_source_is_no_place_for_the_result(source: Path, place: str) -> None:
    before = contents(source)
    with pytest.raises(LogDirectoryError, match="which is an input"):
        run(source, source / place, ConvertOptions(Format.V1))
    assert contents(source) == before


def test_partitions_need_names_that_come_once(source: Path, tmp_path: Path) -> None:
    unnamed = tmp_path / "backup of orders"
    shutil.copytree(source / "orders-0", unnamed)
    with pytest.raises(LogDirectoryError, match="--as TOPIC-N"):
        run(unnamed, tmp_path / "out", ConvertOptions(Format.V1))
    options = ConvertOptions(Format.V1)
    named = partitions_to_convert([str(unnamed)], as_=TopicPartition("users", 3))
    (done,) = convert_partitions(named, tmp_path / "out", options)
    assert done.folder == tmp_path / "out" / "users-3"
    with pytest.raises(LogDirectoryError, match="orders-0: expected once"):
        run([source, source / "orders-0"], tmp_path / "twice", options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (ConvertOptions(Format.V2, version="7.0"), "Kafka 7.0: expected a version of"),
        (ConvertOptions(Format.V2, version="0.10.2.2"), "expected 0.11 or later"),
        (ConvertOptions(Format.V1, version="0.9.0.1"), "expected 0.10 or later"),
        (ConvertOptions(Format.V2, Codec.ZSTD, version="1.1.1"), "expected 2.1 or later"),
    ],
)
def test_a_kafka_that_could_not_read_the_result_is_refused(
    source: Path, tmp_path: Path, options: ConvertOptions, said: str
) -> None:
    with pytest.raises(LogDirectoryError, match=said):
        run(source, tmp_path / "out", options)
    assert not (tmp_path / "out").exists()


def test_segments_that_overlap_are_damage(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for base in (0, 5):
        messages = [build_message(1, at, at, b"k", b"v") for at in range(base, base + 10)]
        (folder / f"{base:020}.log").write_bytes(b"".join(messages))
    (done,) = run(folder, tmp_path / "out", ConvertOptions(Format.V2))
    assert isinstance(done.error, CorruptRecordError)
    assert done.error.what == "base offset of a segment"


def test_a_log_of_markers_alone_keeps_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    markers = [
        build_marker(
            ControlType.COMMIT, base_offset=at, timestamp=5, producer_id=1, producer_epoch=0, coordinator_epoch=0
        )
        for at in range(3)
    ]
    (folder / f"{0:020}.log").write_bytes(b"".join(markers))
    (done,) = run(folder, tmp_path / "out", ConvertOptions(Format.V1, verify=True))
    assert done.verified
    assert done.report.lost() == {"transaction_markers": 3}
    assert sorted(logs(done.folder)) == [f"{3:020}.log"]


def test_a_source_may_be_anywhere_that_fsspec_knows(source: Path, tmp_path: Path) -> None:
    remote = fsspec.filesystem("memory")
    remote.put(str(source), "/test-convert", recursive=True)
    try:
        done = list(convert_partitions(partitions_to_convert(["memory://test-convert"]), tmp_path / "remote", OPTIONS))
    finally:
        remote.rm("/test-convert", recursive=True)
    assert all(each.verified for each in done)
    run(source, tmp_path / "local", OPTIONS)
    assert contents(tmp_path / "remote") == contents(tmp_path / "local")


def test_progress_counts_all_bytes_of_the_source_once_and_again_to_verify(source: Path, tmp_path: Path) -> None:
    told: list[int] = []
    options = ConvertOptions(Format.V2, Codec.NONE, verify=True, progress=told.append)
    size = sum(each.report.bytes_in for each in run(source, tmp_path / "out", options))
    assert size <= sum(told) <= 2 * size
    assert sum(told) > 1.9 * size
    told.clear()
    run(source, tmp_path / "out", options)  # all is there
    assert sum(told) == 2 * size


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 3])
def test_memory_does_not_grow_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", "plain")
    monkeypatch.setattr(reader, "CHUNK_BYTES", 1000)
    options = ConvertOptions(Format.V2, Codec.ZSTD, verify=True, threads=threads)
    peaks = []
    for count in (20, 100):
        folder = tmp_path / str(count) / "orders-0"
        folder.mkdir(parents=True)
        with (folder / f"{0:020}.log").open("wb") as file:
            for base in range(0, 50 * count, 50):
                inner = b"".join(build_message(1, at, 7, b"k", bytes([base % 251]) * 100) for at in range(50))
                file.write(build_wrapper(1, Codec.SNAPPY, inner, base + 49, 7))
        tracemalloc.start()
        try:
            (done,) = run(folder, tmp_path / f"out-{count}", options)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert done.verified
        assert done.report.records == 50 * count
    assert peaks[1] - peaks[0] < 80_000  # the records have 500 kB more
