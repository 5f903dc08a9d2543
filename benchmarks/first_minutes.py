"""The first minutes of a new user, in an empty home without Java: of the wheel with its base alone, and of a clone.

`wheel`: `pip install` of the wheel with every package already in a folder, so that no network is timed; what was
downloaded and what is on the disk then; the first `--version`, the first inventory of the tour's logs, and the tour,
each as the first of its kind in that home. `clone`: `git clone` of the repository, until `./magicbyte` has made its
own .venv, and shown an inventory. `cpu_seconds` are the processor's, on all cores. `load_average` is the machine's, of
two cores, at the end of a case.

Run: tools/build.sh dist && python benchmarks/first_minutes.py   (written to benchmarks/results/first_minutes.json)
"""

import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import harness

ROOT: Final = Path(__file__).resolve().parent.parent
TARGETS: Final = {"megabytes_on_disk": 150, "first_inventory_seconds": 20, "tour_seconds": 10}
PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--quiet")


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a new user's process: an empty home, and a few programs, without Java."""
    home.mkdir(exist_ok=True)
    # Java may lie where all programs lie: those that are needed are linked into a folder of their own.
    programs = home / "programs"
    programs.mkdir()
    for name in ("sh", "git", "cmp", "readlink", "env"):
        found = shutil.which(name)
        assert found is not None, name
        (programs / name).symlink_to(found)
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    return {"HOME": str(home), "PATH": str(programs), "LANG": "C.UTF-8", "PIP_NO_INDEX": "1"}


class Clock:
    """Runs commands, and keeps what they took: `seconds` of time, `cpu` of the processor's, by name."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def time(self, name: str, *command: str | Path, **options: Any) -> None:
        """Run a command, which must succeed, and keep its cost under `name`, added to an earlier one."""
        begin, used = time.monotonic(), processor()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=900, **options)
        for unit, taken in (("seconds", time.monotonic() - begin), ("cpu_seconds", processor() - used)):
            self.found[f"{name}_{unit}"] = round(self.found.get(f"{name}_{unit}", 0) + taken, 2)


def processor() -> float:
    """Return the processor's seconds that all commands so far have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def megabytes(folder: Path) -> float:
    """Return what the files of `folder` hold, in millions of bytes."""
    return round(sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6, 1)


def packages(folder: Path) -> Path:
    """Return a folder with the packages that the base install needs, at the locked versions."""
    kept = folder / "packages"
    lock = ROOT / "requirements/light.txt"
    download = ("download", "--require-hashes", "--only-binary=:all:", "-d", kept, "-r", lock)
    subprocess.run([sys.executable, *PIP, *download], check=True)
    return kept


def judged(found: dict[str, Any]) -> dict[str, Any]:
    """Return figures with the targets that they have, and whether these are reached."""
    targets = {name: target for name, target in TARGETS.items() if name in found}
    return found | {"targets": targets, "reached": all(found[name] <= target for name, target in targets.items())}


def wheel(folder: Path) -> dict[str, Any]:
    """Measure an install of the wheel, and its first commands."""
    (built,) = (ROOT / "dist").glob("*.whl")
    kept, who = packages(folder), environment(folder / "home")
    python = folder / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    before, clock = megabytes(folder / "venv"), Clock()
    clock.time("install", python, *PIP, "install", "--find-links", kept, built, env=who)
    command = folder / "venv/bin/magicbyte"
    clock.time("version", command, "--version", env=who)
    clock.time("unpack", command, "tour", "--unpack", folder / "tour", env=who)
    clock.time("first_inventory", command, "inventory", folder / "tour/logs", env=who)
    clock.time("tour", command, "tour", env=who)
    names = sorted(path.name for path in (folder / "venv").glob("lib/python*/site-packages/*"))
    found = clock.found | {
        "megabytes_to_download": round(sum(path.stat().st_size for path in [built, *kept.glob("*.whl")]) / 1e6, 1),
        "megabytes_on_disk": round(megabytes(folder / "venv") - before, 1),
        "has_numba": any(name.startswith(("numba", "llvmlite")) for name in names),
        "has_java": shutil.which("java", path=who["PATH"]) is not None,
    }
    return judged(found)


def clone(folder: Path) -> dict[str, Any]:
    """Measure a clone, until its first inventory."""
    kept, who = packages(folder), environment(folder / "home")
    who["PIP_FIND_LINKS"] = str(kept)
    clock, there = Clock(), {"cwd": folder / "clone", "env": who}
    subprocess.run(["git", "clone", "--quiet", ROOT, folder / "clone"], check=True)  # what it takes is the host's
    clock.time("first_inventory", "./magicbyte", "tour", "--unpack", folder / "tour", **there)
    clock.time("first_inventory", "./magicbyte", "inventory", folder / "tour/logs", **there)
    clock.time("tour", "./magicbyte", "tour", **there)
    found = clock.found
    found["megabytes_to_download"] = megabytes(kept)
    found["megabytes_on_disk"] = megabytes(folder / "clone/.venv")
    return judged(found)


CASES: Final = {"wheel": wheel, "clone": clone}

if __name__ == "__main__":
    harness.run_cases("first_minutes", __doc__, CASES)
