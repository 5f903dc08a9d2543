"""Where a ZooKeeper is found, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from magicbyte.engine.errors import InvalidConfigError
from magicbyte.tools.launch import zookeeper


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


@pytest.mark.parametrize(
    ("jar", "found"),
    [
        ("usr/share/java/zookeeper.jar", "usr/share/java/zookeeper.jar"),
        ("opt/kafka_2.13-3.9.1/libs/zookeeper-3.8.4.jar", "opt/kafka_2.13-3.9.1/libs/*"),
        ("opt/apache-zookeeper-3.8.4-bin/lib/zookeeper-3.8.4.jar", "opt/apache-zookeeper-3.8.4-bin/lib/*"),
        ("opt/homebrew/opt/kafka/libexec/libs/zookeeper-3.8.4.jar", "opt/homebrew/opt/kafka/libexec/libs/*"),
        ("opt/confluent-7.4.0/share/java/kafka/zookeeper-3.6.3.jar", "opt/confluent-7.4.0/share/java/kafka/*"),
    ],
)
def test_packages_and_distributions_are_found(jar: str, found: str, tmp_path: Path) -> None:
    put(tmp_path, jar)
    assert zookeeper.classpath(None, {}, tmp_path) == str(tmp_path / found)


def test_what_is_given_goes_before_the_environment_and_that_before_what_is_installed(tmp_path: Path) -> None:
    put(tmp_path, "usr/share/java/zookeeper.jar", "kafka/libs/zookeeper-3.4.14.jar", "mine/any.jar")
    environment = {zookeeper.CLASSPATH: "/a.jar:/b.jar", "KAFKA_HOME": str(tmp_path / "kafka")}
    assert zookeeper.classpath(str(tmp_path / "mine"), environment, tmp_path) == f"{tmp_path}/mine/*"
    assert zookeeper.classpath(None, environment, tmp_path) == "/a.jar:/b.jar"
    (tmp_path / "usr/share/java/zookeeper.jar").unlink()
    assert zookeeper.classpath(None, {"KAFKA_HOME": environment["KAFKA_HOME"]}, tmp_path) == f"{tmp_path}/kafka/libs/*"


def test_a_kafka_without_zookeeper_is_none(tmp_path: Path) -> None:
    put(tmp_path, "opt/kafka_2.13-4.1.0/libs/kafka-clients-4.1.0.jar")
    with pytest.raises(InvalidConfigError, match=r"apt-get install zookeeper.*--zookeeper-classpath.*--zookeeper HOST"):
        zookeeper.classpath(None, {}, tmp_path)


def test_without_java_it_is_said_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"no program `java`. Install Java \(apt-get install"):
        zookeeper.command(tmp_path, 2181, "/a.jar", {"PATH": str(tmp_path)})
    with pytest.raises(InvalidConfigError, match=r"JAVA_HOME .* has no bin/java"):
        zookeeper.command(tmp_path, 2181, "/a.jar", {"JAVA_HOME": str(tmp_path)})


def test_the_server_listens_on_this_machine_alone(tmp_path: Path) -> None:
    java = tmp_path / "bin/java"
    put(tmp_path, "bin/java")
    java.chmod(0o755)
    command = zookeeper.command(tmp_path / "zk", 2181, "/a.jar", {"JAVA_HOME": str(tmp_path)})
    assert command[0] == str(java)
    settings = dict(line.split("=") for line in Path(command[-1]).read_text().splitlines())
    assert (settings["clientPort"], settings["clientPortAddress"]) == ("2181", "127.0.0.1")
    assert settings["dataDir"] == str(tmp_path / "zk/data")
