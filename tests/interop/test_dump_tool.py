"""`magicbyte dump` prints what Kafka's own dump tool prints, byte for byte: logs of each magic, indexes, snapshots."""

import subprocess
import sys

import pytest

from golden_data import log_case
from interop import jvm

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

TOOLS = {"3.9.1": "kafka.tools.DumpLogSegments", "4.3.1": "org.apache.kafka.tools.DumpLogSegments"}
MESSAGES = [
    "0.8.2.2/basic-none",  # magic 0
    "0.8.2.2/basic-lz4",
    "0.9.0.1/compact-gzip.after2",
    "0.10.2.2/basic-snappy",  # magic 1
    "0.10.2.2/logappend-gzip",
]
BATCHES = [
    "2.8.2/basic-zstd",
    "2.8.2/txn-compact-none.after2",
    "3.9.1/txn-none",
    "4.3.1/basic-lz4",
]


def kafka_dump(version: str, *arguments: str) -> bytes:
    command = jvm.kafka_oracle.tool_command(version, TOOLS[version], arguments)
    done = subprocess.run(command, capture_output=True, timeout=jvm.SECONDS)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    return done.stdout


def our_dump(*arguments: str) -> bytes:
    program = [sys.executable, "-c", "from magicbyte.cli.main import main; main()", "dump"]
    done = subprocess.run([*program, *arguments], capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def files_of(*cases: str, suffixes: tuple[str, ...] = (".log",)) -> str:
    paths = [
        path for case in cases for path in sorted(log_case(case).partition_dir().iterdir()) if path.suffix in suffixes
    ]
    assert paths
    return ",".join(map(str, paths))


@pytest.mark.parametrize("flags", [[], ["--deep-iteration"], ["--print-data-log"]], ids=" ".join)
def test_logs_of_magic_0_and_1(flags: list[str]) -> None:
    arguments = ["--files", files_of(*MESSAGES), *flags]
    assert our_dump(*arguments) == kafka_dump("3.9.1", *arguments)


def test_logs_of_magic_0_and_1_as_the_newest_tool_prints_them_but_for_a_brace() -> None:
    arguments = ["--files", files_of(*MESSAGES), "--deep-iteration"]
    assert our_dump(*arguments).replace(b"}\n", b"\n") == kafka_dump("4.3.1", *arguments)


@pytest.mark.parametrize("version", TOOLS)
@pytest.mark.parametrize("flags", [[], ["--deep-iteration"], ["--print-data-log"]], ids=" ".join)
def test_logs_of_magic_2(version: str, flags: list[str]) -> None:
    arguments = ["--files", files_of(*BATCHES), *flags]
    assert our_dump(*arguments) == kafka_dump(version, *arguments)


def test_records_without_metadata() -> None:
    arguments = ["--files", files_of(*MESSAGES, *BATCHES), "--print-data-log", "--skip-record-metadata"]
    assert our_dump(*arguments) == kafka_dump("4.3.1", *arguments)  # 3.9.1 forgets the bar before some lines


def test_max_bytes_ends_after_the_same_batch() -> None:
    arguments = ["--files", files_of("3.9.1/txn-none"), "--max-bytes", "1800"]
    assert our_dump(*arguments) == kafka_dump("3.9.1", *arguments)


@pytest.mark.parametrize("flags", [[], ["--index-sanity-check"]], ids=["entries", "sanity check"])
def test_indexes_and_snapshots(flags: list[str]) -> None:
    names = files_of("3.9.1/txn-none", "2.8.2/basic-zstd", suffixes=(".index", ".timeindex", ".txnindex", ".snapshot"))
    kept = names if not flags else ",".join(name for name in names.split(",") if not name.endswith("txnindex"))
    arguments = ["--files", kept, *flags]
    assert our_dump(*arguments) == kafka_dump("3.9.1", *arguments)


@pytest.mark.parametrize(
    ("case", "version", "decoder"),
    [
        ("2.8.2/consumer-offsets", "3.9.1", "--offsets-decoder"),
        ("4.3.1/consumer-offsets", "4.3.1", "--offsets-decoder"),
        ("3.9.1/transaction-state", "3.9.1", "--transaction-log-decoder"),
        ("4.3.1/transaction-state", "4.3.1", "--transaction-log-decoder"),
    ],
)
def test_internal_topics(case: str, version: str, decoder: str) -> None:
    arguments = ["--files", files_of(case), decoder]
    assert our_dump(*arguments) == kafka_dump(version, *arguments)
