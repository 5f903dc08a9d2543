"""What every test run shares: Hypothesis' settings, and which tests are skipped without Java."""

import functools
import gc
import inspect
import os
import shutil
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import settings

import syntax
from builders import run
from time_left import TimeLeft

# The same examples in every run; `./test --hypothesis-profile=explore` looks for new ones. The first call of a kernel
# compiles, hence no deadline.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("few", derandomize=True, deadline=None, max_examples=40)  # ./test, but not in CI
settings.register_profile("explore", deadline=None)
settings.load_profile("fixed")

# Spark's Java machines run for seconds, each query a few times: their second compiler would take more time than its
# code saves, half of all that such a machine takes.
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{FIRST_COMPILER} -Dspark.executor.defaultJavaOptions={FIRST_COMPILER}")
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", FIRST_COMPILER)

# A script starts its background jobs with SIGINT ignored, and whatever they start inherits that: tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What is collected stays, so nothing is looked for in it: neither meanwhile nor, once it is frozen, in the tests.
gc.disable()

NEEDS = {"spark": ("java",), "interop": ("javac", "mvn")}
PACKAGES = {"java": "default-jre-headless", "javac": "default-jdk-headless", "mvn": "maven"}
NEIGHBOURS = 16
LONGEST_NAME = 200
"""Characters of a parameter that is part of a test's name."""
NOTHING_MAY_BE_SKIPPED = os.environ.get("CI") == "true"


@functools.cache
def runs(program: str) -> bool:
    """Whether `program` is there and works: the `java` of a fresh Mac only says where to buy one."""
    return (
        shutil.which(program) is not None and subprocess.run([program, "-version"], capture_output=True).returncode == 0
    )


def needs(item: pytest.Item) -> tuple[str, ...]:
    return tuple(dict.fromkeys(program for mark in item.iter_markers() for program in NEEDS.get(mark.name, ())))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long text by its length: the processes of a run send each other the name of each test."""
    is_long = isinstance(val, str | bytes) and len(val) > LONGEST_NAME
    return f"{argname} of {len(val)}" if is_long else None


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients wait 50 ms, not 500, for the versions of a broker: one of 0.9 ignores that they are asked for."""
    monkeypatch.setattr("magicbyte.access.client.connection.SILENCE_MS", 50)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function, on an event loop of its own, for two minutes at most."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    run(pyfuncitem.obj(**arguments), 120)
    return True


def parses_sources(item: pytest.Item) -> bool:
    """Whether the test's module has the trees of all files, which a process parses once."""
    module = getattr(item, "module", None)
    return any(getattr(module, function.__name__, None) is function for function in (syntax.sources, syntax.tree_of))


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with Spark share a process, and so its session; those of all sources share one that parses them once;
    those with brokers do by file.

    The others are handed out in small groups of neighbours: the time that xdist takes grows with the square of the
    number of groups, and fixtures of a module are made once for a group.
    """
    of_file: Counter[str] = Counter()
    with_spark, with_sources, others = [], [], []
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        file = item.nodeid.partition("::")[0]
        of_file[file] += 1
        if "interop" in marks:
            group = file
        elif "spark" in marks:
            group = "spark"
        elif parses_sources(item):
            group = "sources"
        else:
            group = f"{file} {of_file[file] // NEIGHBOURS}"
        item.add_marker(pytest.mark.xdist_group(group))
        {"spark": with_spark, "sources": with_sources}.get(group, others).append(item)
    # `./test` keeps this order. The longest groups come first: at the end, the other processes would wait for them.
    items[:] = with_spark + with_sources + others


def pytest_collection_finish() -> None:
    """Collect garbage again, but only among objects that tests make."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)  # behind the terminal's reporter
def pytest_configure(config: pytest.Config) -> None:
    """Show how far a run is, where ./test asks for it and this is not one of its processes."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if "TESTS_TIME_LEFT" in os.environ and reporter is not None and not hasattr(config, "workerinput"):

        def say(line: str) -> None:
            reporter.write(f"\n{line}\n")

        config.pluginmanager.register(TimeLeft(say))


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
