#!/usr/bin/env python3
"""Run real Apache Kafka (0.8.2 up to 4.x) on the loopback interface, as a test oracle.

Sub-commands
    fetch VERSION             resolve that version's jars with Maven into the cache
    start VERSION --dir DIR   start ZooKeeper (or KRaft) and one broker in the background
    stop DIR [--kill]         stop what `start --dir DIR` started (SIGTERM, or SIGKILL of the broker)
    stop DIR --scratch        the same, as fast as possible: DIR is not used afterwards
    tool VERSION CLASS ...    run a Kafka main class (DumpLogSegments, TopicCommand, ...)
    java VERSION FILE ...     compile and run one Java source file against that version's jars
    classpath VERSION         print that version's class path

Needs only Python 3.11, a JDK 17 and Maven. The cache is $KAFKA_ORACLE_HOME (default
~/.cache/kafka-oracle); $KAFKA_ORACLE_JAVA_HOME picks a JDK. Everything listens on 127.0.0.1.
`start` on a DIR that already holds data restarts that broker with that data.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

LOOPBACK = "127.0.0.1"
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
CLUSTER_ID = "b3JhY2xlLW9yYWNsZS1vcg"  # any 16 bytes in URL-safe base64; KRaft only

# The old Scala and Kafka code reaches into JDK internals that Java 17 keeps closed.
OPENED_PACKAGES = (
    "java.lang",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "sun.nio.ch",
    "jdk.internal.ref",
    "jdk.internal.misc",
)

BROKER_DEFAULTS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "1",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.enable": "true",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
CLASSES = "classes.jsa"
POLL_SECONDS = 0.05
FORMATTED = ("meta.properties", "bootstrap.checkpoint")  # what formatting leaves in the log directory of a KRaft node
METADATA_SNAPSHOT = Path("__cluster_metadata-0", "00000000000000000000-0000000000.checkpoint")  # the same since 4.4
CHANGE_FORMAT = {"log.dirs", "metadata.log.dir", "inter.broker.protocol.version", "unstable.feature.versions.enable"}
ZOOKEEPER_SESSION_SECONDS = 30  # Kafka's own default differs between versions; a machine may pause

LOG4J1_CONFIG = """\
log4j.rootLogger=${oracle.level}, FILE
log4j.appender.FILE=org.apache.log4j.FileAppender
log4j.appender.FILE.File=${oracle.log}
log4j.appender.FILE.layout=org.apache.log4j.PatternLayout
log4j.appender.FILE.layout.ConversionPattern=[%d] %p %m (%c)%n
"""

LOG4J2_CONFIG = """\
<Configuration status="ERROR"><Appenders>
<File name="FILE" fileName="${sys:oracle.log}"><PatternLayout pattern="[%d] %p %m (%c)%n"/></File>
</Appenders><Loggers><Root level="${sys:oracle.level}"><AppenderRef ref="FILE"/></Root></Loggers></Configuration>
"""


def version_key(version):
    """Return '0.10.2.2' as (0, 10, 2, 2), which compares in release order."""
    return tuple(int(part) for part in version.split("."))


def uses_kraft(version):
    """Kafka 4 has no ZooKeeper mode any more."""
    return version_key(version) >= (4,)


def cache_home():
    """Return the folder that holds one sub-folder per Kafka version."""
    return Path(os.environ.get("KAFKA_ORACLE_HOME", "~/.cache/kafka-oracle")).expanduser()


def jdk_program(name):
    """Return the path of `java` or `javac` from the chosen JDK, or the bare name to look up in PATH."""
    home = os.environ.get("KAFKA_ORACLE_JAVA_HOME") or os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", name)) if home else name


# --- fetch -------------------------------------------------------------------------------------


def maven_coordinates(version):
    """Return the (group, artifact, version) triples that make a complete broker of this version."""
    key = version_key(version)
    scala = "2.11" if key < (2,) else "2.12" if key < (2, 4) else "2.13"
    wanted = [("org.apache.kafka", f"kafka_{scala}", version)]
    if key >= (2, 0):
        wanted.append(("org.apache.kafka", "kafka-tools", version))
    if key >= (4,):
        wanted.append(("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"))
        wanted.append(("org.apache.logging.log4j", "log4j-core", "2.24.3"))
    else:
        wanted.append(("ch.qos.reload4j", "reload4j", "1.2.25"))
        wanted.append(("org.slf4j", "slf4j-reload4j", "1.7.36"))
        wanted.append(("org.slf4j", "slf4j-api", "1.7.36"))
    if (2,) <= key < (2, 4):  # on Java 14 and later, 3.4.13 and 3.4.14 read addresses wrong
        wanted.append(("org.apache.zookeeper", "zookeeper", "3.4.10"))
    if (0, 10, 1) <= key < (1,):
        wanted.append(("javax.xml.bind", "jaxb-api", "2.3.1"))  # gone from the JDK since 11
    return wanted


def write_pom(path, coordinates):
    """Write a pom with these dependencies, of which the older log bindings are left out."""
    excluded = [
        ("log4j", "log4j"),
        ("org.slf4j", "slf4j-log4j12"),
        ("org.slf4j", "slf4j-simple"),
        ("ch.qos.logback", "logback-classic"),
    ]
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
        for group, artifact in excluded
    )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{number}</version>"
        + "".join(f"<classifier>{name}</classifier>" for name in classifier)
        + f"<exclusions>{exclusions}</exclusions></dependency>\n"
        for group, artifact, number, *classifier in coordinates
    )
    path.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>oracle</groupId>"
        "<artifactId>jars</artifactId><version>1</version>\n"
        f"<dependencies>\n{dependencies}</dependencies></project>\n"
    )


def fetch(version):
    """Make sure that the version's jars are in the cache, and return their folder."""
    return resolve(version, "libs", maven_coordinates(version))


def resolve(version, name, coordinates):
    """Make sure that jars for a version are in the cache with all that they need, and return their folder.

    A coordinate is a group, an artifact, a version, and a classifier where it has one.
    """
    home = cache_home() / version
    libs = home / name
    if libs.is_dir():
        return libs
    home.mkdir(parents=True, exist_ok=True)
    build = home / f"build-{name}-{os.getpid()}"
    build.mkdir()
    write_pom(build / "pom.xml", coordinates)
    command = ["mvn", "-q", "-B", DEPENDENCY_PLUGIN, "-DoutputDirectory=jars", "-DincludeScope=runtime"]
    done = subprocess.run(command, cwd=build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    jars = build / "jars"
    if done.returncode != 0 or not any(jars.glob("kafka*.jar")):
        sys.exit(f"Maven could not resolve {name} of Kafka {version}:\n{done.stdout[-3000:]}")
    try:
        jars.rename(libs)
    except OSError:
        if not libs.is_dir():  # not simply another fetch that was faster
            raise
    shutil.rmtree(build)
    return libs


# --- running Java ------------------------------------------------------------------------------


def write_whole(path, text):
    """Write a file that another process may read at any time."""
    if not path.exists() or path.read_text() != text:
        new = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
        new.write_text(text)
        new.replace(path)


def logging_flags(version, log_file, level):
    """Return the JVM flags that send the version's log output to log_file."""
    home = cache_home() / version
    if version_key(version) >= (4,):
        config = home / "log4j2.xml"
        write_whole(config, LOG4J2_CONFIG)
        flags = [f"-Dlog4j2.configurationFile={config}"]
    else:
        config = home / "log4j.properties"
        write_whole(config, LOG4J1_CONFIG)
        flags = [f"-Dlog4j.configuration=file:{config}"]
    return [*flags, f"-Doracle.log={log_file}", f"-Doracle.level={level}"]


def class_archive(version):
    """Return the path of the version's loaded classes, which spare a JVM half of its start.

    The first broker of the version that is stopped leaves them there. A JVM that cannot use the file goes on without.
    """
    return cache_home() / version / CLASSES


def keep_classes(version, made):
    """Put an archive of classes that a JVM has written in its place, if there is one."""
    kept = class_archive(version)
    if made.exists() and not kept.exists():
        scratch = kept.with_suffix(f".{os.getpid()}")
        shutil.move(made, scratch)
        scratch.rename(kept)


def java_command(version, heap, log_file, level="INFO", extra_classpath=()):
    """Return the start of a java command line with that version's class path."""
    libs = fetch(version)
    classpath = os.pathsep.join([f"{libs}/*", *map(str, extra_classpath)])  # as in the archive, and then the others
    archive = class_archive(version)
    command = [
        jdk_program("java"),
        *([f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []),
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
        "-Dzookeeper.sasl.client=false",
        "-Dzookeeper.admin.enableServer=false",
        "-Dzookeeper.jmx.log4j.disable=true",
    ]
    for package in OPENED_PACKAGES:
        command += ["--add-opens", f"java.base/{package}=ALL-UNNAMED"]
        command += ["--add-exports", f"java.base/{package}=ALL-UNNAMED"]
    return command + logging_flags(version, log_file, level) + ["-cp", classpath]


def spawn(command, output_file):
    """Start a background process in its own session and return its pid."""
    with open(output_file, "ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    # The kernel shows an empty command line for a moment after exec; is_alive() must not see that moment.
    while process.poll() is None and not Path(f"/proc/{process.pid}/cmdline").read_bytes():
        time.sleep(0.01)
    return process.pid


def tool_command(version, main_class, arguments, extra_classpath=()):
    """Return the command line that runs one main class in the foreground."""
    log_file = cache_home() / version / "tool.log"
    return [*java_command(version, "512m", log_file, "WARN", extra_classpath), main_class, *arguments]


def compile_source(version, source):
    """Compile one Java file against the version's jars (cached by content); return the class folder."""
    libs = fetch(version)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    classes = cache_home() / version / "classes" / f"{source.stem}-{digest}"
    if not classes.is_dir():
        scratch = classes.with_name(f"{classes.name}.{os.getpid()}")
        scratch.mkdir(parents=True)
        subprocess.run(
            [jdk_program("javac"), "-nowarn", "-proc:none", "-cp", f"{libs}/*", "-d", scratch, source], check=True
        )
        try:
            scratch.rename(classes)
        except OSError:
            shutil.rmtree(scratch)
    return classes


# --- start -------------------------------------------------------------------------------------


def is_alive(pid, marker):
    """Say whether pid is still the running process whose command line mentions marker."""
    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        state, threads = state_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return False
    if not command_line:  # it ends, and holds its files and locks until its last thread is gone
        return state != "Z" or threads > 1
    return str(marker) in command_line


def state_of(pid):
    """Return the state of a process, a letter, and how many threads it has."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return fields[0], int(fields[17])


def port_is_open(port):
    """Say whether something accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def ask_zookeeper(address, word):
    """Return what a ZooKeeper answers to one of its four letter words; nothing if it does not answer."""
    host, _, port = address.partition("/")[0].rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(word)
            return connection.makefile("rb").read()
    except OSError:
        return b""


def zookeeper_answers(address):
    """Say whether a ZooKeeper serves requests; it accepts connections before it does."""
    return b"Mode: " in ask_zookeeper(address, b"srvr")


def is_forgotten(address, broker_id):
    """Say whether the session of a broker that was killed has ended."""
    sessions = ask_zookeeper(address, b"dump")
    path = f"/{address.partition('/')[2]}/brokers/ids/{broker_id}".replace("//", "/")
    return b"Sessions with Ephemerals" in sessions and path.encode() not in sessions.split()


def broker_answers(version, port):
    """Send one small API request and say whether the broker gave a useful answer."""
    # ApiVersions v0 is all that Kafka 4 surely keeps; before it, ask for metadata and expect a broker in it.
    api_key, body = (18, b"") if uses_kraft(version) else (3, struct.pack(">i", 0))
    request = struct.pack(">hhih6s", api_key, 0, 7, 6, b"oracle") + body
    try:
        with socket.create_connection((LOOPBACK, port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            stream = connection.makefile("rb")
            answer = stream.read(struct.unpack(">i", stream.read(4))[0])
    except (OSError, struct.error):
        return False
    if uses_kraft(version):
        return answer[4:6] == b"\0\0"
    # A 0.8 broker that has no topics yet lists no brokers either, although it is ready.
    return version_key(version) < (0, 9) or struct.unpack(">i", answer[4:8])[0] > 0


def wait_until(condition, pid, marker, seconds, what):
    """Poll condition until it holds; exit when the process died or time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        if not is_alive(pid, marker):
            sys.exit(f"{what} (pid {pid}) died during start; see the .out and .log files under {marker}")
        if time.monotonic() > deadline:
            sys.exit(f"{what} (pid {pid}) did not answer within {seconds} s; see the files under {marker}")
        time.sleep(POLL_SECONDS)


def write_properties(path, properties):
    """Write a Java properties file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def start_zookeeper(version, folder, port, timeout, tick_ms=2000):
    """Start a ZooKeeper of the Kafka version's own choice; return its pid. Sessions end at its ticks."""
    write_properties(
        folder / "zookeeper.properties",
        {
            "dataDir": folder / "zookeeper",
            "clientPort": port,
            "clientPortAddress": LOOPBACK,
            "tickTime": tick_ms,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,dump",
        },
    )
    command = java_command(version, "128m", folder / "zookeeper.log")
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zookeeper.properties")]
    pid = spawn(command, folder / "zookeeper.out")
    wait_until(lambda: zookeeper_answers(f"{LOOPBACK}:{port}"), pid, folder, timeout, "ZooKeeper")
    return pid


def broker_properties(version, folder, port, broker_id, zookeeper, controller_port, overrides):
    """Return the complete server.properties of one broker as a dictionary."""
    properties = dict(BROKER_DEFAULTS)
    properties["log.dirs"] = folder / "data"
    if not uses_kraft(version):
        properties["zookeeper.session.timeout.ms"] = ZOOKEEPER_SESSION_SECONDS * 1000
    if uses_kraft(version):
        properties |= {
            "node.id": broker_id,
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"{broker_id}@{LOOPBACK}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
    elif version_key(version) < (0, 9):
        properties |= {
            "broker.id": broker_id,
            "zookeeper.connect": zookeeper,
            "host.name": LOOPBACK,
            "advertised.host.name": LOOPBACK,
            "port": port,
        }
    else:
        properties |= {
            "broker.id": broker_id,
            "zookeeper.connect": zookeeper,
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        }
    return properties | overrides


def format_storage(version, data, broker_id, config, overrides):
    """Format the log directory of a KRaft node: by a copy of what an earlier one got, which spares a JVM."""
    if (data / FORMATTED[0]).exists():
        return
    is_usual = not overrides.keys() & CHANGE_FORMAT
    kept = cache_home() / version / f"formatted-{broker_id}"
    if is_usual and ((kept / FORMATTED[1]).exists() or (kept / METADATA_SNAPSHOT).exists()):
        shutil.copytree(kept, data, dirs_exist_ok=True)
        return
    arguments = ["format", "--ignore-formatted", "--cluster-id", CLUSTER_ID, "--config", str(config)]
    command = tool_command(version, "kafka.tools.StorageTool", arguments)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    if is_usual:
        new = kept.with_name(f"{kept.name}.{os.getpid()}")
        new.mkdir()
        for name in (*FORMATTED, METADATA_SNAPSHOT):
            if (data / name).exists():
                (new / name).parent.mkdir(exist_ok=True)
                shutil.copy(data / name, new / name)
        try:
            new.rename(kept)
        except OSError:  # another one was faster
            shutil.rmtree(new)


def start(version, folder, port, zk_port, broker_id, join_zk, overrides, timeout):
    """Start ZooKeeper where needed and one broker; write DIR/oracle.json and return its content."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in (port, None if join_zk else zk_port):
        if number and port_is_open(number):
            sys.exit(f"port {number} is already taken")
    state = {
        "version": version,
        "port": port,
        "bootstrap": f"{LOOPBACK}:{port}",
        "dir": str(folder),
        "data": str(folder / "data"),
        "zookeeper": None,
        "pids": {},
    }

    crashed = (folder / "oracle.json").exists() and json.loads((folder / "oracle.json").read_text()).get("crashed")

    def save_state():
        (folder / "oracle.json").write_text(json.dumps(state, indent=1) + "\n")

    if not uses_kraft(version):
        state["zookeeper"] = join_zk or f"{LOOPBACK}:{zk_port}"
        if not join_zk:
            state["pids"]["zookeeper"] = start_zookeeper(version, folder, zk_port, timeout)
            save_state()
        if crashed:  # ZooKeeper still knows the killed broker until its session ends; it may be another process's
            wait_until(lambda: is_forgotten(state["zookeeper"], broker_id), os.getpid(), "", timeout, "ZooKeeper")
    config = folder / "server.properties"
    write_properties(
        config, broker_properties(version, folder, port, broker_id, state["zookeeper"], zk_port, overrides)
    )
    if uses_kraft(version):
        format_storage(version, folder / "data", broker_id, config, overrides)
    broker_log = folder / "broker.log"
    logged_before = broker_log.stat().st_size if broker_log.exists() else 0

    def is_ready():
        if not broker_answers(version, port):
            return False
        # A 0.8 broker answers before ZooKeeper knows it, and cannot make a topic until then.
        return version_key(version) >= (0, 9) or b"started (kafka.server" in broker_log.read_bytes()[logged_before:]

    command = [*java_command(version, "512m", broker_log), "kafka.Kafka", str(config)]
    if not class_archive(version).exists():
        command[1:1] = [f"-XX:ArchiveClassesAtExit={folder / CLASSES}", "-Xlog:disable"]
    pid = state["pids"]["broker"] = spawn(command, folder / "broker.out")
    save_state()
    wait_until(is_ready, pid, folder, timeout, "the broker")
    return state


# --- stop --------------------------------------------------------------------------------------


def stop_process(pid, marker, first_signal, seconds=60):
    """Signal a process that `start` made, wait for its end, and use SIGKILL when it does not end.

    Return whether the signal ended it.
    """
    if not is_alive(pid, marker):
        return False
    os.kill(pid, first_signal)
    deadline = time.monotonic() + seconds
    while is_alive(pid, marker):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    return time.monotonic() <= deadline


def stop(folder, kill, scratch=False):
    """Stop the broker and then the ZooKeeper that were started in the folder.

    `scratch`: the folder is not used afterwards. Only a broker that ends by itself leaves its loaded classes.
    """
    state = json.loads((folder / "oracle.json").read_text())
    kill = kill or (scratch and class_archive(state["version"]).exists())
    if "broker" in state["pids"]:
        has_ended = stop_process(state["pids"]["broker"], folder, signal.SIGKILL if kill else signal.SIGTERM)
        if has_ended and not kill:
            keep_classes(state["version"], folder / CLASSES)
    if "zookeeper" in state["pids"]:
        stop_process(state["pids"]["zookeeper"], folder, signal.SIGTERM)
    state |= {"pids": {}, "crashed": kill}
    (folder / "oracle.json").write_text(json.dumps(state, indent=1) + "\n")


# --- command line ------------------------------------------------------------------------------


def parse_arguments(arguments):
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("fetch", "classpath"):
        commands.add_parser(name).add_argument("version")
    starter = commands.add_parser("start")
    starter.add_argument("version")
    starter.add_argument("--dir", required=True, type=Path, help="folder for data, configuration and logs")
    starter.add_argument("--port", required=True, type=int, help="the broker's port")
    starter.add_argument("--zk-port", type=int, help="ZooKeeper's (or KRaft controller's) port; default port + 1000")
    starter.add_argument("--broker-id", type=int, default=0)
    starter.add_argument("--join-zk", metavar="HOST:PORT", help="use this ZooKeeper instead of starting one")
    starter.add_argument("--prop", action="append", default=[], metavar="KEY=VALUE", help="broker property")
    starter.add_argument("--timeout", type=int, default=120, help="seconds to wait for each process")
    stopper = commands.add_parser("stop")
    stopper.add_argument("dir", type=Path)
    stopper.add_argument("--kill", action="store_true", help="SIGKILL the broker, as in a crash")
    stopper.add_argument("--scratch", action="store_true", help="DIR is not used afterwards: SIGKILL where possible")
    for name, operand in (("tool", "main_class"), ("java", "source")):
        runner = commands.add_parser(name)
        runner.add_argument("version")
        runner.add_argument(operand)
        runner.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


def main(arguments=None):
    """Run one sub-command and return the exit status."""
    options = parse_arguments(arguments)
    match options.command:
        case "fetch":
            print(fetch(options.version))
        case "classpath":
            print(f"{fetch(options.version)}/*")
        case "start":
            overrides = dict(pair.split("=", 1) for pair in options.prop)
            state = start(
                options.version,
                options.dir.resolve(),
                options.port,
                options.zk_port or options.port + 1000,
                options.broker_id,
                options.join_zk,
                overrides,
                options.timeout,
            )
            print(json.dumps(state["pids"]))
        case "stop":
            stop(options.dir.resolve(), options.kill, options.scratch)
        case "tool":
            return subprocess.run(tool_command(options.version, options.main_class, options.arguments)).returncode
        case "java":
            source = Path(options.source)
            classes = compile_source(options.version, source)
            return subprocess.run(tool_command(options.version, source.stem, options.arguments, [classes])).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
