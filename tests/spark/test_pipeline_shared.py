"""Stages that several workers share: the result is that of one worker, byte for byte, wherever the parts end."""

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import golden_data
from builders import one_pair_of_each
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.spark.pipeline import driver, units
from magicbyte.spark.pipeline.config import load
from magicbyte.spark.pipeline.driver import PipelineRun
from magicbyte.spark.pipeline.stages import resegment, salvage
from magicbyte.spark.pipeline.work import SALVAGE
from simulation import damaged_logs
from spark.builders import comparable, ran
from spark.conftest import lay_out_closed, topic_of
from spark.in_process import InProcess
from spark.logs import some_records, write_partition
from stage_proof import contents

SMALL = 1 << 20
PARTS = (1, 5000, 12000)
"""Bytes of a part at most: one segment, some, many."""
SPLIT = 3000


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share each stage that has a small `part-above`, whatever else there is to do."""

    def asked(unit: units.Unit, _units: Iterable[units.Unit], _cores: int) -> set[str]:
        return {stage.do for stage in unit.stages if stage.options.get("part-above", SMALL) < SMALL}

    monkeypatch.setattr(driver, "parted_stages", asked)


def compare(folder: Path, source: Path, stages: str, *sizes: int, sink: bool = True) -> PipelineRun:
    """Run stages not shared, and shared in parts of each of some sizes; return the last run."""
    outs = {size: folder / (f"parted-{size}" if size else "whole") for size in (None, *sizes)}
    runs = {size: ran(folder, source, sink and str(out), stages, size) for size, out in outs.items()}
    whole = outs[None]
    for size in sizes:
        parted = outs[size]
        assert comparable(runs[size]) == comparable(runs[None])
        if sink:
            assert contents(parted) == contents(whole)
            for path in whole.glob("*checkpoint"):
                assert (parted / path.name).read_text() == path.read_text(), path.name
            assert not (parted / ".pipeline").exists()
    return runs[sizes[-1]]


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Golden logs of all formats in small segments; transactions reach over several of them."""
    folder = tmp_path_factory.mktemp("cut")
    topics = ("txn-none", "txn-zstd", "basic-gzip", "trimmed-none")
    releases = ("g3.9.1", "g0.10.2.2", "g0.9.0.1")
    names = {f"{release}.{topic}" for release in releases for topic in topics}
    cases = [case for case in golden_data.log_cases() if case.has_records and topic_of(case) in names]
    assert len(cases) > 4
    lay_out_closed(folder / "logs", cases)
    stage = f'[[stage]]\ndo = "split"\nsegment-bytes = {SPLIT}\n'
    (folder / "p.toml").write_text(f'{stage}[source]\npath = "logs"\n[sink]\npath = "cut"\n')
    assert driver.run(load(folder / "p.toml"), context=InProcess()).status == 0
    return folder / "cut"


@pytest.mark.parametrize("above", PARTS)
@pytest.mark.parametrize(
    "stage",
    [
        'inventory"\n{above}',
        'inventory"\ndeep = true\n{above}',
        'digest"\n{above}',
    ],
)
def test_what_is_counted_in_parts_is_what_one_worker_counts(cut: Path, tmp_path: Path, stage: str, above: int) -> None:
    stages = f'[[stage]]\ndo = "verify"\n[[stage]]\ndo = "{stage}'  # digests alone are parted otherwise
    done = compare(tmp_path, cut, stages, above, sink=False)
    assert done.status == 0, done.units[0]["error"]
    assert max(unit["stages"][1].get("parts", 0) for unit in done.units) > 1


WRITTEN = (
    'split"\nsegment-bytes = 1000\n{above}',
    'split"\nsegment-bytes = 100000\n{above}',
    'mirror"\n{above}',
    'salvage"\n{above}',
    'salvage"\nsame-cluster = true\n{above}',
    'salvage"\nkafka = "2.7"\nsame-cluster = true\n{above}',
    'salvage"\nkafka = "0.11.0.3"\n{above}',
    'verify"\n{above}\n[[stage]]\ndo = "mirror"\n{above}\n[[stage]]\ndo = "split"\nsegment-bytes = 1000\n{above}',
)


@pytest.mark.parametrize(("stage", "above"), one_pair_of_each(WRITTEN, PARTS))
def test_a_sound_log_written_in_parts_is_that_of_one_worker(cut: Path, tmp_path: Path, stage: str, above: int) -> None:
    done = compare(tmp_path, cut, f'[[stage]]\ndo = "{stage}', above)
    assert done.status == 0, done.units[0]["error"]


# ---- damage

Damage = Callable[[random.Random, list[Path]], None]


def overwrite(path: Path, at: int, content: bytes) -> None:
    before = path.read_bytes()
    path.write_bytes(before[:at] + content + before[at + len(content) :])


def flipped(rng: random.Random, logs: list[Path]) -> None:
    """Single bytes anywhere."""
    for _ in range(6):
        path = rng.choice(logs)
        at = rng.randrange(path.stat().st_size)
        overwrite(path, at, bytes([path.read_bytes()[at] ^ rng.randrange(1, 256)]))


def over_the_edge(rng: random.Random, logs: list[Path]) -> None:
    """The end of a segment and the begin of the next one."""
    at = rng.randrange(len(logs) - 1)
    size = logs[at].stat().st_size
    lost = rng.randrange(1, size)
    overwrite(logs[at], size - lost, bytes(lost))
    overwrite(logs[at + 1], 0, rng.randbytes(rng.randrange(1, logs[at + 1].stat().st_size)))


def torn(rng: random.Random, logs: list[Path]) -> None:
    """Ends that are missing."""
    for path in rng.sample(logs, min(2, len(logs))):
        path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def lost(rng: random.Random, logs: list[Path]) -> None:
    """Whole segments of zeros, the first and the last ones among them."""
    for path in {logs[0], logs[-1], rng.choice(logs)} if rng.random() < 0.5 else rng.sample(logs, len(logs) - 1):
        path.write_bytes(bytes(path.stat().st_size))


def elsewhere(rng: random.Random, logs: list[Path]) -> None:
    """Entries in the segment of others: the offsets of one segment are all above or below those of another."""
    one, other = rng.sample(logs, 2)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(first + second if rng.random() < 0.5 else second + first)
    if rng.random() < 0.5:
        other.write_bytes(b"")


def swapped(rng: random.Random, logs: list[Path]) -> None:
    """The contents of two segments."""
    one, other = rng.sample(logs, 2)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def offsets_in(folder: Path) -> list[int]:
    """The last offset of each entry."""
    (partition,) = discover([str(folder)])
    return [int(offset) for chunk in SegmentReader(partition).chunks() for offset in chunk.table.offset]


KINDS: tuple[Damage, ...] = (flipped, over_the_edge, torn, lost, elsewhere, swapped)


@pytest.mark.parametrize(
    ("kind", "seed"), one_pair_of_each(KINDS, range(3)), ids=lambda value: getattr(value, "__name__", None)
)
def test_damage_is_salvaged_in_parts_as_by_one_worker(
    cut: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Damage, seed: int
) -> None:
    rng = random.Random(f"{kind.__name__} {seed}")
    logs = tmp_path / "logs"
    for partition in discover([str(cut)]):
        if len(partition.segments) < 3:
            continue
        folder = logs / Path(partition.path).name
        folder.mkdir(parents=True)
        for path in Path(partition.path).iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        kind(rng, sorted(folder.glob("*.log")))
    options = "same-cluster = true\n" if seed else ""
    by_one: list[Path] = []
    monkeypatch.setattr(salvage, "run", lambda *given, run=salvage.run: by_one.append(given[0]) or run(*given))
    done = compare(tmp_path, logs, f'[[stage]]\ndo = "salvage"\n{options}{{above}}', rng.choice(PARTS))
    assert done.status == 0, done.units[0]["error"]
    assert all(unit["stages"][0]["parts"] > 1 for unit in done.units)
    is_less = any(unit["stages"][0]["lost"] or unit["stages"][0]["leftOut"] for unit in done.units)
    assert is_less == (kind is not swapped)
    if kind is swapped:  # the entries say where they belong
        for folder in logs.iterdir():
            whole = offsets_in(cut / folder.name)
            assert offsets_in(tmp_path / "whole" / folder.name)[: len(whole)] == whole
    elif kind is not elsewhere:
        assert by_one == [], "the names of the segments are right"
    compare(tmp_path, logs, '[[stage]]\ndo = "verify"\n{above}', 1, sink=False)
    inventory = compare(tmp_path, logs, '[[stage]]\ndo = "inventory"\n{above}', 1, sink=False)
    assert inventory.status in (0, 1)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_log_cut_anywhere_between_its_entries_is_salvaged_alike(tmp_path: Path, seed: int) -> None:
    """Pages that moved, torn writes, batches in values: a long log, in segments of random lengths."""
    rng = random.Random(seed)
    log = damaged_logs.damaged(seed, "mixed", 1 << 18, 6)
    folder = tmp_path / "logs/orders-0"
    folder.mkdir(parents=True)
    starts = sorted((position, offset) for offset, position in log.whole.items())
    cuts = sorted(rng.sample(starts[1:], min(6, len(starts) - 1)))
    edges = [(0, 0), *cuts, (len(log.content), -1)]
    for (begin, base), (end, _) in itertools.pairwise(edges):
        (folder / f"{base:020}.log").write_bytes(bytes(log.content[begin:end]))
    compare(tmp_path, tmp_path / "logs", '[[stage]]\ndo = "salvage"\n{above}', 1, 1 << 15)


def test_of_crashed_logs_in_parts_the_same_is_salvaged(tmp_path: Path) -> None:
    """The logs of brokers that were killed, as they left them."""
    cases = [case for case in golden_data.log_cases() if not case.has_records]
    assert len(cases) > 10
    lay_out_closed(tmp_path / "logs", cases)
    several = [each for each in discover([str(tmp_path / "logs")]) if len(each.segments) > 1]
    done = compare(tmp_path, tmp_path / "logs", '[[stage]]\ndo = "salvage"\nsame-cluster = true\n{above}', 1)
    assert len(done.units) == len(cases)
    assert sum(unit["stages"][0].get("parts", 0) > 1 for unit in done.units) == len(several)


def test_damage_on_the_way_is_salvaged_by_several_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`on-damage = "salvage"`: the added stage is shared when other stages of the partition are."""
    monkeypatch.undo()
    monkeypatch.setattr(driver, "SALVAGE", replace(SALVAGE, options={**SALVAGE.options, "part-above": 1}))
    folder = write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=each) for each in (0, 50, 100)))
    overwrite(folder / f"{50:020}.log", 300, b"?")
    (tmp_path / "p.toml").write_text(
        'on-damage = "salvage"\n[[stage]]\ndo = "convert"\nformat = "v2"\ncodec = "zstd"\npart-above = 1\n'
        '[source]\npath = "logs"\n[sink]\npath = "out"\n'
    )
    done = driver.run(load(tmp_path / "p.toml"), context=InProcess())
    assert done.status == 0, done.units[0]["error"]
    assert [(stage["do"], stage.get("parts")) for stage in done.units[0]["stages"]] == [("salvage", 3), ("convert", 3)]


def test_parts_whose_offsets_overlap_are_written_by_one_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker finds the damage that two cannot see."""
    write_partition(tmp_path / "logs", "orders-0", *(some_records(50, first=each) for each in (0, 40, 100)))
    calls: list[Path] = []
    monkeypatch.setattr(resegment, "run", lambda *given, run=resegment.run: calls.append(given[0]) or run(*given))
    stages = '[[stage]]\ndo = "split"\nsegment-bytes = 1000\n{above}'
    runs = [ran(tmp_path, tmp_path / "logs", str(tmp_path / str(above)), stages, above) for above in (1, None)]
    assert comparable(runs[0]) == comparable(runs[1])
    assert (runs[0].units[0]["outcome"], len(calls)) == ("damaged", 1)
