"""Loads the golden data of `tests/golden`: logs and wire exchanges of real brokers, with Kafka's own word on them.

`import golden_data` works in every test (`pythonpath` in pyproject.toml). What the files mean: tests/golden/README.md.
Nothing is unpacked unless `partition_dir` asks for it; every other method reads from the zips.
"""

import atexit
import base64
import gzip
import json
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

GOLDEN = Path(__file__).parent / "golden"


@cache
def archive(path: Path) -> zipfile.ZipFile:
    """The zip at `path`, opened once per process."""
    return zipfile.ZipFile(path)


@cache
def members(path: Path) -> dict[str, tuple[str, ...]]:
    """The file names of the zip at `path`, by their first folder."""
    folders: dict[str, list[str]] = {}
    for name in archive(path).namelist():
        folder, _, rest = name.partition("/")
        folders.setdefault(folder, []).append(rest)
    return {folder: tuple(names) for folder, names in folders.items()}


@cache
def scratch() -> Path:
    """A folder for unpacked files, of this process, removed when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="magicbyte-golden-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def unpack(files: dict[str, bytes], target: Path) -> Path:
    """Write `files` into the folder `target` unless it exists; processes may race: all find a whole folder."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix=".unpacking-"))
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        try:
            fresh.rename(target)
        except OSError:  # another process was first
            if not target.exists():
                raise
            shutil.rmtree(fresh)
    return target


@dataclass(frozen=True)
class Case:
    """One partition in one state, as a broker left it, with the ground truth of Kafka's own tools."""

    id: str  # VERSION/NAME, e.g. 0.10.2.2/crash-flip.crashed
    version: str
    topic: str
    partition: int
    codec: str
    group: str
    state: str  # "clean shutdown", "before", "after", "after2", "crashed" or "recovered"
    note: str
    topic_config: dict[str, Any]
    message_format_version: str | None
    counts: dict[str, int]
    magics: tuple[int, ...]
    codecs_found: tuple[str, ...]
    dump_remarks: tuple[str, ...]
    files: tuple[str, ...]  # relative, e.g. records.jsonl.gz, partition/00000000000000000000.log

    def __str__(self) -> str:
        return self.id

    @property
    def name(self) -> str:
        return self.id.partition("/")[2]

    @property
    def has_records(self) -> bool:
        """False for `crashed` states: compare those with the `recovered` one."""
        return "records.jsonl.gz" in self.files

    @property
    def has_committed(self) -> bool:
        return "records-committed.jsonl.gz" in self.files

    @property
    def has_decoded(self) -> bool:
        return "decoded.txt" in self.files

    def read(self, name: str) -> bytes:
        """The content of one of `files`."""
        return archive(GOLDEN / "logs" / f"{self.version}.zip").read(f"{self.name}/{name}")

    def partition_names(self) -> list[str]:
        """File names in the partition folder, e.g. 00000000000000000000.log."""
        return sorted(name.removeprefix("partition/") for name in self.files if name.startswith("partition/"))

    def partition_files(self) -> dict[str, bytes]:
        """Content of all files of the partition folder, by name."""
        return {name: self.read(f"partition/{name}") for name in self.partition_names()}

    def segments(self) -> dict[str, bytes]:
        """Content of the `.log` files, by name, in offset order."""
        return {name: self.read(f"partition/{name}") for name in self.partition_names() if name.endswith(".log")}

    def partition_dir(self, tmp: Path | None = None, *, named: bool = False) -> Path:
        """Unpack the partition folder below `tmp` (this process's scratch folder when None), once; return its path.

        The folder is called `partition`, or `<topic>-<partition>` if `named`. Tests share it: write to a copy only.
        """
        folder = f"{self.topic}-{self.partition}" if named else "partition"
        return unpack(self.partition_files(), (tmp or scratch()) / self.id / folder)

    def record_lines(self, *, committed: bool = False) -> list[str]:
        """Lines of records.jsonl, or of records-committed.jsonl, without line ends."""
        name = "records-committed.jsonl.gz" if committed else "records.jsonl.gz"
        return gzip.decompress(self.read(name)).decode().splitlines()

    def records(self) -> list[dict[str, Any]]:
        """What a consumer saw with read_uncommitted, in offset order."""
        return [json.loads(line) for line in self.record_lines()]

    def committed(self) -> list[dict[str, Any]]:
        """What a consumer saw with read_committed."""
        return [json.loads(line) for line in self.record_lines(committed=True)]

    def batches(self) -> list[dict[str, Any]]:
        """Kafka's dump tool on each batch (v2) or outermost message (v0, v1)."""
        return [json.loads(line) for line in self.read("batches.jsonl").decode().splitlines()]

    def indexes(self) -> dict[str, list[str]]:
        """Printed lines of Kafka's dump tool for each index and snapshot, by file name."""
        printed: dict[str, list[str]] = json.loads(self.read("indexes.json"))
        return printed

    def decoded(self) -> list[str]:
        """Lines of Kafka's decoders of the internal topics."""
        return self.read("decoded.txt").decode().splitlines()


@cache
def all_log_cases() -> tuple[Case, ...]:
    manifest = json.loads(gzip.decompress((GOLDEN / "manifest.json.gz").read_bytes()))
    return tuple(
        Case(
            id=entry["id"],
            version=entry["version"],
            topic=entry["topic"],
            partition=entry["partition"],
            codec=entry["codec"],
            group=entry["group"],
            state=entry["state"],
            note=entry["note"],
            topic_config=entry["topicConfig"],
            message_format_version=entry["messageFormatVersion"],
            counts=entry["counts"],
            magics=tuple(entry["magics"]),
            codecs_found=tuple(entry["codecsFound"]),
            dump_remarks=tuple(entry.get("dumpRemarks", ())),
            files=tuple(entry["files"]),
        )
        for entry in manifest["logs"]
    )


def log_cases(*, state: str | None = None, group: str | None = None, topic: str | None = None) -> list[Case]:
    """All 261 log states, or those of one state, group or topic; as `parametrize` takes them with `ids=str`."""
    return [
        case
        for case in all_log_cases()
        if state in (None, case.state) and group in (None, case.group) and topic in (None, case.topic)
    ]


def one_of_each_kind(cases: Iterable[Case]) -> list[ParameterSet]:
    """`cases` as `parametrize` takes them: `those_of_each_kind` are in every run, the others are marked slow."""
    every = list(cases)
    chosen = {case.id for case in those_of_each_kind(every)}
    return [pytest.param(case, id=case.id, marks=() if case.id in chosen else pytest.mark.slow) for case in every]


def those_of_each_kind(cases: Iterable[Case]) -> list[Case]:
    """Cases in which each pair of what code may tell apart occurs that occurs in all of them: about a quarter.

    That is the formats, the codecs, what the topic was made for, what happened to the log. Each broker has a share.
    """
    every = list(cases)
    left = {pair for case in every for pair in _pairs(case)}
    chosen: dict[str, Case] = {}
    shares: Counter[str] = Counter()
    while left:
        best = max(every, key=lambda case: (len(left & _pairs(case)), -shares[case.version]))
        chosen[best.id] = best
        shares[best.version] += 1
        left -= _pairs(best)
    return [case for case in every if case.id in chosen]


def _pairs(case: Case) -> set[object]:
    kind = enumerate((case.magics, case.codecs_found, case.group, case.state))
    return {case.version, *combinations(kind, 2)}


def log_case(case_id: str) -> Case:
    """The case with this id, e.g. "3.9.1/txn-none"."""
    return next(case for case in all_log_cases() if case.id == case_id)


@dataclass(frozen=True)
class Stage:
    """The files that lie beside the partition folders in a log directory, at one moment of a broker's life."""

    id: str  # VERSION/STAGE
    version: str
    stage: str  # "clean-shutdown", "after-cleaning", "after-second-cleaning", "crashed" or "recovered"
    files: dict[str, bytes]  # by name, e.g. recovery-point-offset-checkpoint, meta.properties, .kafka_cleanshutdown

    def __str__(self) -> str:
        return self.id


@cache
def checkpoints() -> list[Stage]:
    """The checkpoint files of every version and stage."""
    stages = []
    for path in sorted((GOLDEN / "logs").glob("*.zip")):
        found: dict[str, dict[str, bytes]] = {}
        for name in members(path)["checkpoints"]:
            stage, _, file = name.partition("/")
            found.setdefault(stage, {})[file] = archive(path).read(f"checkpoints/{name}")
        stages += [Stage(f"{path.stem}/{stage}", path.stem, stage, files) for stage, files in found.items()]
    return stages


@dataclass(frozen=True)
class WireCase:
    """Requests sent to a real broker, its responses, and the partition's bytes afterwards."""

    id: str  # BROKER/NAME
    broker: str
    name: str
    info: dict[str, Any]  # case.json
    files: tuple[str, ...]  # names of all files of the case

    def __str__(self) -> str:
        return self.id

    def read(self, name: str) -> bytes:
        """The content of one of `files`."""
        return archive(GOLDEN / "wire" / f"{self.broker}.zip").read(f"{self.name}/{name}")

    @property
    def segment(self) -> bytes:
        """The partition's `.log` bytes after all requests."""
        return self.read("segment.bin")

    @property
    def request(self) -> bytes:
        """The first request of a case that is no fetch, with its 4-byte size."""
        return self.read("request.bin")

    @property
    def response(self) -> bytes:
        """The answer to `request`; empty when none came."""
        return self.read("response.bin")

    def exchanges(self) -> dict[str, tuple[bytes, bytes]]:
        """Request and response by label: "", "-2", "-3" … of a produce case; ".v4-start" … of a fetch case."""
        labels = [
            name.removeprefix("request").removesuffix(".bin") for name in self.files if name.startswith("request")
        ]
        return {label: (self.read(f"request{label}.bin"), self.read(f"response{label}.bin")) for label in labels}

    def record_sets(self) -> Iterator[tuple[str, dict[str, Any], bytes]]:
        """Of a fetch case: label (e.g. "v4-start"), what `case.json` says of it, its record set (null: empty)."""
        for label, said in self.info["requests"].items():
            position, size = said.get("recordSetPosition"), said.get("recordSetSize")
            if position is not None and size is not None:
                yield label, said, self.read(f"response.{label}.bin")[position : position + max(size, 0)]


def wire_brokers() -> list[str]:
    """Names of the brokers with wire cases, e.g. "3.9.1-ibp2.8"."""
    return sorted(path.stem for path in (GOLDEN / "wire").glob("*.zip"))


def wire_brokers_of_each_kind() -> list[ParameterSet]:
    """The same as `parametrize` takes them: those marked slow have a neighbour with the same formats and versions."""
    slow = ("0.10.2.2", "2.8.2", "3.9.1-ibp2.8")
    return [pytest.param(each, marks=pytest.mark.slow if each in slow else ()) for each in wire_brokers()]


def wire_cases(broker: str | None = None, prefix: str = "") -> Iterator[WireCase]:
    """All 2,792 wire cases, or those of one broker, or those whose name begins with `prefix` (e.g. "fetch-")."""
    for each in [broker] if broker else wire_brokers():
        path = GOLDEN / "wire" / f"{each}.zip"
        for name, files in members(path).items():
            if name.startswith(prefix):
                info = json.loads(archive(path).read(f"{name}/case.json"))
                yield WireCase(f"{each}/{name}", each, name, info, files)


def values(name: str) -> list[bytes | None]:
    """Return the values of a recorded log that readers may have."""
    case = log_case(name)
    lines = case.committed() if case.has_committed else case.records()
    return [None if each["value"] is None else base64.b64decode(each["value"]) for each in lines]
