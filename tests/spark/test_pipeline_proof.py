"""For every stage the output on `local[2]`, on a cluster of two workers and of the command are the same, digest for
digest, on all golden logs. On generated logs of any size: benchmarks/pipeline_proof.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path

import pytest

from builders import first_of
from golden_data import Case, log_case, log_cases, those_of_each_kind
from magicbyte.spark.pipeline.cluster import cluster
from spark.conftest import lay_out_closed, topic_of
from spark.in_process import InProcess
from stage_proof import DAMAGED, PROOFS, Place, at, now, outcomes

SHUFFLED = "g3.9.1.*compact*"
"""Topics whose keys go through Spark's shuffle, which is several jobs for each partition."""


@pytest.mark.parametrize("name", ["compact", "compact by shuffle"])
def test_a_log_is_compacted_as_by_the_version_of_its_files_before_their_repair(name: str, tmp_path: Path) -> None:
    lay_out_closed(tmp_path / "logs", [log_case("3.9.1/compact-snappy.after2")])
    place = Place(tmp_path / "logs", tmp_path, segment_bytes=3000, retained_bytes=3000, shuffled="*", now=now())
    ((_, found),) = outcomes(place, {name: PROOFS[name]}, commands=True, context=InProcess())
    assert found["partitions"] == 1


def of_each_kind(cases: Iterable[Case]) -> list[Case]:
    """Return cases of all kinds, and those of the shuffle."""
    every = list(cases)
    shuffled = [case for case in every if fnmatch(topic_of(case), SHUFFLED) and case.state == "before"]
    return list({case.id: case for case in (*those_of_each_kind(every), *shuffled)}.values())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("chosen", first_of([of_each_kind, list]), ids=["each kind", "all"])
def test_every_stage_makes_of_golden_logs_what_its_command_makes_wherever_spark_runs(
    chosen: Callable[[Iterable[Case]], list[Case]], tmp_path: Path
) -> None:
    started = now()
    with cluster(2) as workers:
        sound = chosen(case for case in log_cases() if case.has_records)
        crashed = [case for case in log_cases() if not case.has_records]
        for name, cases, proofs in (("sound", sound, PROOFS), ("crashed", crashed, DAMAGED)):
            logs = tmp_path / name
            lay_out_closed(logs, cases)
            found = []
            for number, (master, commands) in enumerate((("local[2]", True), (workers.url, False))):
                folder = tmp_path / f"{name}-{number}"
                folder.mkdir()
                place = Place(logs, folder, segment_bytes=3000, retained_bytes=3000, shuffled=SHUFFLED, now=started)
                found.append(at(master, place, list(proofs), commands=commands))
            local, spread = ({name: each["digest"] for name, each in some.items()} for some in found)
            assert local.keys() == proofs.keys()
            assert local == spread
