"""kafka-python's own integration tests of SASL and TLS, unchanged, with our broker in place of Kafka.

They are in its source archive, without the module that starts processes and without the templates of settings; these
are here. ZooKeeper and the tools that the tests call are those of Kafka 2.8.2.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from interop import client_programs, kafka_oracle
from interop.processes import DIES_WITH_US

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

NAME = "kafka_python-3.0.12"
SHA256 = "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65"
RELEASE = "2.8.2"
SERVICE = Path(__file__).with_name("kafka_python_service.py")
PROGRAMS = ("openssl", "setpriv")
SECONDS = 400
SCRIPTS = {
    "kafka-run-class.sh": """
        if [ "$1" = kafka.Kafka ]; then
            sed -i 's/^listener.name[^=]*/\\L&/' "$2"
            exec {ours} --config "$2"
        fi
        exec {java} "$@"
    """,
    "kafka-configs.sh": 'exec {java} kafka.admin.ConfigCommand "$@"',
    "kafka-topics.sh": 'exec {java} kafka.admin.TopicCommand "$@"',
    "zookeeper-shell.sh": 'exec {java} org.apache.zookeeper.ZooKeeperMain -server "$@"',
}
TEMPLATES = {
    "kafka.properties": """
        broker.id={broker_id}
        listeners={transport}://{host}:{port}
        security.inter.broker.protocol={transport}
        listener.name.{transport}.{sasl_mechanism}.sasl.jaas.config={jaas_config}
        {sasl_config}
        {ssl_config}
        {acl_config}
        log.dirs={tmp_dir}/data
        zookeeper.connect={zk_host}:{zk_port}/{zk_chroot}
        num.partitions={partitions}
        offsets.topic.num.partitions=2
        offsets.topic.replication.factor=1
        group.initial.rebalance.delay.ms=0
        group.min.session.timeout.ms=1000
    """,
    "kafka_server_jaas.conf": "KafkaServer {{ {jaas_config} }};",
    "zookeeper.properties": """
        dataDir={tmp_dir}
        clientPort={port}
        clientPortAddress={host}
        admin.enableServer=false
    """,
}


@pytest.fixture(scope="module")
def source() -> Path:
    """Give the folder with its source."""
    lacking = [program for program in (*PROGRAMS, kafka_oracle.jdk_program("keytool")) if shutil.which(program) is None]
    if lacking:
        pytest.skip(f"needs {', '.join(lacking)}: apt-get install openssl util-linux openjdk-17-jdk-headless")

    def build(_: list[Path], target: Path) -> None:
        wanted = NAME.replace("_", "-").replace("-python-", "-python==")
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", wanted]
        client_programs.run(pip, target)
        client_programs.unpack(target, f"{NAME}.tar.gz", SHA256)
        (target / NAME / "test/__init__.py").touch()  # or `test` is the package of the standard library
        shutil.copy(SERVICE, target / NAME / "test/service.py")

    return client_programs.built("python", "kafka-python-tests", [Path(__file__), SERVICE], build) / NAME


def write_kafka(folder: Path) -> dict[str, str]:
    """Write what its fixtures take for Kafka; return the variables that say where it is."""
    told = {
        "java": shlex.join(kafka_oracle.java_command(RELEASE, "128m", Path("/dev/stderr"))),
        "ours": shlex.join([sys.executable, "-m", "magicbyte", "serve"]),
    }
    programs, resources = folder / "kafka/bin", folder / f"servers/{RELEASE}/resources"
    programs.mkdir(parents=True)
    resources.mkdir(parents=True)
    for name, text in SCRIPTS.items():
        script = programs / name
        script.write_text(f"#!/bin/sh\n{textwrap.dedent(text).format(**told)}\n")
        script.chmod(0o755)
    for name, text in TEMPLATES.items():
        (resources / name).write_text(textwrap.dedent(text))
    return {"KAFKA_VERSION": RELEASE, "KAFKA_ROOT": str(folder / "kafka"), "PROJECT_ROOT": str(folder)}


@pytest.mark.parametrize(
    ("name", "which", "count"),
    [
        pytest.param("sasl", "PLAIN", 3, marks=pytest.mark.campaign),
        pytest.param("sasl", "SCRAM-SHA-256", 3, marks=pytest.mark.campaign),
        ("sasl", "SCRAM-SHA-512", 3),
        ("ssl", "", 2),
    ],
)
def test_its_tests_of_secured_listeners_pass(source: Path, name: str, which: str, count: int, tmp_path: Path) -> None:
    variables = {**write_kafka(tmp_path), "TMPDIR": str(tmp_path)}
    pytests = ["-m", "pytest", "-v", "-p", "no:cacheprovider", "-o", "addopts=", "-k", which]
    done = subprocess.run(
        [*DIES_WITH_US, sys.executable, *pytests, f"test/integration/test_{name}_integration.py"],
        cwd=source, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    assert done.stdout.count(" PASSED ") == count, done.stdout[-5000:]
    assert " SKIPPED " not in done.stdout
