"""The requests of the matrix's clients to brokers of each release, real ones and ours as each, and the outcomes.

    python -m interop.releases record RELEASE...       (in tests/) what real brokers see, into release_traffic.jsonl
    python -m interop.releases compare RELEASE...      our broker as each of them beside that file; all clients

Both take `--client NAME`, several times. Each client does the same steps with a topic of its own: it produces, reads
what it wrote, resumes as a member of a group, makes and deletes a topic.
"""

import argparse
import contextlib
import fcntl
import hashlib
import itertools
import json
import re
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from interop import jvm, matrix
from interop.client_programs import ClientFailedError, ClientProcess
from interop.kafka_oracle import version_key
from interop.relay import Relay, relay
from magicbyte.engine.protocol import APIS, read_response, write_request
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from magicbyte.server.settings.served import SERVED
from magicbyte.testing import Broker
from ports import free_port

TRAFFIC: Final = Path(__file__).parent / "release_traffic.jsonl"
RELEASES: Final = (
    "0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.1.1", "0.10.2.2", "0.11.0.3", "1.0.2", "1.1.1", "2.0.1", "2.1.1", "2.2.2",
    "2.3.1", "2.4.1", "2.5.1", "2.6.3", "2.7.2", "2.8.2", "3.0.2", "3.1.2", "3.2.3", "3.3.2", "3.4.1", "3.5.2", "3.6.2",
    "3.7.2", "3.8.1", "3.9.1", "4.0.0", "4.1.0",
)  # fmt: skip
STEPS: Final = ("produce gzip", "produce zstd", "idempotent produce", "consume", "commit and resume", "admin")
SECONDS: Final = 10  # that a client waits for anything
RESUMED_AT: Final = 3
TOLD: Final = ("confluent-kafka", "kafka-python", "kcat", "franz-go", "sarama")  # which release it is, if need be
METADATA: Final = 3
BESIDE: Final = {10, 22}  # FindCoordinator and InitProducerId are sent by a thread beside others: they count as first
BY_CHANCE: Final = {12}  # Heartbeat is sent, or not, as time goes by

_ERROR = re.compile(r"\w+(Exception|Error)\b")


@dataclass(frozen=True)
class Seen:
    """The outcome of a step, and which requests in which versions the client sent for it, as each came first."""

    outcome: str
    sent: tuple[tuple[int, int], ...]

    @property
    def succeeded(self) -> bool:
        """Whether the client answered, and not that it failed."""
        return self.outcome.startswith("{")

    def as_served(self) -> tuple[str, tuple[tuple[int, int], ...]]:
        """Return it without what is not served here: APIs, and versions above those that are.

        A client that gives up complains of what it noticed first, which depends on how fast it all went: only that it
        failed counts.
        """
        outcome = self.outcome if self.succeeded else "failed"
        known = [(key, min(version, SERVED[key].versions[-1])) for key, version in self.sent if key in SERVED]
        sent = dict.fromkeys(each for each in known if each[0] not in BY_CHANCE)
        return outcome, tuple(sorted(sent, key=lambda each: each[0] not in BESIDE))


class Trial:
    """A client that does its steps with brokers of many releases, one after the other, at the same address."""

    def __init__(self, client: str, port: int, folder: Path) -> None:
        self.client, self.folder = client, folder
        self.name = client.replace(" ", "-")
        log = folder / f"{self.name}.log"
        command = matrix.COMMANDS[client]()
        java = client.startswith("Java")
        self.process = ClientProcess(command, f"127.0.0.1:{port}", log, seconds=SECONDS, goes_on=java)

    def run(self, release: str, front: Relay) -> dict[str, Seen]:
        """Return the outcome of each step. A client that cannot produce runs no further step."""
        make_topic(front.target, self.name)
        self.release, self.written = release, 0
        found = dict[str, Seen]()
        for step in STEPS:
            if matrix.reason((self.client, step, "2")) is not None:
                continue
            found[step] = self.step(step, front)
            if not found[STEPS[0]].succeeded:
                break
        return found

    def step(self, step: str, front: Relay) -> Seen:
        front.seen = []
        try:
            if self.client in TOLD:
                self.process.ask("release", self.release)
            outcome = summary(self.ask(step))
        except ClientFailedError as error:
            outcome = failure(str(error))
        return Seen(outcome, front.sent())

    def ask(self, step: str) -> dict[str, Any]:
        if step == "consume":
            found = self.process.ask("consume", self.name, self.written)
            if self.client in matrix.TEXT_ONLY:  # it sends the time that it is
                found["records"] = [[offset, *rest] for offset, _, *rest in found["records"]]
            return found
        if step == "commit and resume":
            return self.process.ask("resume", f"{self.name}-resumes", self.name, RESUMED_AT, self.written)
        if step == "admin":
            return self.process.ask("admin", f"{self.name}-made", "retention.ms", "1234567")
        idempotent = step == "idempotent produce"
        records = matrix.ledger(self.client, step, "2" if version_key(self.release) >= (0, 11) else "0")
        path = self.folder / f"{self.name}.tsv"
        path.write_text(matrix.lines(records))
        codec = "gzip" if idempotent else step.split()[1]
        found = self.process.ask("produce", self.name, codec, int(idempotent), path)
        self.written += len(records)
        return found


def summary(answer: dict[str, Any]) -> str:
    """Return an answer, short enough to be kept."""
    text = json.dumps(answer, sort_keys=True)
    return text if len(text) < 80 else f"{{{hashlib.sha256(text.encode()).hexdigest()[:12]}}}"


def failure(complaint: str) -> str:
    """Return the name of what a client complains of, the rest of which depends on when it happened."""
    found = _ERROR.search(complaint)
    return found[0] if found else "failed"


def make_topic(port: int, name: str) -> None:
    """Have a broker of any release make a topic, as it does at a request for its metadata, and wait for its leader."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(bytes(write_request(request, 0, correlation_id=1, client_id="topics")))
            stream = connection.makefile("rb")
            (size,) = struct.unpack(">i", stream.read(4))
            _, response = read_response(stream.read(size), APIS[METADATA], 0)
            assert isinstance(response, MetadataResponse)
            (topic,) = response.topics
            if not topic.error_code and all(not each.error_code for each in topic.partitions):
                return
        time.sleep(0.1)
    raise TimeoutError(f"no leader of {name}")


@contextmanager
def theirs(release: str, folder: Path, front: int) -> Iterator[Relay]:
    """Run a real broker behind a relay at the port `front`."""
    told = [f"advertised.listeners=PLAINTEXT://127.0.0.1:{front}"]
    if release.startswith("0.8"):
        told = ["advertised.host.name=127.0.0.1", f"advertised.port={front}"]
    settings = ["delete.topic.enable=true"]  # which is off before 1.0
    if not release.startswith("0.8"):
        settings.append("log.retention.ms=-1")  # the records are from 2023, which 0.8 does not look at
    port = free_port()
    with relay(front, port) as found, jvm.broker(release, folder, *told, *settings, port=port, scratch=True):
        yield found


@contextmanager
def ours(release: str, front: int) -> Iterator[Relay]:
    """Run our broker as that release behind a relay at the port `front`."""
    settings = {
        "as.version": release,
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{front}",
    }
    with Broker(settings) as broker:
        ((_, port),) = broker.served.ports.items()
        with relay(front, port) as found:
            yield found


def keep(client: str, release: str, seen: dict[str, Seen]) -> None:
    """Put what a real broker saw in the place of what there was of it. Several recordings may run at once."""
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = {key: each for key, each in load().items() if (key[0], key[2]) != (client, release)}
        save(known | {(client, step, release): each for step, each in seen.items()})


def load() -> dict[tuple[str, str, str], Seen]:
    """Return what real brokers saw, by client, step and release."""
    found = dict[tuple[str, str, str], Seen]()
    for line in TRAFFIC.read_text().splitlines():
        client, step, first, last, outcome, sent = json.loads(line)
        seen = Seen(outcome, tuple(parsed(each) for each in sent.split()))
        for release in RELEASES[RELEASES.index(first) : RELEASES.index(last) + 1]:
            found[client, step, release] = seen
    return found


def save(found: dict[tuple[str, str, str], Seen]) -> None:
    """Write what real brokers saw: a line for each run of releases that saw the same."""
    lines = []
    for client in matrix.COMMANDS:
        for step in STEPS:
            at = [found.get((client, step, release)) for release in RELEASES]
            for seen, run in itertools.groupby(zip(at, RELEASES, strict=True), key=lambda each: each[0]):
                releases = [release for _, release in run]
                if seen is None:
                    continue
                ends = releases[0], releases[-1]
                lines.append(json.dumps([client, step, *ends, seen.outcome, " ".join(map(printed, seen.sent))]))
    TRAFFIC.write_text("".join(f"{line}\n" for line in lines))


def printed(sent: tuple[int, int]) -> str:
    key, version = sent
    return f"{APIS[key].name if key in APIS else key}:{version}"


def parsed(text: str) -> tuple[int, int]:
    name, version = text.split(":")
    return int(name) if name.isdigit() else KEYS[name], int(version)


KEYS: Final = {api.name: key for key, api in APIS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("releases", nargs="+", metavar="RELEASE")
    parser.add_argument("--client", action="append", choices=list(matrix.COMMANDS))
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        trials = [Trial(client, port, folder) for client in options.client or matrix.COMMANDS]
        for each in trials:
            stack.callback(each.process.close)
        for release in options.releases:
            start = theirs(release, folder / release, port) if options.what == "record" else ours(release, port)
            with start as front:
                for trial in trials:
                    report(options.what, release, trial, front)


def report(what: str, release: str, trial: Trial, front: Relay) -> None:
    """Have a client do its steps with a broker; keep what a real one saw, or say where ours differs from it."""
    began = time.monotonic()
    seen = trial.run(release, front)
    if what == "record":
        keep(trial.client, release, seen)
    else:
        known = load()
        for step, each in seen.items():
            real = known.get((trial.client, step, release))
            if real is None or real.as_served() != each.as_served():
                print(f"  {step}: real {real}\n{' ' * len(step)}    ours {each}")
    print(f"{time.monotonic() - began:6.2f} s  {release} {trial.client}", flush=True)


if __name__ == "__main__":
    main()
