"""The programs of `clients/`: built once per content, started, asked. See clients/README.md for their commands."""

import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from interop import jvm, kafka_oracle
from interop.kafka_oracle import version_key

HERE = Path(__file__).parent / "clients"
PROGRAMS: Final = {"go": "golang", "npm": "npm", "node": "nodejs", "kcat": "kcat"}  # and the package each is in
START_SECONDS = 180
ANSWER_SECONDS = 240  # longer than a client waits for anything
ERAS: Final = {
    "0.9": "era09",
    "0.10": "era10",
    "0.11": "era11",
    "2.4": "era24",
    "3.1": "era31",
}  # the first release of each


class ClientFailedError(AssertionError):
    """A client answered that it failed, or did not answer."""


def missing() -> str | None:
    """Say in one line what is missing to run the clients, or return None."""
    lacking = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    return jvm.missing() or (f"needs {', '.join(lacking)}: apt-get install {' '.join(lacking)}" if lacking else None)


def java(version: str) -> list[str]:
    """Return the command of Kafka's own client of a version."""
    if version_key(version) < (0, 9):
        sources = ["Contract.java", "Client08.java"]
    else:
        era = [folder for first, folder in ERAS.items() if version_key(first) <= version_key(version)][-1]
        admin = ["Admin.java"] if version_key(version) >= (0, 11) else []
        sources = ["Contract.java", "Client09.java", f"{era}/Era.java", *admin]
    classes = built("java", version, [HERE / "java" / name for name in sources], compile_java(version))
    main_class = Path(sources[1]).stem
    log = kafka_oracle.cache_home() / version / "client.log"
    return [*kafka_oracle.java_command(version, "128m", log, "WARN", [classes]), main_class]


def compile_java(version: str) -> Callable[[list[Path], Path], None]:
    def compile_all(sources: list[Path], target: Path) -> None:
        libs = kafka_oracle.fetch(version)
        flags = ["-nowarn", "-proc:none", "-cp", f"{libs}/*", "-d", str(target)]
        run([kafka_oracle.jdk_program("javac"), *flags, *map(str, sources)])

    return compile_all


def python(name: str) -> list[str]:
    """Return the command of a client that runs in this Python."""
    return [sys.executable, str(HERE / "python" / f"{name}.py")]


def go(name: str) -> list[str]:
    """Return the command of a client written in Go."""
    folder = HERE / "go"

    def build(_: list[Path], target: Path) -> None:
        run(["go", "build", "-o", f"{target}/", "./..."], folder)

    sources = sorted(path for path in folder.rglob("*") if path.is_file())
    return [str(built("go", "clients", sources, build) / name)]


def node(name: str) -> list[str]:
    """Return the command of a client for Node. Its packages are those of the lock file."""
    folder = HERE / "node"

    def install(locks: list[Path], target: Path) -> None:
        for path in locks:
            shutil.copy(path, target)
        run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target)

    packages = built("node", "packages", [folder / "package.json", folder / "package-lock.json"], install)
    return ["env", f"NODE_PATH={packages / 'node_modules'}", "node", str(folder / f"{name}.js")]


def run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def unpack(folder: Path, name: str, sha256: str) -> None:
    """Unpack the archive of a package there."""
    archive = folder / name
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == sha256, f"{name} is not what was tested"
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")


def built(kind: str, name: str, sources: Iterable[Path], build: Callable[[list[Path], Path], None]) -> Path:
    """Return the folder that `build` filled from these sources, which is done once per content."""
    paths = list(sources)
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]
    target = kafka_oracle.cache_home() / "clients" / f"{kind}-{name}-{digest}"
    if not target.is_dir():
        scratch = target.with_name(f"{target.name}.{os.getpid()}.{threading.get_ident()}")
        scratch.mkdir(parents=True)
        build(paths, scratch)
        try:
            scratch.rename(target)
        except OSError:  # another was faster
            shutil.rmtree(scratch)
    return target


class ClientProcess:
    """A running client. `ask` may be called by one thread at a time.

    `seconds`: how long the client waits for anything, in place of its own 60. `goes_on`: it is not restarted after
    it failed, which spares the start of a JVM.
    """

    def __init__(
        self, command: list[str], bootstrap: str, log: Path, *, seconds: int | None = None, goes_on: bool = False
    ) -> None:
        self.command, self.log, self.goes_on = [*command, bootstrap], log, goes_on
        self.seconds = ANSWER_SECONDS if seconds is None else 4 * seconds
        self.environment = {**os.environ, **({} if seconds is None else {"CLIENT_SECONDS": str(seconds)})}
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self.environment,
            )
        self.answers: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self.note, args=[self.process, self.answers], daemon=True)
        self.reader.start()
        self.answer(START_SECONDS)

    @staticmethod
    def note(process: "subprocess.Popen[str]", answers: "queue.Queue[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):  # or a library has something to say
                answers.put(line)
        answers.put("")

    def answer(self, seconds: float) -> dict[str, Any]:
        try:
            line = self.answers.get(timeout=seconds)
        except queue.Empty:
            line = ""
        reply: dict[str, Any] = json.loads(line) if line else {"error": "ended or hung"}
        if "error" in reply:
            if not (line and self.goes_on):
                self.process.kill()
                self.process.wait()
            raise ClientFailedError(reply["error"])
        return reply

    def ask(self, *words: object) -> dict[str, Any]:
        """Return the answer to a command. A client that ended is restarted for the next one."""
        if self.process.poll() is not None:
            self.start()
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("\t".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise ClientFailedError("ended") from error
        return self.answer(self.seconds)

    def close(self) -> None:
        """End the process: by its input's end, or else by force."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
