"""What every test run shares: Hypothesis' settings, and who may be skipped for want of Java."""

import functools
import os
import shutil
import subprocess
from collections.abc import Generator

import pytest
from hypothesis import settings

# The same examples in every run; `./test --hypothesis-profile=explore` looks for new ones. The first call of a kernel
# compiles, hence no deadline.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("fixed")

NEEDS = {"spark": ("java",), "interop": ("javac", "mvn")}
PACKAGES = {"java": "default-jre-headless", "javac": "default-jdk-headless", "mvn": "maven"}
NOTHING_MAY_BE_SKIPPED = os.environ.get("CI") == "true"


@functools.cache
def runs(program: str) -> bool:
    """Whether `program` is there and works: the `java` of a fresh Mac only says where to buy one."""
    return (
        shutil.which(program) is not None and subprocess.run([program, "-version"], capture_output=True).returncode == 0
    )


def needs(item: pytest.Item) -> tuple[str, ...]:
    return tuple(dict.fromkeys(program for mark in item.iter_markers() for program in NEEDS.get(mark.name, ())))


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with Spark share a process, and so its session; those with brokers do by file."""
    for item in items:
        if item.get_closest_marker("interop"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        elif item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    missing = [PACKAGES[program] for program in needs(item) if not runs(program)]
    if missing:
        pytest.skip(f"needs Java; on Debian or Ubuntu: sudo apt install {' '.join(missing)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where everything is installed, a test with real brokers or Spark that is skipped has failed."""
    report = yield
    if report.skipped and NOTHING_MAY_BE_SKIPPED and needs(item):
        report.outcome = "failed"
        report.longrepr = f"skipped, where nothing may be: {call.excinfo.value if call.excinfo else ''}"
    return report
