"""Records a packet capture of real clients at a real broker by tcpdump, beside the request log of that broker.

    python -m interop.record_capture RELEASE     (in tests/) writes migration/captures/RELEASE.pcap and RELEASE.log

Needs tcpdump and the right to capture on the loopback interface. From 3.9.1 on brokers keep their log elsewhere.
"""

import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from interop import client_programs, kafka_oracle, matrix
from interop.client_programs import ClientProcess
from ports import free_port

PCAP_HEADER_BYTES, WAIT_SECONDS = 24, 240
CAPTURES = Path(__file__).parents[1] / "tools/migration/captures"
CLIENTS = {
    "java-0.9.0.1": lambda: client_programs.java("0.9.0.1"),
    "java-0.11.0.3": lambda: client_programs.java("0.11.0.3"),
    "java-2.8.2": lambda: client_programs.java("2.8.2"),
    "aiokafka": lambda: client_programs.python("aio_kafka"),
    "kafka-python": lambda: client_programs.python("kafka_python"),
    "librdkafka": lambda: client_programs.python("confluent"),
}
REQUEST_LOG = "log4j.logger.kafka.request.logger=DEBUG, FILE\nlog4j.additivity.kafka.request.logger=false\n"


def work(command: list[str], bootstrap: str, folder: Path, topic: str) -> None:
    """Have a client produce and consume."""
    records = folder / "records.tsv"
    records.write_text(matrix.lines([(1_700_000_000_000 + at, "a2V5", "dmFs" * 400, ()) for at in range(20)]))
    process = ClientProcess(command, bootstrap, folder / "client.log", seconds=30)
    process.ask("produce", topic, "gzip", 0, records)
    process.ask("consume", topic, 20)
    process.close()


def marked(port: int) -> bytes:
    """Connect to the port, which has no listener; return the ports as in the header of these packets."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        probe.connect_ex(("127.0.0.1", port))
        return struct.pack(">HH", probe.getsockname()[1], port)


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def main(release: str) -> None:
    kafka_oracle.LOG4J1_CONFIG += REQUEST_LOG
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        pcap = folder / "traffic.pcap"
        dump = ["tcpdump", "-i", "lo", "-s", "0", "-U", "-w", str(pcap), "tcp", "port", str(port)]
        dumping = subprocess.Popen(dump, stderr=subprocess.DEVNULL)
        until(lambda: pcap.exists() and pcap.stat().st_size >= PCAP_HEADER_BYTES, "the start of tcpdump")
        state = kafka_oracle.start(release, folder, port, free_port(), 0, None, {"num.partitions": "1"}, 120)
        try:
            for client, command in CLIENTS.items():
                work(command(), state["bootstrap"], folder, f"topic-{client}")
        finally:
            kafka_oracle.stop(folder, kill=False)
            marker = marked(port)
            until(lambda: marker in pcap.read_bytes(), "the last packets")
            dumping.terminate()
            dumping.wait()
        completed = [line for line in (folder / "broker.log").read_text().splitlines() if "Completed request:" in line]
        (CAPTURES / f"{release}.pcap").write_bytes(pcap.read_bytes())
        (CAPTURES / f"{release}.log").write_text("\n".join(completed) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
