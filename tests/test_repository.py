"""Promises about the repository as a whole: its locks, its rooms, what an import costs, and the two root scripts."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from magicbyte.engine.extras import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
HEAVY = ("numpy", "numba", "llvmlite", "pyarrow", "pyspark", "fsspec")


def pinned(lock: Path) -> dict[str, list[str]]:
    """The options (hashes) of each `name==version ; marker` of a lock."""
    found: dict[str, list[str]] = {}
    for requirement in lock.read_text().replace("\\\n", " ").splitlines():
        specification, *options = re.split(r"\s+(?=--)", requirement.strip())
        assert re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; .+)?", specification), requirement[:80]
        found[specification] = options
    return found


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9-]", requirement)[0].lower() for requirement in requirements}


# ---- locks


def test_there_is_a_lock_to_build_to_release_for_the_site_and_for_each_stage_of_the_set_up() -> None:
    assert [lock.stem for lock in LOCKS] == ["build", "dev", "docs", "light", "release", "run", "spark"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_locked_package_has_hashes_and_nothing_else(lock: Path) -> None:
    for specification, options in pinned(lock).items():
        assert options, specification
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", option) for option in options), specification


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_names_no_address(lock: Path) -> None:
    assert "://" not in lock.read_text()


@pytest.mark.parametrize(("smaller", "larger"), list(itertools.pairwise(["light", "run", "spark", "dev"])))
def test_the_lock_of_a_stage_holds_the_versions_of_the_stage_before_it(smaller: str, larger: str) -> None:
    held, holds = (
        {(name.partition(" ;")[0], *options) for name, options in pinned(ROOT / f"requirements/{each}.txt").items()}
        for each in (smaller, larger)
    )
    assert held <= holds


def test_the_light_stage_is_without_the_large_packages() -> None:
    light = names(list(pinned(ROOT / "requirements/light.txt")))
    assert not light & {"numba", "llvmlite", "pyarrow", "pyspark", "s3fs", "cryptography"}


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    light, spark, dev = (names(list(pinned(ROOT / f"requirements/{each}.txt"))) for each in ("light", "spark", "dev"))
    of_all = names([name for extra in extras.values() for name in extra]) - {"magicbyte"}
    assert names(project["dependencies"]) <= light
    assert names(extras["spark"]) - {"magicbyte"} <= spark
    assert of_all <= dev


def test_every_extra_is_known_to_what_says_that_it_is_missing() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"dev"}
    for extra, package in EXTRAS.items():
        assert package in names(extras[extra])


# ---- rooms


@pytest.mark.parametrize("house", ["", "engine", "access", "server", "tools"])
def test_every_folder_of_the_package_and_of_a_house_has_a_place_in_the_order(house: str) -> None:
    container = f"magicbyte.{house}".rstrip(".")
    (order,) = [
        each for each in PROJECT["tool"]["importlinter"]["contracts"] if container in each.get("containers", ())
    ]
    inside = (ROOT / "src/magicbyte" / house).iterdir()
    assert order["exhaustive"]
    assert {path.name for path in inside if (path / "__init__.py").exists()} <= set(order["layers"])


def test_the_engine_is_kept_from_sockets_and_clocks() -> None:
    last = PROJECT["tool"]["importlinter"]["contracts"][-1]
    assert {"magicbyte.engine", "magicbyte.schema"} <= set(last["source_modules"])
    assert {"socket", "threading", "asyncio", "time", "random"} <= set(last["forbidden_modules"])


def test_releases_of_kafka_are_compared_in_one_place() -> None:
    compared = re.compile(r"[<>]=? *\(\d+, *\d+|\(\d+, *\d+(, *\d+)*\) *[<>]")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "src/magicbyte").rglob("*.py"))
        if path.name != "releases.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if compared.search(line) and "version_info" not in line
    ]
    assert found == []


# ---- what an import costs


def loaded_by(*arguments: str) -> set[str]:
    """Top-level modules that a Python with these arguments loads."""
    command = [sys.executable, "-P", "-X", "importtime", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "120"})
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_by("-c", "import magicbyte")
    assert "magicbyte" in loaded
    assert not loaded & {*HEAVY, "click", "rich"}


def test_help_loads_nothing_heavy() -> None:
    loaded = loaded_by("-m", "magicbyte", "--help")
    assert "click" in loaded
    assert not loaded & set(HEAVY)


# ---- files


def test_no_committed_text_names_a_place_on_somebodys_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    texts = [ROOT / name for name in listed.stdout.split("\0") if name and not name.startswith("tests/golden/")]
    somebodys = re.compile(rb"(?<![\w.~>-])/(?:root|home|Users)/\w+/|" + re.escape(os.fsencode(ROOT)) + rb"/")
    assert texts
    for path in texts:
        if path.is_file():
            assert not (found := somebodys.search(path.read_bytes())), f"{path}: {found}"


@pytest.mark.parametrize(
    "name",
    [
        "magicbyte",
        "test",
        ".ci/run",
        "tools/lock.sh",
        "tools/check_wheel.sh",
        "tools/build.sh",
        "tools/check_builds.sh",
        "tools/check_pythons.sh",
    ],
)
def test_a_script_is_executable_and_parses(name: str) -> None:
    script = ROOT / name
    assert os.access(script, os.X_OK)
    shell = script.read_text().partition("\n")[0].split()[-1].rpartition("/")[2]
    assert subprocess.run([shell, "-n", str(script)], check=False).returncode == 0


# ---- set-up, on a clone with empty locks: no package is downloaded


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What the root scripts need, with a package that says hello."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "tools", clone / "tools")
    shutil.copy(ROOT / "magicbyte", clone)
    (clone / "requirements").mkdir()
    for lock in LOCKS:
        (clone / "requirements" / lock.name).touch()
    package = clone / "src" / "magicbyte"
    (package / "wire").mkdir(parents=True)
    for module in ("__init__", "wire/__init__", "wire/warm"):
        (package / f"{module}.py").touch()
    (package / "__main__.py").write_text("import sys\nprint('hello', *sys.argv[1:])\n")
    return clone


def start(clone: Path, *arguments: str, path: str | None = None) -> subprocess.Popen[str]:
    path = path or os.pathsep.join([str(Path(sys.executable).resolve().parent), os.defpath])
    return subprocess.Popen(
        [str(clone / "magicbyte"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": path, "HOME": str(clone.parent)},
    )


@pytest.mark.slow
def test_a_set_up_clone_is_reused_even_when_moved_until_its_lock_changes(clone: Path) -> None:
    said, complaints = start(clone, "there").communicate()
    assert (said, len(complaints.splitlines())) == ("hello there\n", 1), complaints
    moved = clone.rename(clone.parent / "moved")
    assert start(moved, "again").communicate() == ("hello again\n", "")
    (moved / "requirements/light.txt").write_text("# changed\n")
    assert len(start(moved).communicate()[1].splitlines()) == 1
    assert start(moved).communicate() == ("hello\n", "")


@pytest.mark.slow
def test_two_first_runs_at_once_after_one_that_was_killed_both_succeed(clone: Path) -> None:
    half_built = clone / ".venv.next/bin/python"
    half_built.parent.mkdir(parents=True)
    half_built.symlink_to("nowhere")
    runs = [start(clone, "one"), start(clone, "two")]
    assert [run.communicate()[0] for run in runs] == ["hello one\n", "hello two\n"]
    assert sorted(path.name for path in (clone / ".venv/magicbyte").iterdir()) == ["light.txt"]
    assert sorted(path.name for path in clone.glob(".venv*")) == [".venv"]


@pytest.mark.slow
def test_an_installation_that_is_killed_leaves_the_environment_of_running_brokers(clone: Path) -> None:
    """At each step after which the next one changes a name, in the order of tools/set_up.py."""
    assert start(clone).communicate()[0] == "hello\n"
    venv, following, old = (clone / name for name in (".venv", ".venv.next", ".venv.old"))
    running = subprocess.Popen(
        [
            venv / "bin/python",
            "-c",
            "import sys; print(flush=True); input(); import colorsys, pip; print(pip.__file__)",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    running.stdout.readline()
    pip = next(venv.glob("lib/python*/site-packages/pip/__init__.py"))
    shutil.copytree(venv, following, symlinks=True, ignore=shutil.ignore_patterns("magicbyte"))
    assert start(clone, "1").communicate() == ("hello 1\n", "")  # killed while it builds: nothing has changed
    (clone / "requirements/light.txt").write_text("# changed\n")
    (following / "magicbyte").mkdir(exist_ok=True)
    shutil.copy(clone / "requirements/light.txt", following / "magicbyte")
    venv.rename(old)  # killed between the two renames
    said, complaints = start(clone, "2").communicate()
    assert (said, complaints) == ("hello 2\n", "magicbyte: completing a set-up (light) that was killed\n")
    assert sorted(path.name for path in clone.glob(".venv*")) == [".venv"]
    assert running.communicate("\n")[0] == f"{pip}\n"  # it still finds what it imports late


@pytest.mark.slow
def test_an_installation_that_fails_changes_nothing(clone: Path) -> None:
    assert start(clone).communicate()[0] == "hello\n"
    lock = clone / "requirements/light.txt"
    before = lock.read_bytes()
    lock.write_text("no-such-package-of-magicbyte==1 --hash=sha256:00\n")
    run = start(clone)
    assert "set-up failed" in run.communicate()[1]
    assert run.returncode == 1
    lock.write_bytes(before)
    assert start(clone).communicate() == ("hello\n", "")


def test_a_virtual_environment_of_the_users_own_is_left_alone(clone: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(clone / ".venv")], check=True)
    run = start(clone)
    said, complaints = run.communicate()
    assert (run.returncode, said, len(complaints.splitlines())) == (1, "", 1)
    assert "not of our making" in complaints
    assert not (clone / ".venv/magicbyte").exists()


BROKEN = 'echo "shim: no such version" >&2; exit 127'
WITHOUT_VENV = f'case "$*" in *ensurepip*) exit 1 ;; esac; exec {Path(sys.executable).resolve()} "$@"'


@pytest.mark.parametrize(
    ("python", "wanted"),
    [(None, "python3 python3-venv"), (BROKEN, "python3 python3-venv"), (WITHOUT_VENV, "python3-venv")],
    ids=["no Python", "a broken shim", "no venv module"],
)
def test_what_is_missing_on_a_bare_system_is_said_in_one_line(clone: Path, python: str | None, wanted: str) -> None:
    programs = clone / "bin"
    programs.mkdir()
    for name in ("sh", "cmp", "env"):
        (programs / name).symlink_to(shutil.which(name) or "")
    if python is not None:
        (programs / "python3").write_text(f"#!{shutil.which('sh')}\n{python}\n")
        (programs / "python3").chmod(0o755)
    run = start(clone, path=str(programs))
    said, complaints = run.communicate()
    assert (run.returncode, said, len(complaints.splitlines())) == (1, "", 1)
    assert complaints.endswith(f"sudo apt install {wanted}\n")
