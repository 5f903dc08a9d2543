"""What security costs: produce and consume over TLS, a connection with a login, the authorisation of a Produce.

- TLS: produce (acks=1, linger.ms=100) and consume records of 1000 bytes of text over TLS 1.3, both sides with
  TLS_AES_256_GCM_SHA384, compared with Kafka 3.9.1. Both brokers run at once and take turns; the client is librdkafka
  (confluent-kafka) in this process. The figure is the CPU that a broker used (benchmarks/broker.py says more).
- plain: the same brokers and records without TLS, so that the cost of TLS itself is known.
- connection: TCP, a TLS 1.3 handshake that checks the certificate (P-256, the same for both), ApiVersions,
  SaslHandshake and a login by SCRAM-SHA-512 of 4096 iterations; then the connection is closed. The client is in this
  process and does the same for both; what it computes of the password (PBKDF2) is in the time.
- authorisation: a Produce of 100 partitions (a batch of ten records of 100 bytes each), to one of our brokers without
  an authorizer and to one with ACLs that allow it, one ACL for a topic, and 300 for other topics and users. `one
  topic` has all partitions in one topic, `hundred topics` one in each. CPU is that of the brokers, to the nanosecond
  (schedstat), median of rounds that alternate.
- half-open: 10,000 connections that begin a login and say no more, to our broker alone, held open by their client: each
  has sent a whole ClientHello, the first message of SCRAM, or nearly all of a frame of 500 KiB. Resident memory before,
  at the most, and when they are gone; meanwhile 20 logins over TLS and Produces of 1.2 MB from others.

Run: python benchmarks/security.py [CASE...]   (written to benchmarks/results/security.json; a case: 1 to 3 minutes)
"""

import contextlib
import secrets
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import data
import harness
from broker import (
    OURS,
    Peer,
    Server,
    Turns,
    consume,
    first_records,
    free_port,
    kafka,
    ours,
    produce,
    producer,
    values,
)
from magicbyte.access.security.scram import ScramClient
from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.protocol import APIS, read_response, write_request
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from magicbyte.engine.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, columns_of, encode
from magicbyte.engine.records.layout import TimestampType
from magicbyte.testing.certificates import Authority

sys.path.append(str(data.HERE.parent / "tests"))

from handshakes import client_hello

RIVAL = "Kafka 3.9.1"
CIPHER = "TLS_AES_256_GCM_SHA384"
MECHANISM = "SCRAM-SHA-512"
USER, PASSWORD = "alice", "wonderland"
SIZE, RECORDS = 1000, 100_000
LOGINS, LOGIN_ROUNDS = 50, 8
PARTITIONS, OTHERS = 100, 300
HALF_OPEN = 10_000
REQUESTS, REQUEST_ROUNDS = 20, 36  # short rounds, so that a pair has the same conditions
MODULE = "org.apache.kafka.common.security"
WAIT_SECONDS = 60
PLAIN = f'{MODULE}.plain.PlainLoginModule required user_admin="{PASSWORD}";'


class Secured:
    """Brokers with a listener of each kind, inside a `with`; `ca` is what clients trust."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, names: Iterable[str] = (OURS, RIVAL)) -> None:
        authority = Authority()
        self.ca = folder / "ca.pem"
        self.ca.write_text(authority.certificate)
        store = authority.write(folder, "broker")
        self.plain, self.tls, self.login, self.sasl = {}, {}, {}, {}
        for name in names:
            ports = [free_port() for _ in range(4)]
            addresses = [f"127.0.0.1:{each}" for each in ports]
            listeners = ",".join(
                f"{kind}://{at}" for kind, at in zip(("PLAINTEXT", "TLS", "LOGIN", "SASL"), addresses, strict=True)
            )
            settings = [
                f"listeners={listeners}",
                f"advertised.listeners={listeners}",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,TLS:SSL,LOGIN:SASL_SSL,SASL:SASL_PLAINTEXT",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.location={store}",
                "ssl.enabled.protocols=TLSv1.3",
                f"sasl.enabled.mechanisms={MECHANISM}",
            ]
            if name == OURS:
                start = stack.enter_context(ours(folder / "ours", *settings))
            else:
                login = f"scram-sha-512.sasl.jaas.config={MODULE}.scram.ScramLoginModule required;"
                settings += [f"listener.name.login.{login}", f"listener.name.sasl.{login}"]
                start = stack.enter_context(kafka("3.9.1", folder / "kafka", *settings))
            server = start()._replace(bootstrap=addresses[0])
            first_records(server)
            self.plain[name] = server
            others = (server._replace(bootstrap=each) for each in addresses[1:])
            self.tls[name], self.login[name], self.sasl[name] = others


@contextlib.contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """Run both brokers inside the block."""
    with contextlib.ExitStack() as stack:
        yield Secured(folder, stack)


def moving(folder: Path, *, over_tls: bool) -> dict[str, Any]:
    """Produce in rounds, then consume the first records in rounds."""
    lines = values(SIZE)
    with secured(folder) as brokers:
        client: dict[str, Any] = {}
        turns = Turns(brokers.plain)
        if over_tls:
            turns = Turns(brokers.tls)
            client = {"security.protocol": "SSL", "ssl.ca.location": str(brokers.ca)}
            for server in turns.servers.values():
                with connected(server, brokers.ca) as stream:
                    assert stream.cipher() == (CIPHER, "TLSv1.3", 256), stream.cipher()
        clients = {server: producer(server, "none", client | {"linger.ms": 100}) for server in turns.servers.values()}
        produced = turns.measure(RECORDS, lambda server: produce(clients[server], "bench", lines, RECORDS))
        clients.clear()
        consumed = turns.measure(RECORDS, lambda server: consume(server, "bench", RECORDS, client))
    return {"produce": produced, "consume": consumed} | ({"cipher": CIPHER} if over_tls else {})


@contextlib.contextmanager
def connected(server: Server, ca: Path) -> Iterator[ssl.SSLSocket]:
    """Connect over TLS inside the block."""
    host, port = server.bootstrap.split(":")
    context = ssl.create_default_context(cafile=ca)
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=host) as stream,
    ):
        yield stream


class Asking:
    """Requests over a stream, one at a time."""

    def __init__(self, stream: ssl.SSLSocket) -> None:
        self._stream, self._answers = stream, stream.makefile("rb")

    def ask(self, request: Any, version: int) -> Any:
        """Return the answer."""
        self._stream.sendall(bytes(write_request(request, version, correlation_id=1, client_id="benchmark")))
        size = int.from_bytes(self._answers.read(4), "big")
        return read_response(self._answers.read(size), APIS[request.API_KEY], version)[1]


def log_in(server: Server, ca: Path) -> None:
    """Connect, log in and close the connection."""
    with connected(server, ca) as stream:
        peer = Asking(stream)
        versions = peer.ask(ApiVersionsRequest(), 0)
        assert isinstance(versions, ApiVersionsResponse)
        shaken = peer.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        assert isinstance(shaken, SaslHandshakeResponse)
        assert not shaken.error_code
        client = ScramClient(MECHANISM, USER, PASSWORD, secrets.token_urlsafe(24))
        challenge: bytes | None = None
        while (token := client.respond(challenge)) is not None:
            told = peer.ask(SaslAuthenticateRequest(auth_bytes=token), 1)
            assert isinstance(told, SaslAuthenticateResponse)
            assert not told.error_code, told.error_message
            challenge = bytes(told.auth_bytes)


def is_known(server: Server, ca: Path) -> bool:
    """Return whether a login succeeds."""
    try:
        log_in(server, ca)
    except (AssertionError, MagicbyteError):
        return False
    return True


def descriptors(server: Server) -> int:
    """Return the number of a broker's open descriptors."""
    return sum(1 for _ in Path(f"/proc/{server.pid}/fd").iterdir())


def settle(server: Server) -> None:
    """Wait until a broker's memory stays the same for a second."""
    before, deadline = 0, time.monotonic() + WAIT_SECONDS
    while abs(server.resident() - before) > before // 100:
        assert time.monotonic() < deadline, "the broker's memory keeps changing"
        before = server.resident()
        time.sleep(1)


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def add_user(server: Server) -> None:
    """Let the user log in by SCRAM."""
    change = UserScramCredentialUpsertion(
        USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
    )
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.alter_user_scram_credentials([change])[USER].result(60)


def connections(folder: Path) -> dict[str, Any]:
    """Log in again and again, in rounds."""
    with secured(folder) as brokers:
        for server in brokers.plain.values():
            add_user(server)
        times: dict[str, list[float]] = {name: [] for name in brokers.login}
        cpu: dict[str, list[float]] = {name: [] for name in brokers.login}
        for server in brokers.login.values():  # Kafka reads the user from its ZooKeeper
            until(partial(is_known, server, brokers.ca), "a login")
        for number in range(LOGIN_ROUNDS + 4):  # compilers of the JVM need the first ones
            for name, server in brokers.login.items():
                used = server.cpu()
                for _ in range(LOGINS):
                    begin = time.perf_counter()
                    log_in(server, brokers.ca)
                    if number >= 4:
                        times[name].append(time.perf_counter() - begin)
                if number >= 4:
                    cpu[name].append((server.cpu() - used) / LOGINS)
    found: dict[str, Any] = {
        name: {
            "median_ms": round(statistics.median(each) * 1e3, 3),
            "p99_ms": round(statistics.quantiles(each, n=100)[98] * 1e3, 3),
            "broker_cpu_ms": round(statistics.median(cpu[name]) * 1e3, 3),
        }
        for name, each in times.items()
    }
    ratio = found[OURS]["median_ms"] / found[RIVAL]["median_ms"]
    return found | {"ratio": {"time": round(ratio, 3), "target": 1.0, "reached": ratio <= 1}}


def used_ns(server: Server) -> int:
    """Return the nanoseconds of CPU of all threads of a broker, also of those that have ended meanwhile."""
    tasks = Path(f"/proc/{server.pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in tasks)


def authorising(folder: Path, topics: int) -> dict[str, Any]:
    """Send the same requests to a broker without ACLs and to one with them, in rounds."""
    names = [f"topic-{at:03}" for at in range(topics)]
    with contextlib.ExitStack() as stack:
        servers = {}
        for name in ("without ACLs", "with ACLs"):
            settings, admin = [], {}
            plain, login = free_port(), free_port()
            if name == "with ACLs":
                settings = [
                    f"listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{login}",
                    "sasl.enabled.mechanisms=PLAIN",
                    f"listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN}",
                    "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
                    "super.users=User:admin",
                ]
                admin = {
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": "admin",
                    "sasl.password": PASSWORD,
                }
            server = stack.enter_context(ours(folder / name.replace(" ", "-"), *settings))()
            if settings:
                server = server._replace(bootstrap=f"127.0.0.1:{plain}")
            prepare(server if not settings else server._replace(bootstrap=f"127.0.0.1:{login}"), admin, names)
            servers[name] = server
        peers = {name: Peer(server) for name, server in servers.items()}
        request = produce_request(names)
        cpu: dict[str, list[float]] = {name: [] for name in servers}
        for number in range(REQUEST_ROUNDS + 2):
            for name in sorted(peers, reverse=bool(number % 2)):
                used = used_ns(servers[name])
                for _ in range(REQUESTS):
                    told = peers[name].ask(request, 7, ProduceResponse)
                assert not {part.error_code for each in told.responses for part in each.partition_responses} - {0}, told
                if number >= 2:
                    cpu[name].append((used_ns(servers[name]) - used) / REQUESTS / 1e3)
    found: dict[str, Any] = {
        name: {
            "broker_cpu_us": round(statistics.median(each), 1),
            "lowest": round(min(each), 1),
            "highest": round(max(each), 1),
        }
        for name, each in cpu.items()
    }
    pairs = [with_them / without for without, with_them in zip(cpu["without ACLs"], cpu["with ACLs"], strict=True)]
    more = statistics.median(pairs) - 1
    return found | {"more": {"share": round(more, 4), "target": 0.03, "reached": more <= 0.03}}


def prepare(server: Server, settings: dict[str, Any], names: list[str]) -> None:
    """Make topics, and ACLs where there is an authorizer: one for each topic, and those of others."""
    deadline = time.monotonic() + 60
    client = AdminClient({"bootstrap.servers": server.bootstrap, **settings})
    made = client.create_topics([NewTopic(name, PARTITIONS // len(names), 1) for name in names])
    for each in made.values():
        each.result(max(1.0, deadline - time.monotonic()))
    if not settings:
        return
    allowed = [(name, "User:ANONYMOUS") for name in names]
    others = [(f"other-{at}", f"User:other-{at}") for at in range(OTHERS)]
    bindings = [
        AclBinding(
            ResourceType.TOPIC, name, ResourcePatternType.LITERAL, who, "*", AclOperation.WRITE, AclPermissionType.ALLOW
        )
        for name, who in (*allowed, *others)
    ]
    for at in range(0, len(bindings), 100):
        for each in client.create_acls(bindings[at : at + 100]).values():
            each.result(60)


def produce_request(
    names: list[str], *, records: int = 10, partitions: int = PARTITIONS, each: int = 100
) -> ProduceRequest:
    """Return a request that has a batch for each of all partitions, of some records of `each` bytes."""
    values = [
        Record(i, 1_700_000_000_000 + i, TimestampType.CREATE_TIME, b"key", b"v" * (each - 3), ())
        for i in range(records)
    ]
    made = encode(columns_of(values), Format.V2)
    parts = [PartitionProduceData(index=index, records=made) for index in range(partitions // len(names))]
    topics = [TopicProduceData(name=name, partition_data=parts) for name in names]
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)


def first_of_scram() -> bytes:
    """Return a handshake of SASL and the first message of SCRAM."""
    first = ScramClient(MECHANISM, USER, PASSWORD, "nonce").respond(None)
    requests = ((SaslHandshakeRequest(mechanism=MECHANISM), 1), (SaslAuthenticateRequest(auth_bytes=first), 1))
    return b"".join(bytes(write_request(*each, correlation_id=1, client_id="benchmark")) for each in requests)


HALVES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "ClientHello": ("tls", client_hello),
    "SCRAM": ("sasl", first_of_scram),
    "large frame": ("sasl", lambda: (500 << 10).to_bytes(4, "big") + b"\0\x11\0\1" + bytes(490 << 10)),
}
"""What half-open logins have sent, and to which listener."""


def half_open(folder: Path, kind: str) -> dict[str, Any]:
    """Begin logins that go no further, and see what they do to the broker and to others."""
    listener, begin = HALVES[kind]
    sent = begin()
    with contextlib.ExitStack() as stack:
        brokers = Secured(folder, stack, (OURS,))
        server, secured_server = brokers.plain[OURS], brokers.login[OURS]
        host, port = getattr(brokers, listener)[OURS].bootstrap.split(":")
        add_user(server)
        log_in(secured_server, brokers.ca)
        peer, request = Peer(server), produce_request(["first"], records=1000, partitions=1, each=1200)
        peer.ask(request, 7, ProduceResponse)
        before, most, descriptors_before = server.resident(), 0, descriptors(server)
        times: dict[str, list[float]] = {"login": [], "produce": []}
        with contextlib.ExitStack() as opened:
            for number in range(HALF_OPEN):
                stream = opened.enter_context(socket.create_connection((host, int(port)), timeout=10))
                with contextlib.suppress(ConnectionError):  # the broker may have closed it before all is sent
                    stream.sendall(sent)
                if (number + 1) % (HALF_OPEN // 20):
                    continue
                most = max(most, server.resident())
                begun = time.perf_counter()
                log_in(secured_server, brokers.ca)
                between = time.perf_counter()
                peer.ask(request, 7, ProduceResponse)
                times["login"].append(between - begun)
                times["produce"].append(time.perf_counter() - between)
        until(lambda: descriptors(server) <= descriptors_before, "the end of the half-open connections")
        settle(server)
        log_in(secured_server, brokers.ca)
        return {
            "connections": HALF_OPEN,
            "resident_MB": {"before": mega(before), "at most": mega(most), "afterwards": mega(server.resident())},
            "of others": {
                name: {"median_ms": round(statistics.median(each) * 1e3, 1), "longest_ms": round(max(each) * 1e3, 1)}
                for name, each in times.items()
            },
        }


def mega(size: int) -> float:
    return round(size / 1e6, 1)


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "TLS none 1000 B": lambda folder: moving(folder, over_tls=True),
    "plain none 1000 B": lambda folder: moving(folder, over_tls=False),
    "connection": connections,
    "authorisation, one topic": lambda folder: authorising(folder, 1),
    "authorisation, hundred topics": lambda folder: authorising(folder, PARTITIONS),
    **{f"half-open, {kind}": lambda folder, kind=kind: half_open(folder, kind) for kind in HALVES},
}


if __name__ == "__main__":
    harness.run_cases("security", __doc__, CASES)
