"""`magicbyte dump` against what Kafka's dump tool printed of real logs, and on damage and wrong use."""

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.records.enriched_control import build_enriched_control
from golden_data import Case, Stage, checkpoints, log_case, log_cases, one_of_each_kind, scratch, unpack
from kraft_data import KraftNode, nodes
from magicbyte.cli.main import main
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.enriched import (
    EnrichedControl,
    LeaderEpochPayload,
    Tag,
    build_enriched_message,
    build_enriched_wrapper,
    encode_tags,
)
from magicbyte.engine.records.message import build_message, build_wrapper

LOG = "00000000000000000000.log"
CASES = log_cases()
BEYOND = ("2.8.2/crash-tear.crashed", "00000000000000000049.index")  # its entry lies beyond the cut; the tool fails
KRAFT = "__cluster_metadata-0"
LEADER = re.compile(r" LeaderChange: .*")  # tools before 4.1 print its type only, as this one
DECODERS = {"__consumer_offsets": "--offsets-decoder", "__transaction_state": "--transaction-log-decoder"}


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["dump", *map(str, arguments)])


def lines(*arguments: object, status: int = 0) -> list[str]:
    result = dump(*arguments)
    assert result.exit_code == status, result.output
    return result.stdout.split("\n")[:-1]


def objects(*arguments: object, status: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(*arguments, "--format", "jsonl", status=status)]


def by_file(printed: list[str]) -> dict[str, list[str]]:
    """The lines of each file, by its name."""
    found: dict[str, list[str]] = {}
    for line in printed:
        if line.startswith("Dumping "):
            current = found.setdefault(line.rpartition("/")[2], [])
        else:
            current.append(line)
    return found


def logs(case: Case) -> list[Path]:
    return sorted(case.partition_dir().glob("*.log"))


def flag(value: bool) -> str:
    return str(value).lower()


def kafka_line(batch: dict[str, Any]) -> str:
    """The line of Kafka's tool that a line of batches.jsonl was made of."""
    if batch["magic"] == 2:
        horizon = batch["deleteHorizonMs"]
        start = (
            f"baseOffset: {batch['baseOffset']} lastOffset: {batch['lastOffset']} count: {batch['count']} "
            f"baseSequence: {batch['baseSequence']} lastSequence: {batch['lastSequence']} "
            f"producerId: {batch['producerId']} producerEpoch: {batch['producerEpoch']} "
            f"partitionLeaderEpoch: {batch['partitionLeaderEpoch']} isTransactional: {flag(batch['isTransactional'])} "
            f"isControl: {flag(batch['isControl'])} "
            f"deleteHorizonMs: {'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'}"
        )
    else:
        start = f"offset: {batch['lastOffset']}"
    return (
        f"{start} position: {batch['position']} {batch['timestampType']}: {batch['maxTimestamp']} "
        f"size: {batch['size']} magic: {batch['magic']} compresscodec: {batch['codec']} crc: {batch['crc']} "
        f"isvalid: {flag(batch['isvalid'])}"
    )


# ---- the same as Kafka's tool


@pytest.mark.parametrize("case", one_of_each_kind(CASES))
def test_the_batches_of_every_golden_log_are_printed_as_by_kafkas_tool(case: Case) -> None:
    crashed = case.state == "crashed"
    result = dump(*logs(case), "--on-damage", "skip")
    assert crashed or result.exit_code == 0
    printed = [
        line for line in result.stdout.splitlines() if not line.startswith(("Dumping ", "Log starting ", "Found "))
    ]
    expected = [kafka_line(batch) for batch in case.batches()]
    assert printed[: len(expected)] == expected
    assert crashed or len(printed) == len(expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_indexes_and_snapshots_of_every_golden_log_are_printed_as_by_kafkas_tool(case: Case) -> None:
    folder = case.partition_dir()
    names = [path for path in sorted(folder.iterdir()) if path.suffix.endswith(("index", "snapshot"))]
    if not names:
        return
    result = dump(*names, "--on-damage", "skip")
    printed = by_file(result.stdout.splitlines())
    for name, expected in case.indexes().items():
        entries = [line for line in expected if re.match("(offset|timestamp|version|producerId): ", line)]
        if not any(folder.joinpath(name).read_bytes()):
            assert len(entries) == 1  # Kafka's tool takes the first bytes of an unused file for an entry
            entries = []
        if (case.id, name) == BEYOND:
            entries = ["offset: 59 position: 4726"]
        assert printed.pop(name) == entries
    for name, rest in printed.items():
        assert rest == ([f"{folder / name} is empty."] if name.endswith(".index") else []), name
    if case.id != BEYOND[0]:
        assert result.exit_code == 0, result.stderr


def test_an_index_entry_beyond_the_end_of_its_log_is_damage() -> None:
    folder = log_case("2.8.2/crash-tear.crashed").partition_dir()
    result = dump(folder / "00000000000000000049.index")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == ["offset: 59 position: 4726"]
    assert "49.index, position 0: index: expected an entry at position 4726 of the log with offset 59" in result.stderr


@pytest.mark.parametrize("case", [case for case in CASES if case.has_decoded], ids=str)
def test_records_of_internal_topics_are_printed_as_by_kafkas_decoders(case: Case) -> None:
    printed = lines("--files", ",".join(map(str, logs(case))), DECODERS[case.topic])
    assert [line for line in printed if not line.startswith("Dumping ")] == case.decoded()


def test_a_file_below_a_folder_with_a_comma_is_one_file(tmp_path: Path) -> None:
    case = log_case("4.3.1/basic-zstd")
    shutil.copytree(case.partition_dir(), tmp_path / "a,b")
    segment = min((tmp_path / "a,b").glob("*.log"))
    assert lines("--files", segment) == lines(segment)


@pytest.mark.parametrize("case", one_of_each_kind(case for case in CASES if case.has_records))
def test_the_records_of_every_golden_log_come_with_their_bytes(case: Case) -> None:
    found = objects(*logs(case), "--deep")
    first = case.records()[0]["offset"] if case.records() else 0
    records = [line for line in found if line["kind"] == "record" and "control" not in line and line["offset"] >= first]
    expected = case.records()
    assert len(records) == len(expected)
    for line, record in zip(records, expected, strict=True):
        assert [line[name] for name in ("offset", "key", "value", "headers")] == [
            record[name] for name in ("offset", "key", "value", "headers")
        ]
        if record["timestamp"] is not None:
            assert (line["timestamp"], line["timestampType"]) == (record["timestamp"], record["timestampType"])
    batches = [line for line in found if line["kind"] == "batch"]
    crcs = [crc for batch in case.batches() for crc in batch.get("recordCrcs", ())]
    assert [line["crc"] for line in found if line["kind"] == "record" and "crc" in line] == crcs
    for batch, line in zip(case.batches(), batches, strict=True):
        shared = batch.keys() & line.keys()
        assert {"position", "size", "crc", "lastOffset", "codec"} <= shared
        assert {name: line[name] for name in shared} == {name: batch[name] for name in shared}
        assert line["file"].endswith(batch["segment"])


def test_markers_are_named_with_their_coordinators_epoch() -> None:
    case = log_case("3.9.1/txn-none")
    expected = [batch["marker"] for batch in case.batches() if "marker" in batch]
    marker = re.compile(r"^\| offset: (\d+) .* endTxnMarker: (\w+) coordinatorEpoch: (\d+)$")
    found = [match.groups() for line in lines(*logs(case), "--deep-iteration") if (match := marker.match(line))]
    assert found == [(str(each["offset"]), each["endTxnMarker"], str(each["coordinatorEpoch"])) for each in expected]


def test_records_of_kraft_are_named() -> None:
    stage = next(stage for stage in checkpoints() if stage.id == "4.3.1/clean-shutdown")
    path = unpack({"bootstrap.checkpoint": stage.files["bootstrap.checkpoint"]}, scratch() / "kraft")
    printed = lines(path / "bootstrap.checkpoint", "--cluster-metadata-decoder")
    assert printed[1] == "KRaft bootstrap snapshot"
    records = [line for line in printed if line.startswith("|")]
    assert records[0].endswith(' SnapshotHeader {"version":0,"lastContainedLogTimestamp":0}')
    assert records[-1].endswith(' SnapshotFooter {"version":0}')
    assert len(records) == 8
    assert all(' payload: {"type":"FEATURE_LEVEL_RECORD","version":0,' in line for line in records[1:-1])


@pytest.mark.parametrize("node", [each for each in nodes() if each.case.endswith(("clean-a", "dynamic-a"))], ids=str)
def test_a_metadata_log_is_dumped_line_by_line_as_by_kafkas_tool(node: KraftNode, tmp_path: Path) -> None:
    files = {path.rpartition("/")[2]: data for path, data in node.files().items() if path.startswith(KRAFT)}
    folder = unpack(files, tmp_path / KRAFT)
    expected = node.dumps()
    printed = lines(*(folder / name for name in expected), "--deep-iteration", "--cluster-metadata-decoder")
    named = lines(*(folder / name for name in expected), "--deep-iteration", "--cluster-metadata-decoder",
                  "--as-version", node.case.partition("/")[0])  # fmt: skip
    assert by_file(named) == expected
    found = by_file(printed)
    assert found == {
        name: [LEADER.sub(" controlType: LEADER_CHANGE(2)", line) for line in each] for name, each in expected.items()
    }


# ---- text files


@pytest.mark.parametrize("stage", checkpoints(), ids=str)
def test_the_text_files_of_a_log_directory_are_dumped_line_by_line(stage: Stage, tmp_path: Path) -> None:
    folder = unpack(stage.files, tmp_path / "log")
    for name, content in stage.files.items():
        found = objects(folder / name)
        if name.endswith("-checkpoint"):
            expected = [line.split() for line in content.decode().splitlines()[2:]]
            assert [[line["topic"], str(line["partition"]), str(line["offset"])] for line in found] == expected
        elif name == "meta.properties":
            expected_properties = dict(
                line.split("=", 1) for line in content.decode().splitlines() if not line.startswith("#")
            )
            assert [line["properties"] for line in found] == [expected_properties]


def test_leader_epochs_and_the_topics_id_are_dumped() -> None:
    folder = log_case("3.9.1/basic-none").partition_dir()
    assert lines(folder / "leader-epoch-checkpoint")[1:] == ["epoch: 0 startOffset: 0"]
    (line,) = objects(folder / "partition.metadata")
    said = (folder / "partition.metadata").read_text()
    assert f"topic_id: {line['topicId']}" in said


# ---- keys and values


def log_of(tmp_path: Path, *entries: bytes, name: str = LOG) -> Path:
    path = tmp_path / name
    path.write_bytes(b"".join(entries))
    return path


def message(tmp_path: Path, key: bytes | None, value: bytes | None) -> Path:
    return log_of(tmp_path, build_message(1, 5, 1000, key, value))


def test_deep_keeps_a_record_on_one_line_and_escapes_what_cannot_be_shown(tmp_path: Path) -> None:
    path = message(tmp_path, b"a\n\x1b[2J", b"\xff\xc3\xa9")
    (record,) = (line for line in lines(path, "--deep") if line.startswith("|"))
    assert record.endswith(r" key: a\n\x1b[2J payload: \xffé")


def test_print_data_log_prints_the_bytes_as_kafkas_tool_does(tmp_path: Path) -> None:
    path = message(tmp_path, b"", b"a\nb\xff")
    assert lines(path, "--print-data-log")[-2:] == [
        "| offset: 5 CreateTime: 1000 keySize: 0 valueSize: 4 isValid: true crc: "
        f"{objects(path)[0]['crc']}}} key:  payload: a",
        "b\N{REPLACEMENT CHARACTER}",
    ]


@pytest.mark.parametrize(
    ("value", "marks"), [(b"\xed\xa0\x80", 1), (b"\xed\xbfx", 1), (b"\xed\xa0", 1), (b"\xf0\x80x", 2)]
)
def test_marks_of_undecodable_bytes_are_as_many_as_javas(tmp_path: Path, value: bytes, marks: int) -> None:
    printed = lines(message(tmp_path, None, value), "--print-data-log")[-1]
    assert printed.count("\N{REPLACEMENT CHARACTER}") == marks


def test_without_metadata_only_key_and_payload_are_printed(tmp_path: Path) -> None:
    path = message(tmp_path, None, b"v")
    assert lines(path, "--print-data-log", "--skip-record-metadata")[-1] == "| payload: v"


def test_deep_iteration_prints_no_contents(tmp_path: Path) -> None:
    path = message(tmp_path, b"key", b"payload")
    assert lines(path, "--deep-iteration")[-1].endswith("}")


# ---- the enriched dialect


def enriched(tmp_path: Path) -> Path:
    tags = encode_tags({Tag.TIMESTAMP: 1_700_000_000_123})
    inner = build_enriched_message(0, b"a", b"b") + build_enriched_message(1, b"c", None)
    return log_of(
        tmp_path,
        build_enriched_message(7, b"k", b"v", tags=tags),
        build_enriched_wrapper(Codec.GZIP, inner, num_messages=2, non_keyed=False, start_offset=8),
        build_enriched_control(10, EnrichedControl.LEADER_EPOCH, LeaderEpochPayload(4, 2)),
    )


def test_enriched_logs_are_dumped_with_their_tags(tmp_path: Path) -> None:
    printed = lines(enriched(tmp_path), "--deep", "--dialect", "enriched")[2:]
    assert [line.split()[2 if line.startswith("|") else 1] for line in printed] == ["7", "7", "8", "8", "9", "10", "10"]
    assert printed[0].endswith(" tags: [timestamp=1700000000123]")
    assert " compresscodec: gzip " in printed[2]
    assert printed[2].endswith(" tags: [num_messages=2,honor_ship=1,non_keyed=0]")
    assert printed[3].endswith(" key: a payload: b")
    assert printed[-1].endswith(" controlType: LEADER_EPOCH leaderEpoch: 4 leaderId: 2")


def test_a_file_in_the_folder_names_the_dialect(tmp_path: Path) -> None:
    (tmp_path / "message.dialect").write_text("version: 0\ndialect: enriched\n")
    assert lines(enriched(tmp_path), "--deep") == lines(enriched(tmp_path), "--deep", "--dialect", "enriched")


def test_the_wrong_dialect_is_warned_about(tmp_path: Path) -> None:
    path = log_of(tmp_path, build_enriched_message(7, b"k", b"v", seconds=1_700_000_000))
    result = dump(path)
    assert "is this log in the enriched dialect?" in result.stderr
    assert result.exit_code == 0


# ---- damage


def two_batches(tmp_path: Path) -> tuple[Path, int]:
    """A log of two markers, and the size of each."""
    entries = [
        build_marker(
            ControlType.COMMIT, base_offset=at, timestamp=1000, producer_id=1, producer_epoch=0, coordinator_epoch=at
        )
        for at in (5, 6)
    ]
    return log_of(tmp_path, *entries), len(entries[0])


def change(path: Path, at: int, value: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] = value
    path.write_bytes(content)


def test_a_changed_byte_is_named_with_file_position_offsets_expected_and_found(tmp_path: Path) -> None:
    path, size = two_batches(tmp_path)
    change(path, size + 70, 99)
    result = dump(path, "--deep")
    assert result.exit_code == 1
    assert re.search(
        rf"damage: {re.escape(str(path))}, position {size}, offsets 6\.\.6: crc: expected 0x\w+, found 0x",
        result.stderr,
    )
    assert [line.endswith("isvalid: false") for line in result.stdout.splitlines() if line.startswith("base")] == [
        False,
        True,
    ]


def test_damage_is_gone_past_where_wanted(tmp_path: Path) -> None:
    path, _ = two_batches(tmp_path)
    change(path, 70, 99)
    stopped, skipped = dump(path), dump(path, "--on-damage", "skip")
    assert (stopped.exit_code, skipped.exit_code) == (1, 1)
    assert stopped.stdout.count("baseOffset") == 1
    assert skipped.stdout.count("baseOffset") == 2
    assert skipped.stderr.count("damage:") == 1


@pytest.mark.parametrize(("cut", "said"), [(11, "cut short: "), (75, "cut short: ")])
def test_a_cut_tail_is_distinguished_from_damage(tmp_path: Path, cut: int, said: str) -> None:
    path, size = two_batches(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    result = dump(path)
    assert result.exit_code == 1
    assert f"{said}{path}, position {size}" in result.stderr
    assert result.stdout.splitlines()[-1] == f"Found {size - cut} invalid bytes at the end of {LOG}"


def test_a_wrong_magic_byte_ends_a_file_but_not_the_dump(tmp_path: Path) -> None:
    path, size = two_batches(tmp_path)
    change(path, size + 16, 9)
    other = tmp_path / "leader-epoch-checkpoint"
    other.write_text("0\n1\n3 4\n")
    result = dump(path, other, "--on-damage", "skip")
    assert result.exit_code == 1
    assert f"position {size}, offsets 6..6: magic byte: expected 0, 1 or 2, found 9" in result.stderr
    assert result.stdout.endswith("epoch: 3 startOffset: 4\n")


def test_a_damaged_message_in_a_wrapper_is_marked_and_named(tmp_path: Path) -> None:
    inner = bytearray(build_message(1, 0, 1000, b"k", b"v") + build_message(1, 1, 1000, b"k", b"w"))
    inner[-1] ^= 1
    path = log_of(tmp_path, build_wrapper(1, Codec.GZIP, inner, 6, 1000))
    result = dump(path, "--deep", "--on-damage", "skip")
    assert result.exit_code == 1
    assert ["isValid: true" in line for line in result.stdout.splitlines() if line.startswith("|")] == [True, False]
    assert "offsets 6..6: crc: expected" in result.stderr


def test_a_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    inner = build_message(1, 0, 1000, None, bytes(1 << 20))
    path = log_of(tmp_path, build_wrapper(1, Codec.GZIP, inner, 0, 1000))
    result = dump(path, "--deep", "--max-batch-bytes", "64k")
    assert result.exit_code == 1
    assert "expected <= 65536" in result.stderr


def test_a_decoder_that_does_not_fit_is_damage_and_no_crash(tmp_path: Path) -> None:
    result = dump(message(tmp_path, None, b"v"), "--offsets-decoder")
    assert result.exit_code == 1
    assert "offsets 5..5: key of a record of an internal topic: expected bytes, found null" in result.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("00000000000000000000.index", b"\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\2"),
        ("00000000000000000000.index", b"\0\0\0\1\0\0\0\1\0\0"),
        ("00000000000000000000.timeindex", b"\0" * 7 + b"\2" + b"\0\0\0\1" + b"\0" * 7 + b"\1" + b"\0\0\0\2"),
        ("00000000000000000000.txnindex", b"\0\1" + bytes(32)),
        ("00000000000000000000.snapshot", b"\0\1\0\0\0\0\0\0\0\0"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n"),
        ("partition.metadata", b"version: 0\ntopic_id: x\n"),
        ("meta.properties", b"version=7\n"),
    ],
)
def test_a_damaged_small_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    result = dump(log_of(tmp_path, content, name=name))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"magicbyte: damage: {tmp_path / name}")
    assert result.stderr.count("\n") == 1


def test_whole_entries_before_a_cut_one_are_shown(tmp_path: Path) -> None:
    path = log_of(tmp_path, b"\0\0\0\1\0\0\0\1\0\0\0\2", name="00000000000000000010.index")
    assert lines(path, "--on-damage", "skip", status=1)[1:] == ["offset: 11 position: 1"]


def test_an_index_that_leads_nowhere_in_its_log_is_damage(tmp_path: Path) -> None:
    path, size = two_batches(tmp_path)
    index = path.with_suffix(".index")
    index.write_bytes((6).to_bytes(4, "big") + size.to_bytes(4, "big"))
    assert lines(index)[1:] == [f"offset: 6 position: {size}"]
    index.write_bytes((6).to_bytes(4, "big") + (size + 3).to_bytes(4, "big"))
    assert "expected an entry at position" in dump(index).stderr
    assert dump(index, "--verify-index-only").exit_code == 1
    assert lines(index, "--index-sanity-check")[1:] == [f"{index} passed sanity check."]


def test_meta_properties_may_have_any_names(tmp_path: Path) -> None:
    path = log_of(tmp_path, b"version=0\nkind=batch\nx=\\u001b[2J\n", name="meta.properties")
    assert lines(path)[1:] == [r"version: 0 kind: batch x: \x1b[2J"]


# ---- options


def test_max_bytes_ends_the_dump_before_the_batch_that_passes_it(tmp_path: Path) -> None:
    path, size = two_batches(tmp_path)
    for most, count in ((size - 1, 0), (size, 1), (2 * size - 1, 1), (2 * size, 2)):
        assert len(objects(path, "--max-bytes", most)) == count


def test_leftovers_of_a_broker_are_dumped_as_what_they_are(tmp_path: Path) -> None:
    path, _ = two_batches(tmp_path)
    for suffix in (".deleted", ".cleaned", ".swap"):
        renamed = path.rename(f"{path.with_suffix('.log')}{suffix}")
        assert len(objects(renamed)) == 2
        renamed.rename(path)


def test_verify_index_only_prints_no_entries() -> None:
    folder = log_case("3.9.1/basic-none").partition_dir()
    assert lines(folder / "00000000000000000000.index", "--verify-index-only") == [
        f"Dumping {folder}/00000000000000000000.index"
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected at least one SEGMENT"),
        (["nothing.log"], "nothing.log: expected a file: No such file or directory"),
        ([str(Path(__file__).parent)], "found a folder"),
        ([__file__], "expected .log, .index"),
        (["nothing.log", "--value-decoder-class", "X"], "use --deep"),
        (["nothing.log", "--remote-log-metadata-decoder"], "use --deep"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_was_expected(arguments: list[str], said: str) -> None:
    result = dump(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize("option", [["--at", "0"], ["--all-bytes"]])
def test_options_of_the_anatomy_are_refused_without_it(tmp_path: Path, option: list[str]) -> None:
    result = dump(message(tmp_path, b"k", b"v"), *option)
    assert result.exit_code == 2
    assert f"{option[0]} is for --anatomy" in result.stderr


def test_a_small_dump_imports_no_heavy_library(tmp_path: Path) -> None:
    program = "import sys; from magicbyte.cli.main import main\ntry: main()\nfinally: print(*sys.modules)"
    arguments = ["dump", message(tmp_path, b"k", b"v"), "--deep"]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, check=True, text=True)
    modules = done.stdout.splitlines()[-1].split()
    assert "magicbyte.engine.records.decode" in modules
    assert not {"numba", "numpy", "pyarrow", "rich"} & set(modules)


def test_kafkas_message_size_is_taken(tmp_path: Path) -> None:
    path, _ = two_batches(tmp_path)
    assert lines("--files", path, "--max-message-size", 100) == lines(path)


def test_bytes_of_jsonl_are_base64(tmp_path: Path) -> None:
    record = objects(message(tmp_path, b"\xff", None), "--deep")[1]
    assert (base64.b64decode(record["key"]), record["value"]) == (b"\xff", None)


# ---- any bytes at all

NAMES = [
    LOG,
    "bootstrap.checkpoint",
    *(f"00000000000000000007{suffix}" for suffix in (".index", ".timeindex", ".txnindex", ".emindex", ".snapshot")),
    "leader-epoch-checkpoint",
    "replication-offset-checkpoint",
    "partition.metadata",
    "meta.properties",
    ".kafka_cleanshutdown",
]
FLAGS = [
    [],
    ["--print-data-log"],
    ["--offsets-decoder"],
    ["--transaction-log-decoder"],
    ["--cluster-metadata-decoder"],
    ["--anatomy", "--deep"],
]
SEEDS = [
    b"",
    *(log_case(case).read(f"partition/{LOG}")[:700] for case in ("0.8.2.2/basic-none", "3.9.1/txn-none")),
    *(log_case(f"{version}/consumer-offsets").read(f"partition/{LOG}")[:700] for version in ("0.9.0.1", "4.3.1")),
]


def refused(result: Result) -> bool:
    """Whether the command ended well or with one of our complaints, not with a traceback."""
    return result.exit_code in (0, 1, 2) and (result.exception is None or isinstance(result.exception, SystemExit))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.sampled_from(SEEDS),
    changes=st.lists(st.tuples(st.integers(0, 699), st.integers(0, 255)), max_size=4),
    junk=st.binary(max_size=60),
    name=st.sampled_from(NAMES),
    flags=st.sampled_from(FLAGS),
    enriched=st.booleans(),
    form=st.sampled_from(["text", "jsonl"]),
)
def test_any_bytes_are_dumped_or_refused(
    tmp_path: Path,
    seed: bytes,
    changes: list[tuple[int, int]],
    junk: bytes,
    name: str,
    flags: list[str],
    enriched: bool,
    form: str,
) -> None:
    content = bytearray(seed + junk)
    for at, value in changes:
        if at < len(content):
            content[at] = value
    path = log_of(tmp_path, content, name=name)
    dialect = "enriched" if enriched else "kafka"
    for policy in ("stop", "skip"):
        result = dump(path, *flags, "--dialect", dialect, "--on-damage", policy, "--format", form)
        assert refused(result), result.exception


@given(inner=st.binary(max_size=80), cut=st.integers(0, 60), flip=st.tuples(st.integers(0, 59), st.integers(0, 255)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_in_a_wrapper_are_dumped_or_refused(
    tmp_path: Path, inner: bytes, cut: int, flip: tuple[int, int]
) -> None:
    whole = bytearray(build_message(1, 0, 1000, b"k", b"v") + build_message(1, 1, 1000, None, b"w"))
    whole[flip[0] % len(whole)] = flip[1]
    for content in (inner, whole[:cut], whole + inner):
        path = log_of(tmp_path, build_wrapper(1, Codec.GZIP, content, 6, 1000))
        for flags in (["--deep"], ["--anatomy", "--deep"]):
            result = dump(path, *flags, "--on-damage", "skip")
            assert refused(result), result.exception


def test_the_state_of_a_voter_is_dumped_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "quorum-state"
    state = {"clusterId": "", "leaderId": 1, "leaderEpoch": 3, "votedId": -1, "currentVoters": [{"voterId": 1}],
             "data_version": 0}  # fmt: skip
    path.write_text(json.dumps(state))
    done = dump(path)
    assert (done.exit_code, json.loads(done.stdout.splitlines()[-1])) == (0, state)
    document = json.loads(dump(path, "--format", "jsonl").stdout)
    assert (document["kind"], document["state"]) == ("quorum state", state)
    for content in (b"", b"[]", b'{"leaderId": 1', b"\xff\xfe", b"{}"):
        path.write_bytes(content)
        assert dump(path).exit_code == 1


def test_holes_between_records_are_reported_at_the_end_of_a_deep_dump(tmp_path: Path) -> None:
    path = tmp_path / LOG
    path.write_bytes(b"".join(build_message(0, offset, -1, None, b"v") for offset in (3, 4, 7, 8, 12)))
    done = dump(path, "--deep-iteration")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        f"Non-consecutive offsets in {path}", "  8 is followed by 12", "  4 is followed by 7"
    ]  # fmt: skip
    assert dump(path).stderr == ""
