"""Make .venv from the committed locks: `python tools/set_up.py STAGE`. Each stage holds those before it.

`light` is what most commands need, `run` adds Numba, Arrow and the extras of stores, `spark` is all that there is to
use, `dev` is to work on it as well. A stage that was reached is kept up when locks change.

The standard library is enough. Packages come as wheels, so no compiler is needed; the one exception is pyspark, a
source archive without anything to compile, which the pinned setuptools of requirements/build.txt unpacks.

Brokers may be running from .venv, so it is never changed in place. Its successor is built beside it, in .venv.next:
hard links to the files of .venv, in which pip replaces names and not contents. What a killed run leaves behind:

1. while it builds: .venv as it was, and a part of .venv.next, which the next run removes;
2. between the two renames: no .venv, and .venv.next with all locks of its stage, which the next run renames;
3. after them: .venv.old, which the next run removes.

A process that runs meanwhile finds modules that it imports later under the same path. A .venv without the folder
.venv/magicbyte was made by another tool (`uv sync`, `python -m venv`): it is used unchanged.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
NEXT, OLD = ROOT / ".venv.next", ROOT / ".venv.old"
STATE = "magicbyte"  # the folder with a copy of each installed lock: ./magicbyte and ./test compare them, nothing more

STAGES = {
    "light": "installing the packages of magicbyte, about 40 MB to download",
    "run": "installing Numba, Arrow and S3, about 120 MB to download",
    "spark": "installing Spark, 450 MB to download",
    "dev": "installing Spark and the development tools, about 650 MB to download",
}
WITH_SPARK = ("spark", "dev")  # which is built from its source archive, and whose workers would all compile kernels
PIP = ("-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", "install")
LOCKED = ("--no-user", "--no-compile", "--progress-bar=off", "--require-hashes", "--only-binary=:all:")


def main(stage: str) -> None:
    """Bring .venv to `stage`; nothing is done twice. Exits with a line on stderr when it cannot."""
    try:
        with Path(__file__).open("r+b") as lock:  # NFS locks only what is open for writing
            hold(lock.fileno())
            recover()
            if not VENV.exists() or (VENV / STATE).exists():
                set_up(stage, lock.fileno())
            elif quiet([python(VENV), "-P", "-c", "import magicbyte"], lock.fileno()).returncode:
                raise SystemExit(
                    "magicbyte: .venv is not of our making: delete it, or .venv/bin/pip install -e '.[spark,dev]'"
                )
    except OSError as error:
        raise SystemExit(f"magicbyte: cannot set up {VENV}: {error}") from error


def hold(lock: int) -> None:
    """Wait for the set-up of this clone to be ours alone. The system lets go of the lock when its holders end."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another set-up of this clone")
        fcntl.flock(lock, fcntl.LOCK_EX)


def recover() -> None:
    """Complete the exchange of a run that was killed, and remove what it left."""
    if not VENV.exists() and (stages := [name for name in STAGES if is_installed(NEXT, name)]):
        say(f"completing a set-up ({stages[-1]}) that was killed")
        NEXT.rename(VENV)
    for left in (NEXT, OLD):
        if left.exists():
            shutil.rmtree(left)


def set_up(stage: str, lock: int) -> None:
    """Install the lock of `stage`, or of the highest stage that was reached before, where .venv has not all of it."""
    order = list(STAGES)
    highest = max([stage, *(each for each in order if (VENV / STATE / f"{each}.txt").exists())], key=order.index)
    names = order[: order.index(highest) + 1]  # the last one's lock holds those of the others
    can_run = os.access(python(VENV), os.X_OK)
    if can_run and all(is_installed(VENV, name) for name in names):
        return
    say(f"{STAGES[highest]} (once)")
    if can_run:
        shutil.copytree(VENV, NEXT, symlinks=True, copy_function=link, ignore=without_state)
    else:
        run([sys.executable, "-I", "-m", "venv", str(NEXT)], lock)
    pip = [python(NEXT), *PIP]
    if highest in WITH_SPARK:
        run([*pip, *LOCKED, "-r", str(lock_file("build"))], lock)
    run([*pip, *LOCKED, "--no-binary=pyspark", "--no-build-isolation", "-r", str(lock_file(highest))], lock)
    for site_packages in NEXT.glob("lib/python*/site-packages"):
        # Relative to the folder it is in, so that a clone can be moved.
        (site_packages / "magicbyte.pth").write_text(os.path.relpath(ROOT / "src", site_packages) + "\n")
    name_in_scripts()
    (NEXT / STATE).mkdir()
    for name in names:
        shutil.copyfile(lock_file(name), NEXT / STATE / f"{name}.txt")
    if VENV.exists():
        VENV.rename(OLD)
    NEXT.rename(VENV)
    if OLD.exists():
        shutil.rmtree(OLD)
    if highest != "light":  # its first output matters more: Python keeps the bytecode of what a command imports
        compile_ahead(lock, kernels=highest in WITH_SPARK)


def link(source: str, target: str) -> None:
    """Make `target` a hard link to a file, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def without_state(folder: str, _names: list[str]) -> set[str]:
    """Leave the copies of locks out: they stand for an environment that is complete."""
    return {STATE} if Path(folder) == VENV else set()


def name_in_scripts() -> None:
    """Write the final path into scripts that pip and venv made with the path of the folder that will be renamed."""
    built, final = os.fsencode(NEXT), os.fsencode(VENV)
    for path in (NEXT / "bin").iterdir():
        if path.is_file() and not path.is_symlink() and built in (content := path.read_bytes()):
            mode = path.stat().st_mode
            path.unlink()  # it may be a link to that of .venv
            path.write_bytes(content.replace(built, final))
            path.chmod(mode)


def is_installed(folder: Path, name: str) -> bool:
    """Whether the stage `name` was installed into `folder` from the lock that is committed now."""
    return read(folder / STATE / f"{name}.txt") == read(lock_file(name))


def python(folder: Path) -> str:
    """The interpreter of a virtual environment."""
    return str(folder / "bin" / "python")


def compile_ahead(lock: int, *, kernels: bool) -> None:
    """Compile bytecode, and kernels, now, so that commands start fast. Failing here only costs time later."""
    # Some packages carry files that are no Python; compileall mentions them and continues.
    quiet([python(VENV), "-I", "-m", "compileall", "-q", "-j0", str(VENV / "lib"), str(ROOT / "src")], lock)
    if not kernels:
        return
    say("compiling")
    warmed = quiet([python(VENV), "-P", "-m", "magicbyte", "warm"], lock)
    if warmed.returncode:
        reason = warmed.stdout.strip().rpartition("\n")[2]
        say(f"the kernels could not be compiled ahead, so their first use will take longer: {reason}")


def run(command: Sequence[str], lock: int) -> None:
    """Run `command` and show what it said only when it fails, which ends the set-up."""
    done = quiet(command, lock)
    if done.returncode:
        sys.stderr.write(done.stdout)
        raise SystemExit(
            f"magicbyte: set-up failed (above is why); the next run starts it again. Command: {' '.join(command)}"
        )


def quiet(command: Sequence[str], lock: int) -> subprocess.CompletedProcess[str]:
    """Run `command`. It holds the lock too: should we be killed, no other run interferes before it has ended."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        pass_fds=[lock],
        check=False,
    )


def lock_file(name: str) -> Path:
    """The committed lock `name`, made by tools/lock.sh."""
    return ROOT / "requirements" / f"{name}.txt"


def read(path: Path) -> bytes | None:
    """The content of `path`, or None where there is no such file."""
    return path.read_bytes() if path.exists() else None


def say(what: str) -> None:
    """One line about what takes the time, apart from any command's output."""
    sys.stderr.write(f"magicbyte: {what}\n")


if __name__ == "__main__":
    main(sys.argv[1])
