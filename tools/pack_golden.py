"""Packs the golden data of real brokers into `tests/golden`: one zip per broker version, always the same bytes.

Run: python tools/pack_golden.py SOURCE, where SOURCE holds `logs/`, `wire/` and `manifest.json`
(tests/golden/README.md says what they are).
"""

import gzip
import shutil
import sys
import zipfile
from pathlib import Path

TARGET = Path(__file__).parent.parent / "tests" / "golden"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the time of every member, so that packing again changes nothing


def pack_version(source: Path, target: Path) -> None:
    """Write all files below `source` to the zip `target`, in the order of their names."""
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            member = zipfile.ZipInfo(path.relative_to(source).as_posix(), EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            archive.writestr(member, path.read_bytes(), compresslevel=9)


def main(source: Path) -> None:
    """Pack `source` into `tests/golden`, replacing older files."""
    (TARGET / "logs").mkdir(parents=True, exist_ok=True)
    (TARGET / "wire").mkdir(parents=True, exist_ok=True)
    for version in sorted((source / "logs").iterdir()):
        pack_version(version, TARGET / "logs" / f"{version.name}.zip")
    for captured in sorted((source / "wire").glob("*.zip")):
        shutil.copyfile(captured, TARGET / "wire" / captured.name)
    for name in ("manifest.json", "wire/index.jsonl"):
        content = gzip.compress((source / name).read_bytes(), mtime=0)
        (TARGET / f"{name}.gz").write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
