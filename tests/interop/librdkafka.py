"""The programs that librdkafka tests itself with, built from its own source.

The source is in the package node-rdkafka, and that of the JSON reader they are compiled with in python-rapidjson.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from interop import client_programs, jvm, kafka_oracle

LIBRARY, LIBRARY_SHA256 = "node-rdkafka-3.6.1.tgz", "148f7e7b65c510314c70762d8f1be052c8fe1fdf03a128e6c78083a729a57a30"
READER, READER_SHA256 = (
    "python_rapidjson-1.25.tar.gz",
    "97c1de449552ec28ac5ae89350c2b53e4c5d21a9b4308d7a1630b1099e5db9fc",
)
PROGRAMS = ("gcc", "g++", "make", "npm", "bash")
OPTIONS = ("gssapi", "sasl", "ssl", "zstd", "curl", "lz4-ext", "regex-ext", "syslog", "optimization")
SCRIPTS = {
    "kafka-run-class.sh": """#!/bin/sh
exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$CLASSPATH:{libs}/*" "$@"
""",
    "kafka-topics.sh": """#!/bin/sh
exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "{libs}/*" org.apache.kafka.tools.TopicCommand "$@"
""",
    "kafka-acls.sh": """#!/bin/sh
exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "{libs}/*" kafka.admin.AclCommand "$@"
""",
}


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
    (target / "kafka/bin").mkdir(parents=True)
    for name, text in SCRIPTS.items():
        script = target / "kafka/bin" / name
        script.write_text(text.format(libs=libs))
        script.chmod(0o755)
    (target / "kafka/libs").symlink_to(libs)  # its tests compile their Java program with them


def runner() -> Path:
    """Return the folder with the test runner, which is built when it is first needed, or skip."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacking:
        pytest.skip(f"needs {', '.join(lacking)}: apt-get install build-essential npm")
    return client_programs.built("c", "librdkafka-tests", [Path(__file__)], build)
