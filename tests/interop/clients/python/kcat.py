"""The program kcat, which is an older librdkafka: BOOTSTRAP. It sends no times and no bytes but text."""

import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import IO, Any

from contract import PATIENCE, Client, Entry, Member, rebalance, serve

# Lengths come before the bytes, so that any bytes can be separated; -1 is null.
LINE = "%o %T %K %S %h\n%k%s\n"
GROUP = ("fetch.wait.max.ms=100", "session.timeout.ms=20000", "heartbeat.interval.ms=200", "auto.offset.reset=earliest")
OPTIONS = [part for setting in GROUP for part in ("-X", setting)]
ASSIGNED = re.compile(r"\[(\d+)\]")


class Kcat(Client):
    def command(self, *arguments: str) -> list[str]:
        old = ("-X", "api.version.request=false", "-X", f"broker.version.fallback={self.release}")
        return [
            "kcat",
            "-b",
            self.bootstrap,
            "-m",
            str(int(PATIENCE)),
            *(old if self.has_release_before("0.8.", "0.9.") else ()),
            *arguments,
        ]

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(self.command(*arguments), input=stdin, capture_output=True, timeout=PATIENCE)
        if done.returncode or b"ERROR" in done.stderr or b"failed" in done.stderr:
            raise RuntimeError(done.stderr.decode(errors="replace"))
        return done.stdout

    def produce(self, topic: str, codec: str, idempotent: bool, records: list[Entry]) -> list[int]:
        start = self.end(topic)
        lines = b"".join(b"%s\t%s\n" % (each.key or b"", each.value or b"") for each in records)
        settings = ("-X", f"enable.idempotence={str(idempotent).lower()}", "-X", "acks=all", "-X", "linger.ms=20")
        self.run("-P", "-t", topic, "-p", "0", "-z", codec, "-K", "\t", "-Z", *settings, stdin=lines)
        # It says of no record where it went; others write there, too, but no equal records.
        stored = self.read(topic, start, self.end(topic) - start)
        found = {(each.key, each.value): each.offset for each in stored}
        return [found[each.key, each.value] for each in records]

    def end(self, topic: str) -> int:
        return int(self.run("-Q", "-t", f"{topic}:0:-1").split()[-1])

    def consume(self, topic: str, count: int) -> list[Entry]:
        return self.read(topic, 0, count)

    def read(self, topic: str, start: int, count: int) -> list[Entry]:
        ours = ("-o", str(start), "-c", str(count), "-f", LINE, "-X", "check.crcs=true", "-X", "fetch.wait.max.ms=100")
        rest, found = self.run("-C", "-q", "-t", topic, "-p", "0", *ours), []
        while rest:
            line, rest = rest.split(b"\n", 1)
            offset, timestamp, key_size, value_size, headers = line.split(b" ", 4)
            key, rest = cut(rest, int(key_size))
            value, rest = cut(rest, int(value_size))
            pairs = [pair.split(b"=", 1) for pair in headers.split(b",") if pair]
            named: list[tuple[str, bytes | None]] = [(name.decode(), each) for name, each in pairs]
            time = int(timestamp) or None  # 0 is how it says that there is none
            found.append(Entry(time, key, value, named, int(offset)))
            rest = rest[1:]
        return found

    def resume(self, group: str, topic: str, first: int, count: int) -> list[list[int]]:
        read = []
        for size in (first, count - first):  # what was printed is committed at the end
            out = self.run("-c", str(size), *OPTIONS, "-q", "-f", "%o\n", "-G", group, topic)
            read.append([int(line) for line in out.split()])
        return read

    def group(self, group: str, topic: str, count: int) -> dict[str, Any]:
        return rebalance(lambda: KcatMember(self.command(*OPTIONS, "-u", "-f", "%p %o\n", "-G", group, topic)), count)

    def admin(self, topic: str, name: str, value: str) -> dict[str, Any]:
        raise NotImplementedError("kcat makes no topics")


def cut(data: bytes, size: int) -> tuple[bytes | None, bytes]:
    """Return `size` bytes, or None for -1, and the rest."""
    return (None, data) if size < 0 else (data[:size], data[size:])


class KcatMember(Member):
    """A process that is a member; it says on its standard error what it is assigned."""

    def __init__(self, command: list[str]) -> None:
        super().__init__()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.readers = [
            threading.Thread(target=self.note_records, args=[self.process.stdout], daemon=True),
            threading.Thread(target=self.note_assignments, args=[self.process.stderr], daemon=True),
        ]
        for each in self.readers:
            each.start()

    def note_records(self, stream: IO[str]) -> None:
        for line in stream:
            self.lines.put(line)

    def note_assignments(self, stream: IO[str]) -> None:
        for line in stream:
            if "rebalanced" in line:
                what = line.split("): ", 1)[1]
                self.partitions = (
                    frozenset(map(int, ASSIGNED.findall(what))) if what.startswith("assigned") else frozenset()
                )
            sys.stderr.write(line)

    def poll(self) -> Iterable[tuple[int, int]]:
        try:
            partition, offset = self.lines.get(timeout=0.05).split()
        except queue.Empty:
            if self.process.poll() is not None:
                raise RuntimeError(f"kcat ended: {self.process.returncode}") from None
            return
        yield int(partition), int(offset)

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)
        for each in self.readers:
            each.join()
        self.read |= {(int(partition), int(offset)) for partition, offset in map(str.split, self.lines.queue)}


serve(Kcat(sys.argv[1]))
