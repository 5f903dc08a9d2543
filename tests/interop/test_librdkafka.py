"""librdkafka's own tests of transactions, unchanged, with three brokers of ours.

Their source is in the package node-rdkafka, and that of the JSON reader they are compiled with in python-rapidjson.
0105 is not among them: it speaks to no broker but the mock in the library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interop import client_programs, jvm, kafka_oracle
from interop.bounced import running
from interop.processes import DIES_WITH_US

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

LIBRARY, LIBRARY_SHA256 = "node-rdkafka-3.6.1.tgz", "148f7e7b65c510314c70762d8f1be052c8fe1fdf03a128e6c78083a729a57a30"
READER, READER_SHA256 = (
    "python_rapidjson-1.25.tar.gz",
    "97c1de449552ec28ac5ae89350c2b53e4c5d21a9b4308d7a1630b1099e5db9fc",
)
PROGRAMS = ("gcc", "g++", "make", "npm", "bash")
OPTIONS = ("gssapi", "sasl", "ssl", "zstd", "curl", "lz4-ext", "regex-ext", "syslog", "optimization")
RUN_CLASS = """#!/bin/sh
exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$CLASSPATH:{libs}/*" "$@"
"""
SECONDS = 500


def build(_: list[Path], target: Path) -> None:
    """Fill a folder with the test runner, and with what it takes for Kafka's home."""
    client_programs.run(["npm", "pack", "node-rdkafka@3.6.1"], target)
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "python-rapidjson==1.25"]
    client_programs.run(pip, target)
    client_programs.unpack(target, LIBRARY, LIBRARY_SHA256)
    client_programs.unpack(target, READER, READER_SHA256)
    source = target / "package/deps/librdkafka"
    shutil.copytree(target / "python_rapidjson-1.25/rapidjson/include/rapidjson", source / "src/rapidjson")
    flags = f"--CPPFLAGS=-I{source / 'src'}"  # for the JSON reader
    client_programs.run(["./configure", flags, *(f"--disable-{each}" for each in OPTIONS)], source)
    assert "WITH_RAPIDJSON 1" in (source / "config.h").read_text()
    client_programs.run(["make", "-j2", "libs"], source)
    client_programs.run(["make", "-j2", "-C", "tests", "build"], source)
    libs = kafka_oracle.fetch(jvm.ALL_FORMATS)
    script = target / "kafka/bin/kafka-run-class.sh"
    script.parent.mkdir(parents=True)
    script.write_text(RUN_CLASS.format(libs=libs))
    script.chmod(0o755)
    (target / "kafka/libs").symlink_to(libs)  # its tests compile their Java program with them


@pytest.fixture(scope="module")
def runner() -> Path:
    """Give the folder with the test runner."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacking:
        pytest.skip(f"needs {', '.join(lacking)}: apt-get install build-essential npm")
    return client_programs.built("c", "librdkafka-tests", [Path(__file__)], build)


@pytest.mark.parametrize("number", [pytest.param("0098", marks=pytest.mark.campaign), "0103"])
def test_a_test_of_librdkafka_passes(runner: Path, number: str, tmp_path: Path) -> None:
    with running("three", tmp_path) as brokers:
        settings = tmp_path / "test.conf"
        settings.write_text(f"metadata.broker.list={brokers.bootstrap}\ntest.timeout.multiplier=3\n")
        tests = runner / "package/deps/librdkafka/tests"
        environment = {
            **os.environ,
            "RDKAFKA_TEST_CONF": str(settings),
            "TEST_KAFKA_VERSION": "2.8.0",
            "TESTS": number,
            "KAFKA_PATH": str(runner / "kafka"),
            "LD_LIBRARY_PATH": f"{tests}/../src:{tests}/../src-cpp",
        }
        done = subprocess.run(
            [*DIES_WITH_US, "./test-runner", "-p1"], cwd=tests, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-5000:]
        summary = done.stdout.partition("SUMMARY")[2]
        assert "PASSED" in summary, summary
        assert "SKIPPED" not in summary, summary
