"""What the kernels make of every golden log, as digests: `python golden_outcomes.py` prints them as JSON.

For processes whose kernels come from different places: of the package, of Numba, or the plain twins. Their outcomes are
to be equal. It needs no test packages, so that it runs where only the base install is.
"""

import contextlib
import hashlib
import io
import json
import sys
import tempfile
import zipfile
from pathlib import Path

from magicbyte.cli.main import main
from magicbyte.engine.compiled import kernel, shipped

LOGS = Path(__file__).parent.parent.parent / "golden/logs"
CONVERSIONS = (("v0", "gzip"), ("v1", "lz4"), ("v2", "lz4"), ("v2", "zstd"))


def outcome(*arguments: str | Path) -> str:
    """Return the exit status of a command and a digest of what it printed."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    status: object = 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            main([str(each) for each in arguments], standalone_mode=False)
        except SystemExit as ended:
            status = ended.code
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the same with all kernels
            status = type(error).__name__
    printed.flush()
    return f"{status} {hashlib.sha256(printed.buffer.getvalue()).hexdigest()}"


def files(folder: Path) -> str:
    """Return a digest of all files of `folder`."""
    digest = hashlib.sha256()
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def outcomes(partition: Path, scratch: Path) -> list[str]:
    """Return what each command that reads records makes of one partition."""
    made = [outcome("cat", partition, "--format", form, "--on-damage", "skip") for form in ("jsonl", "csv")]
    made.append(outcome("verify", partition, "--deep", "--format", "json"))
    for number, (version, codec) in enumerate(CONVERSIONS):
        target = scratch / f"{number}"
        made.append(outcome("convert", partition, "--to", version, "--codec", codec, "--out", target))
        made.append(files(target) if target.exists() else "")
    target = scratch / "compact"
    outcome("compact", partition, "--out", target, "--drop-unkeyed")  # the time is in what it says and writes
    made.append(outcome("cat", target, "--format", "jsonl"))
    return made


def all_outcomes(versions: list[str]) -> dict[str, list[str]]:
    """Return the outcomes of every golden log of these brokers, or of all."""
    made: dict[str, list[str]] = {}
    for archive in sorted(LOGS.glob("*.zip")):
        if versions and archive.stem not in versions:
            continue
        # The same paths in each process: they stand in what is printed.
        with (
            tempfile.TemporaryDirectory() as scratch,
            contextlib.chdir(scratch),
            zipfile.ZipFile(archive) as stored,
        ):
            stored.extractall()
            for partition in sorted(Path().glob("*/partition")):
                log = partition.rename(partition.with_name(f"{partition.parent}-0"))
                made[f"{archive.stem}/{log.parent}"] = outcomes(log, log.parent)
    return made


if __name__ == "__main__":
    found = all_outcomes(sys.argv[1:])
    used = sorted(shipped.symbol(each.origin.__module__, each.__name__) for each in kernel.kernels() if each.is_loaded)
    numba = "numba" in sys.modules
    print(json.dumps({"outcomes": found, "kernels": used, "library": str(shipped.library()), "numba": numba}))
