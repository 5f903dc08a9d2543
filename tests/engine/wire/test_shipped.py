"""Machine code that comes with the package: made for other processors, loaded by ctypes, equal to Numba's."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from magicbyte.engine.compiled import image, kernel, shipped
from magicbyte.engine.records.kernels.batches import skip_headers

ROOT = Path(__file__).parents[3]
OUTCOMES = Path(__file__).with_name("golden_outcomes.py")
pytestmark = pytest.mark.skipif(not image.supported(), reason="images are for Linux")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of the package's own."""
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "images")
    monkeypatch.setattr(shipped, "library", shipped.library.__wrapped__)
    return tmp_path / "images"


def test_a_clone_has_no_code_of_its_own() -> None:
    assert shipped.library() is None
    assert shipped.load("magicbyte.engine.records.kernels.batches", "skip_headers") is None


@pytest.mark.parametrize("level", shipped.LEVELS, ids=lambda level: level.name)
def test_a_processor_gets_the_fastest_level_that_it_can_run(
    level: shipped.Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: level.machine)
    monkeypatch.setattr(shipped, "processor_flags", lambda: level.needs)
    assert shipped.levels_here()[0] == level
    for each in level.needs:
        monkeypatch.setattr(shipped, "processor_flags", lambda each=each: level.needs - {each})
        assert level not in shipped.levels_here()


@pytest.mark.parametrize("content", [b"", b"\x7fELF and then something else"])
def test_a_file_that_is_no_code_is_left_alone(content: bytes, folder: Path) -> None:
    folder.mkdir()
    for level in shipped.LEVELS:
        (folder / shipped.file_name(level)).write_bytes(content)
    assert shipped.library() is None


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are given to the loader, which finds code in all of them."""
    paths: list[str] = []
    monkeypatch.setattr(shipped, "levels_here", lambda: [shipped.LEVELS[0]])
    monkeypatch.setattr(shipped.ctypes, "CDLL", lambda path: paths.append(path) or "code")
    return paths


def test_code_of_other_sources_is_not_loaded(folder: Path, opened: list[str]) -> None:
    folder.mkdir()
    name = shipped.file_name(shipped.LEVELS[0])
    (folder / f"{shipped.LEVELS[0].name}.0123456789abcdef.so").write_bytes(shipped.with_checksum(b"of another release"))
    assert shipped.library() is None
    (folder / name).write_bytes(shipped.with_checksum(b"of this one"))
    assert shipped.library() == "code"
    assert opened == [str(folder / name)]


def test_a_damaged_file_does_not_get_to_the_loader(folder: Path, opened: list[str]) -> None:
    """The system ends a process that maps a shared object which is cut short."""
    folder.mkdir()
    path, whole = folder / shipped.file_name(shipped.LEVELS[0]), shipped.with_checksum(bytes(range(64)))
    for content in (*(whole[:size] for size in range(len(whole))), b"\xff" + whole[1:], whole + b"\0"):
        path.write_bytes(content)
        assert shipped.library() is None
    assert opened == []
    path.write_bytes(whole)
    assert shipped.library() == "code"


def test_other_pythons_than_cpython_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    assert image.supported.__wrapped__()
    monkeypatch.setattr(sys.implementation, "name", "pypy")
    assert not image.supported.__wrapped__()


def test_code_that_came_with_the_package_is_taken_from_a_mebibyte_on_and_nothing_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MAGICBYTE_KERNELS", raising=False)
    monkeypatch.setattr(kernel, "_loaded", False)
    monkeypatch.setattr(shipped, "library", lambda: "code")
    monkeypatch.setattr(kernel, "advise", lambda extra, what: pytest.fail(f"advises {extra} for {what}"))
    assert kernel.available()
    assert kernel.is_warm()
    assert not kernel.worth_compiling(kernel.WORTH_MAPPING - 1)
    assert kernel.worth_compiling(kernel.WORTH_MAPPING)
    assert kernel.worth_compiling(kernel.WORTH_INSTALLING)
    kernel.expect(kernel.WORTH_MAPPING)
    assert kernel.worth_compiling(kernel.WORTH_CALLING)


@pytest.mark.parametrize("has_numba", [True, False])
def test_code_that_came_with_the_package_is_left_out_where_indexes_are_to_be_checked(
    has_numba: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    monkeypatch.setattr(shipped, "library", lambda: "code")
    monkeypatch.setattr(kernel, "present", lambda extra: has_numba)
    monkeypatch.setattr(shipped, "load", lambda *_: pytest.fail("loads what does not check"))
    assert kernel.available() is has_numba
    assert kernel._shipped(skip_headers) is None
    if not has_numba:
        assert kernel.warm() == 0


def outcomes(package: Path, **environment: str) -> dict[str, object]:
    """What a process makes of the golden logs with the kernels that `package` gives it."""
    path = os.pathsep.join([str(package), *(each for each in sys.path if each and Path(each) != ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-P", OUTCOMES],
        env=os.environ | {"PYTHONPATH": path, "MAGICBYTE_KERNELS": "compiled"} | environment,
        capture_output=True,
        check=True,
    )
    result: dict[str, object] = json.loads(done.stdout)
    return result


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.skipif(shutil.which("ld.lld") is None, reason="needs ld.lld, which tools/images.py links with")
def test_the_packages_code_makes_of_golden_logs_what_numba_and_the_plain_twins_make(tmp_path: Path) -> None:
    """All levels that this processor runs. tools/check_wheel.sh does the same in CI with the code of the wheel."""
    shutil.copytree(ROOT / "src/magicbyte", tmp_path / "magicbyte", ignore=shutil.ignore_patterns("__pycache__"))
    levels = [level.name for level in shipped.levels_here()]
    tool = [sys.executable, "-P", ROOT / "tools/images.py", tmp_path / "made"]
    subprocess.run([*tool, *levels], check=True)
    by_numba, plain = outcomes(ROOT / "src"), outcomes(ROOT / "src", MAGICBYTE_KERNELS="plain")
    assert by_numba["outcomes"] == plain["outcomes"]
    assert by_numba["numba"] or by_numba["library"] == "None"
    images = tmp_path / "magicbyte/engine/compiled/images"
    for level in levels:
        images.mkdir()
        (made,) = (tmp_path / "made").glob(f"{level}.*")
        # The fastest level is asked for: under its name, each other one is tried as well.
        shutil.copyfile(made, images / made.name.replace(level, levels[0], 1))
        here = outcomes(tmp_path)
        assert str(images) in str(here["library"])
        assert not here["numba"]
        assert here["outcomes"] == by_numba["outcomes"]
        assert here["kernels"] == by_numba["kernels"]
        shutil.rmtree(images)
