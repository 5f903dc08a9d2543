"""Each stage of a pipeline at local[2], on a cluster of two workers, and its command: is the output the same?

The mixed archive of archive.py, of a size that is given: formats, codecs, skewed keys and sizes, tombstones,
transactions; for `salvage`, in which four partitions are damaged and one is torn, the same harmed. Outputs of the two
masters are compared by SHA-256 of all files and of all that the run says; that of local[2] with the command's as
tests/stage_proof.py says for each stage: by all files, by `diff`, or by what the command tells. Shuffles are forced:
`shuffle-above` is 1, for topics with lz4. Nothing is measured but the seconds of the two runs.

Run: python benchmarks/pipeline_proof.py MEGABYTES [STAGE...]   (merged into benchmarks/results/pipeline_proof.json;
needs three times that on disk)
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import archive
import data
import harness

sys.path.append(str(data.HERE.parent / "tests"))

from magicbyte.spark.pipeline.cluster import cluster
from stage_proof import DAMAGED, PROOFS, Place, at, now


def prove(logs: Path, folder: Path, stage: str, url: str, megabytes: int) -> dict[str, Any]:
    """Run one stage at both masters, and its command."""
    folder.mkdir()
    size = megabytes * 1_000_000
    place = Place(logs, folder, archive.segment_bytes(size) // 2, size // 200, "*-lz4", now())
    (here,) = at("local[2]", place, [stage], commands=True).values()
    (spread,) = at(url, place, [stage], commands=False).values()
    shutil.rmtree(folder)
    return {
        "same": here["digest"] == spread["digest"],
        "partitions": here["partitions"],
        "files": here["files"],
        "digest": here["digest"],
        "seconds": {"local[2]": here["seconds"], "two workers": spread["seconds"]},
    }


def main(megabytes: int, stages: list[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="magicbyte-proof-"))
    try:
        archive.make(folder / "logs", megabytes * 1_000_000)
        size = sum(path.stat().st_size for path in folder.rglob("*.log"))
        with cluster(2, memory="2g") as workers:
            for stage in stages or [*PROOFS, *DAMAGED]:
                if stage in DAMAGED:
                    archive.harm(folder / "logs", data.SEED)
                found = prove(folder / "logs", folder / "work", stage, workers.url, megabytes)
                harness.save("pipeline_proof", __doc__, {f"{megabytes} MB, {stage}": {"bytes": size, **found}})
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
