"""ZooKeeper on this machine: its jars, and the command that runs a server.

Searched in this order: a given class path, Debian's package, distributions of ZooKeeper and of Kafka (up to 3.9: later
ones have no ZooKeeper).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from magicbyte.engine.errors import InvalidConfigError

CLASSPATH: Final = "MAGICBYTE_ZOOKEEPER_CLASSPATH"
"""The environment variable with the class path."""

_MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_DEBIAN: Final = Path("/usr/share/java/zookeeper.jar")  # its manifest lists the other jars
_HOMES: Final = ("ZOOKEEPER_HOME", "KAFKA_HOME")
_PLACES: Final = ("/opt", "/usr/local", "/usr/local/opt", "/opt/homebrew/opt", "/srv")
_NAMES: Final = ("*zookeeper*", "*kafka*", "confluent*")
_FOLDERS: Final = ("lib", "libs", "libexec/lib", "libexec/libs", "share/java/kafka")
_HEAP: Final = "-Xmx256m"


def classpath(given: str | None, environment: Mapping[str, str], root: Path = Path("/")) -> str:
    """Return the class path of a ZooKeeper. Raises InvalidConfigError with installation advice.

    `given` is a class path, or a folder with jars. `root` is prefixed to system folders.
    """
    given = given or environment.get(CLASSPATH)
    if given:
        return f"{given}/*" if Path(given).is_dir() else given
    if (debian := root / _DEBIAN.relative_to("/")).exists():
        return str(debian)
    for folder in _folders(environment, root):
        if any(folder.glob("zookeeper-[0-9]*.jar")):
            return f"{folder}/*"
    raise InvalidConfigError(
        "cannot start ZooKeeper: found none of its jars. Install it (apt-get install zookeeper, or unpack a Kafka of "
        "3.9 or before, or ZooKeeper itself, in /opt), or say where the jars are "
        f"(--zookeeper-classpath, {CLASSPATH}), or where one runs (--zookeeper HOST:PORT)"
    )


def _folders(environment: Mapping[str, str], root: Path) -> Iterator[Path]:
    homes = [Path(environment[name]) for name in _HOMES if environment.get(name)]
    homes += [
        home
        for place in _PLACES
        for name in _NAMES
        for home in sorted((root / place.removeprefix("/")).glob(name), reverse=True)
    ]
    for home in homes:
        for folder in _FOLDERS:
            yield home / folder


def java(environment: Mapping[str, str]) -> str:
    """Return the Java executable. Raises InvalidConfigError."""
    home = environment.get("JAVA_HOME")
    program = shutil.which(str(Path(home, "bin", "java")) if home else "java", path=environment.get("PATH"))
    if program is None:
        where = f"JAVA_HOME ({home}) has no bin/java" if home else "there is no program `java`"
        raise InvalidConfigError(
            f"cannot start ZooKeeper: {where}. Install Java (apt-get install default-jre-headless), or say where a "
            "ZooKeeper runs (--zookeeper HOST:PORT)"
        )
    return program


def command(directory: Path, port: int, jars: str, environment: Mapping[str, str]) -> list[str]:
    """Return the command of a server that listens on the loopback address, and write its configuration."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "dataDir": directory / "data",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "tickTime": 2000,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "autopurge.purgeInterval": 24,
    }
    configuration = directory / "zookeeper.properties"
    configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    options = [_HEAP, "-Djava.awt.headless=true", "-Dzookeeper.jmx.log4j.disable=true", f"-Duser.home={directory}"]
    return [java(environment), *options, "-cp", jars, _MAIN_CLASS, os.fspath(configuration)]
