"""For every stage the output on `local[2]`, on a cluster of two workers and of the command are the same, digest for
digest, on all golden logs. On generated logs of any size: benchmarks/pipeline_proof.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from golden_data import log_case
from magicbyte.engine.log.files.checkpoints import CLEAN_SHUTDOWN
from magicbyte.spark.pipeline.cluster import cluster
from spark.conftest import CLEANLY, lay_out_closed
from spark.in_process import InProcess
from stage_proof import DAMAGED, PROOFS, Place, at, now, outcomes

if TYPE_CHECKING:
    from spark.conftest import GoldenLogs

SHUFFLED = "g3.9.1.*compact*"
"""Topics whose keys go through Spark's shuffle, which is several jobs for each partition."""


@pytest.mark.parametrize("name", ["compact", "compact by shuffle"])
def test_a_log_is_compacted_as_by_the_version_of_its_files_before_their_repair(name: str, tmp_path: Path) -> None:
    lay_out_closed(tmp_path / "logs", [log_case("3.9.1/compact-snappy.after2")])
    place = Place(tmp_path / "logs", tmp_path, segment_bytes=3000, retained_bytes=3000, shuffled="*", now=now())
    ((_, found),) = outcomes(place, {name: PROOFS[name]}, commands=True, context=InProcess())
    assert found["partitions"] == 1


@pytest.mark.spark
@pytest.mark.slow
def test_every_stage_makes_of_all_golden_logs_what_its_command_makes_wherever_spark_runs(
    golden: GoldenLogs, crashed: GoldenLogs, tmp_path: Path
) -> None:
    started = now()
    with cluster(2) as workers:
        for logs, proofs in ((golden, PROOFS), (crashed, DAMAGED)):
            (logs.path / CLEAN_SHUTDOWN).write_text(CLEANLY)
            found = []
            for number, (master, commands) in enumerate((("local[2]", True), (workers.url, False))):
                folder = tmp_path / f"{logs.path.name}-{number}"
                folder.mkdir()
                place = Place(
                    logs.path, folder, segment_bytes=3000, retained_bytes=3000, shuffled=SHUFFLED, now=started
                )
                found.append(at(master, place, list(proofs), commands=commands))
            local, spread = ({name: each["digest"] for name, each in some.items()} for some in found)
            assert local.keys() == proofs.keys()
            assert local == spread
