"""Directories of real KRaft nodes (tests/golden/kraft), with what Kafka's own tools and classes said of them."""

import gzip
import json
import re
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

GOLDEN: Final = Path(__file__).parent / "golden" / "kraft"
FOLDER: Final = "__cluster_metadata-0"


class KraftNode(NamedTuple):
    """A node of a golden case, such as `4.3.1/clean-a` and `node`."""

    case: str
    name: str

    def __str__(self) -> str:
        return f"{self.case} {self.name}"

    def files(self) -> dict[str, bytes]:
        """Return the files of the node's log directory by their paths."""
        root = f"{self.name}/"
        return {path.removeprefix(root): data for path, data in _files(self.case).items() if path.startswith(root)}

    def unpacked(self, path: Path, *, without: str = "^$") -> Path:
        """Write the files into a folder, but for those whose name matches; return the folder."""
        for name, data in self.files().items():
            if not re.search(without, name):
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(data)
        return path

    def dumps(self) -> dict[str, list[str]]:
        """Return what Kafka's dump tool printed of each file of the metadata log, by name: its lines."""
        text = gzip.decompress((GOLDEN / self.case / f"{self.name}.dump.txt.gz").read_bytes()).decode()
        parts = re.split(r"^Dumping .*/(\S+)$", text, flags=re.MULTILINE)[1:]
        return {name: printed.splitlines()[1:] for name, printed in zip(parts[::2], parts[1::2], strict=True)}

    def folds(self) -> dict[str | None, list[dict[str, Any]]]:
        """Return Kafka's images of the log by the snapshot that they begin with, None: the log's start."""
        found = {}
        for path in sorted((GOLDEN / self.case).glob(f"{self.name}.fold*.jsonl.gz")):
            start = path.name.removeprefix(f"{self.name}.fold").removesuffix(".jsonl.gz").removeprefix("-from-")
            found[start or None] = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        return found


@cache
def _files(case: str) -> dict[str, bytes]:
    with tarfile.open(GOLDEN / case / "data.tar.gz") as archive:
        return {each.name.removeprefix("./"): archive.extractfile(each).read() for each in archive if each.isfile()}  # type: ignore[union-attr]


def nodes() -> list[KraftNode]:
    """Return the nodes of all cases whose metadata log was dumped."""
    dumps = sorted(GOLDEN.glob("*/*/*.dump.txt.gz"))
    return [
        KraftNode(path.parent.relative_to(GOLDEN).as_posix(), path.name.removesuffix(".dump.txt.gz")) for path in dumps
    ]
