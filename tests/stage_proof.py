"""Each stage of pipelines beside the command of the same name: what both make, as digests.

For tests on golden logs, and for `benchmarks/pipeline_proof.py` on generated ones of any size.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magicbyte.spark.pipeline import driver, load

if TYPE_CHECKING:
    from magicbyte.spark.pipeline.driver import PipelineRun

Json = dict[str, Any]
PIECE = 4 << 20
SINCE, FROM = 1_700_000_002_000, 5


@dataclass(frozen=True)
class Place:
    """A log directory `logs`, whose broker closed it, and a folder for what is made of it. `sizes`: of segments."""

    logs: Path
    folder: Path
    segment_bytes: int
    retained_bytes: int
    shuffled: str
    """A pattern of topics that are compacted through the shuffle, one after the other."""
    now: str
    """Of all runs, shortly before the commands', which have no other time than the clock's."""

    @property
    def out(self) -> Path:
        """The sink of the pipeline."""
        return self.folder / "out"

    @property
    def other(self) -> Path:
        """What the command makes."""
        return self.folder / "other"

    def run(self, stages: str, **how: Any) -> PipelineRun:
        """Run a pipeline from `logs` to a new `out`."""
        shutil.rmtree(self.out, ignore_errors=True)
        path = self.folder / "stage.toml"
        path.write_text(f'now = {self.now}\n{stages}\n[source]\npath = "{self.logs}"\n[sink]\npath = "{self.out}"\n')
        return driver.run(load(path), **how)


def now() -> str:
    """Return the time as a pipeline's file says it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def command(*arguments: str | Path, status: int = 0) -> str:
    """Run the command line in a process of its own; return what it wrote."""
    done = subprocess.run(
        [sys.executable, "-m", "magicbyte", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == status, (arguments, done.returncode, done.stderr[-2000:])
    return done.stdout


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def contents(folder: Path) -> dict[str, str]:
    """Return a digest of each file of each partition, and of each table."""
    paths = sorted([*folder.glob("*-[0-9]*/*"), *folder.glob("*.parquet")])
    return {str(path.relative_to(folder)): digest_of(path) for path in paths}


def said(run: PipelineRun) -> list[Json]:
    """Return what a run says of its partitions, without times and random values."""
    drawn = ("seconds", "staged", "path")

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items() if name not in drawn}
        return [plain(each) for each in value] if isinstance(value, list) else value

    return sorted((plain(unit) for unit in run.units), key=lambda unit: str(unit["unit"]))


# ---- the stages, each with its command and how both are compared


def same_files(place: Place, _run: PipelineRun) -> None:
    """Both wrote the same bytes."""
    assert contents(place.out) == contents(place.other)


def same_records(place: Place, _run: PipelineRun) -> None:
    """Both log directories hold the same records, in segments of the same names."""
    command("diff", place.out, place.other)
    logs = [{name for name in contents(each) if name.endswith(".log")} for each in (place.out, place.other)]
    assert logs[0] == logs[1]


def converted(place: Place) -> None:
    """The command beside `convert`."""
    command("convert", place.logs, "--to", "v2", "--codec", "zstd", "--out", place.other)


def compacted(place: Place, pattern: str = "*") -> None:
    """The command beside `compact`."""
    shutil.copytree(place.logs, place.other)
    topics = fnmatch.filter({path.name.rpartition("-")[0] for path in place.logs.glob("*-[0-9]*")}, pattern)
    command(
        "compact",
        place.other,
        "--in-place",
        "--drop-unkeyed",
        *(word for topic in sorted(topics) for word in ("--topic", topic)),
    )


def salvaged(place: Place) -> None:
    """The command beside `salvage`, of logs of which some are damaged."""
    command("salvage", place.logs, "--out", place.other, status=1)


def retained(place: Place) -> None:
    """The command beside `retain`."""
    shutil.copytree(place.logs, place.other)
    command("retain", place.other, "--in-place", "--bytes", str(place.retained_bytes), "--head-truncation")


def inventoried(place: Place, run: PipelineRun) -> None:
    """The inventory has what the command tells."""
    told = json.loads(command("inventory", place.logs, "--deep", "--format", "json"))
    known = {f"{each['topic']}-{each['partition']}": each for each in told["partitions"]}
    for unit in run.units:
        found, other = unit["stages"][0], known.pop(unit["unit"])
        assert (found["formats"], found["records"]) == (other["formats"], other["records"])
        assert (found["firstOffset"], found["lastOffset"]) == (other["firstOffset"], other["lastOffset"])
    assert not known


def verified(place: Place, run: PipelineRun) -> None:
    """The findings are those of the command."""
    told = json.loads(command("verify", place.logs, "--deep", "--format", "json"))
    found = sorted(json.dumps(each["what"]) for unit in run.units for each in unit["stages"][0]["findings"])
    assert found == sorted(json.dumps(each["what"]) for each in told["findings"])


def digested(place: Place, run: PipelineRun) -> None:
    """The numbers of records are those that `diff` compares, and it finds no difference of the log from itself."""
    told = json.loads(command("diff", place.logs, place.logs, "--format", "json"))
    counted: dict[str, int] = {}
    for unit in run.units:
        name = unit["unit"].partition("@")[0]
        counted[name] = counted.get(name, 0) + unit["stages"][0]["digest"]["records"]
    assert counted == {each["partition"]: each["compared"] for each in told["partitions"]}


def resegmented(place: Place, _run: PipelineRun) -> None:
    """The entries are those of the source, byte for byte, in other files."""
    for path in place.logs.glob("*-[0-9]*"):
        digests = [hashlib.sha256(), hashlib.sha256()]
        for digest, folder in zip(digests, (path, place.out / path.name), strict=True):
            for log in sorted(folder.glob("*.log")):
                for piece in pieces(log):
                    digest.update(piece)
        assert digests[0].digest() == digests[1].digest(), path.name
    command("verify", place.out)


def pieces(path: Path) -> Iterator[bytes]:
    """Yield a file piece by piece."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


def filtered(place: Place, _run: PipelineRun) -> None:
    """What `cat` finds in the source by the same limits is all that it finds behind the filter."""
    assert catted(place, place.out) == catted(place, place.logs, "--since", str(SINCE), "--from", str(FROM))


def tabled(place: Place, _run: PipelineRun) -> None:
    """The tables hold what `cat` writes, cell by cell."""
    assert table_digest(sorted(place.out.glob("*.parquet"))) == catted(place, place.logs)


def catted(place: Place, logs: Path, *limits: str) -> dict[str, list[str]]:
    """Return the digest of the table that `cat` makes of logs."""
    path = place.folder / "cat.parquet"
    command("cat", logs, *limits, "--format", "parquet", "-o", path)
    found = table_digest([path])
    path.unlink()
    return found


def table_digest(paths: list[Path]) -> dict[str, list[str]]:
    """Return of each partition a digest of each column, over some Parquet files one after the other."""
    import pyarrow.parquet as pq

    digests: dict[str, list[tuple[Any, Any, Any]]] = {}
    for path in paths:
        for batch in pq.ParquetFile(path).iter_batches():
            for part in by_partition(batch):
                name = f"{part['topic'][0]}-{part['partition'][0]}"
                fresh = [(hashlib.sha256(), hashlib.sha256(), hashlib.sha256()) for _ in part.columns]
                for cells, column in zip(digests.setdefault(name, fresh), part.columns, strict=True):
                    add_cells(*cells, column)
    return {name: [each.hexdigest() for cells in found for each in cells] for name, found in digests.items()}


def by_partition(batch: Any) -> Iterator[Any]:
    """Part rows where topic or partition changes."""
    import numpy as np

    topic = np.asarray(batch["topic"].dictionary_encode().indices, np.int64)
    changes = np.flatnonzero(np.diff(topic) | np.diff(np.asarray(batch["partition"], np.int64))) + 1
    cuts = [0, *changes.tolist(), batch.num_rows]
    for start, end in pairwise(cuts):
        if end > start:
            yield batch.slice(start, end - start)


def add_cells(valid: Any, lengths: Any, content: Any, column: Any) -> None:
    """Add the cells of a column to its three digests, which do not depend on the pieces that it comes in."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    valid.update(np.asarray(column.is_valid()).astype(np.uint8))
    if pa.types.is_list(column.type):
        content.update("\n".join([*map(str, column.to_pylist()), ""]).encode())
    elif pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        cells = column.cast(pa.binary())
        lengths.update(np.asarray(compute.binary_length(cells).fill_null(0)))
        content.update(b"".join(cells.drop_null().to_pylist()))
    else:
        content.update(np.asarray(column.cast(pa.int64()).fill_null(0)))


@dataclass(frozen=True)
class Proof:
    """Stages, the command that makes `other` of the source (None: nothing does), and how both are compared."""

    stages: Callable[[Place], str]
    make: Callable[[Place], None] | None
    compare: Callable[[Place, PipelineRun], None]

    def against_command(self, place: Place, run: PipelineRun) -> None:
        """Compare a run's output with what the command makes of the same source."""
        if self.make is not None:
            shutil.rmtree(place.other, ignore_errors=True)
            self.make(place)
        self.compare(place, run)
        shutil.rmtree(place.other, ignore_errors=True)


def stage(do: str, *options: str) -> str:
    """Return a stage's lines."""
    return "\n".join(["[[stage]]", f'do = "{do}"', *options]) + "\n"


CONVERT = stage("convert", 'format = "v2"', 'codec = "zstd"')
PROOFS: dict[str, Proof] = {
    "inventory": Proof(lambda _: stage("inventory", "deep = true"), None, inventoried),
    "verify": Proof(lambda _: stage("verify", 'depth = "deep"'), None, verified),
    "digest": Proof(lambda _: stage("digest"), None, digested),
    "convert, compare": Proof(lambda _: CONVERT + stage("compare"), converted, same_files),
    "compact": Proof(lambda _: stage("compact", 'topics = ["*"]'), compacted, same_records),
    "compact by shuffle": Proof(
        lambda place: stage("compact", f'topics = ["{place.shuffled}"]', "shuffle-above = 1"),
        lambda place: compacted(place, place.shuffled),
        same_records,
    ),
    "retain": Proof(
        lambda place: stage("retain", f"bytes = {place.retained_bytes}", "head-truncation = true"),
        retained,
        same_records,
    ),
    "split": Proof(lambda place: stage("split", f"segment-bytes = {place.segment_bytes}"), None, resegmented),
    "merge": Proof(lambda _: stage("merge"), None, resegmented),
    "filter": Proof(lambda _: stage("filter", f"since = {SINCE}", f"from-offset = {FROM}"), None, filtered),
    "records": Proof(lambda _: stage("records"), None, tabled),
}
DAMAGED = {
    "salvage": Proof(
        lambda _: stage("salvage"),
        salvaged,
        same_files,
    ),
}
"""For logs of which some are damaged."""


def outcomes(place: Place, proofs: dict[str, Proof], *, commands: bool, **how: Any) -> Iterator[tuple[str, Json]]:
    """Run the stages one after the other; yield the name and the result of each, with digests.

    `how`: where, as in `driver.run`. `commands`: each is held against its command, too.
    """
    for name, proof in proofs.items():
        run = place.run(proof.stages(place), **how)
        assert run.status == 0, [unit["error"] for unit in run.units if unit["error"]]
        files, texts = contents(place.out), said(run)
        yield (
            name,
            {
                "partitions": len(texts),
                "files": len(files),
                "digest": hashlib.sha256(json.dumps([files, texts], sort_keys=True).encode()).hexdigest(),
                "seconds": run.seconds,
            },
        )
        if commands:
            proof.against_command(place, run)
        shutil.rmtree(place.out)


def main(master: str, given: str) -> None:
    """Run the stages that `given` says, the arguments of `at` as JSON, at a Spark master.

    Writes a line of JSON for each stage.
    """
    asked = json.loads(given)
    sizes = asked["segment_bytes"], asked["retained_bytes"]
    place = Place(Path(asked["logs"]), Path(asked["folder"]), *sizes, asked["shuffled"], asked["now"])
    proofs = {name: proof for name, proof in {**PROOFS, **DAMAGED}.items() if name in asked["names"]}
    path = place.folder / "any.toml"
    path.write_text(f'[[stage]]\ndo = "digest"\n[source]\npath = "{place.logs}"\n')
    with driver.started_context(master, load(path)) as context:
        for name, found in outcomes(place, proofs, commands=asked["commands"], context=context):
            sys.stdout.write(json.dumps([name, found]) + "\n")
            sys.stdout.flush()


def at(master: str, place: Place, names: list[str], *, commands: bool) -> dict[str, Json]:
    """Run stages at a Spark master, in a process of its own; return the result of each."""
    asked = {
        "logs": str(place.logs),
        "folder": str(place.folder),
        "segment_bytes": place.segment_bytes,
        "retained_bytes": place.retained_bytes,
        "shuffled": place.shuffled,
        "now": place.now,
        "names": names,
        "commands": commands,
    }
    done = subprocess.run(
        [sys.executable, __file__, master, json.dumps(asked)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(line) for line in done.stdout.splitlines())


if __name__ == "__main__":
    main(*sys.argv[1:])
