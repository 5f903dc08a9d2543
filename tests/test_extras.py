"""Packages that an extra brings: what is said, or done, where one is missing."""

import asyncio
import importlib.util
import subprocess
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.command import run
from magicbyte.engine import extras
from magicbyte.engine.compiled import kernel, shipped
from magicbyte.engine.errors import MissingExtraError
from magicbyte.server.serving.threads import SystemThreads


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Packages that cannot be found, to be added to."""
    found, absent = importlib.util.find_spec, set[str]()
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None if name in absent else found(name))
    monkeypatch.setattr(extras, "sys", type("Loaded", (), {"modules": {}}))
    yield absent
    extras.install_by(None)
    extras.advise_by(None)


@pytest.mark.parametrize(("extra", "package"), extras.EXTRAS.items())
def test_a_missing_package_is_one_line_that_names_its_extra(extra: str, package: str, missing: set[str]) -> None:
    missing.add(package)
    with pytest.raises(MissingExtraError) as caught:
        extras.require(extra, "this")
    assert str(caught.value) == f"this needs {package}: pip install 'magicbyte[{extra}]'"


def test_a_missing_package_is_installed_once_where_that_can_be_done(missing: set[str]) -> None:
    asked: list[str] = []
    missing.update(("numba", "pyarrow"))

    def install(extra: str) -> None:
        asked.append(extra)
        missing.discard("pyarrow")

    extras.install_by(install)
    extras.require("arrow", "Arrow")
    assert not extras.obtain("fast")
    assert not extras.obtain("fast")
    assert asked == ["arrow", "fast"]


def test_without_numba_the_plain_twins_serve(missing: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_loaded", False)
    monkeypatch.delenv("MAGICBYTE_KERNELS", raising=False)
    missing.add("numba")
    kernel.expect(1 << 40)
    assert not kernel.worth_compiling(1 << 40)
    assert (kernel.is_warm(), kernel.warm()) == (True, 0)


def test_the_size_of_data_installs_nothing_and_advises_once(missing: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    advice: list[tuple[str, str]] = []
    monkeypatch.setattr(kernel, "_loaded", False)
    missing.add("numba")
    extras.install_by(lambda extra: pytest.fail(f"installs {extra}"))
    extras.advise_by(lambda extra, what: advice.append((extra, what)))
    kernel.expect(kernel.WORTH_INSTALLING - 1)
    assert advice == []
    kernel.expect(kernel.WORTH_INSTALLING)
    kernel.expect(kernel.WORTH_INSTALLING)
    assert advice == [("fast", "256 MiB of records")]


@pytest.mark.parametrize(
    ("clone", "command"), [("/some/clone", "./magicbyte warm"), ("", "pip install 'magicbyte[fast]'")]
)
def test_a_broker_without_numba_says_how_to_install_it_once_it_has_a_mebibyte_of_records(
    clone: str, command: str, missing: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_until_complete = asyncio.run

    def warmed(broker: Coroutine[Any, Any, None]) -> None:
        broker.close()
        run_until_complete(SystemThreads("writing", 1).warm_kernels())

    monkeypatch.setenv("MAGICBYTE_CLONE", clone)
    monkeypatch.delenv("MAGICBYTE_KERNELS", raising=False)
    monkeypatch.setattr(asyncio, "run", warmed)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: pytest.fail(f"runs {command}"))
    monkeypatch.setattr(shipped, "library", lambda: None)
    missing.add("numba")
    result = run("serve", "--dir", tmp_path)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [f"large batches: slower without numba; `{command}` installs it"]


def test_a_broker_starts_without_a_look_at_the_code_of_a_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That would import NumPy, and compute a digest of all sources."""
    monkeypatch.setattr(asyncio, "run", lambda broker: broker.close())
    monkeypatch.setattr(shipped, "library", lambda: pytest.fail("looks"))
    result = run("serve", "--dir", tmp_path)
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_command_says_in_a_line_which_extra_it_needs(missing: set[str], tmp_path: Path) -> None:
    assert run("tour", "--unpack", tmp_path / "tour").exit_code == 0
    missing.add("pyarrow")
    result = run(
        "cat", tmp_path / "tour/logs/kafka-4.3.1/basic-zstd-0", "--format", "parquet", "-o", tmp_path / "records"
    )
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "magicbyte: an Arrow or Parquet output needs pyarrow: pip install 'magicbyte[arrow]'\n"
