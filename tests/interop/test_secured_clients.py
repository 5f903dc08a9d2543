"""Real clients and our secured broker: they read the records they wrote, and a refusal is clear on both sides."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from interop import client_programs, matrix
from interop.client_programs import ClientFailedError, ClientProcess
from interop.secured import MECHANISMS, PASSWORD, WRONG, Stores
from magicbyte.access.net import complaints
from magicbyte.testing import Broker

pytestmark = pytest.mark.interop

CLIENTS: Final = (
    "Java 0.10.2.2", "Java 2.8.2", "Java 3.9.1", "Java 4.3.1", "confluent-kafka", "kafka-python", "aiokafka",
    "franz-go", "sarama", "kafkajs",
)  # fmt: skip
RECORDS: Final = matrix.ledger("kcat", "secured", "2")  # plain text, which all can send
PATIENCE_S: Final = 240
NOT_TRUSTED: Final = "|".join(
    (
        "TLS: the peer ended the handshake",
        "TLS: unexpected message",
        "TLS: wrong version number after the broker's certificate was sent: does the client trust it",  # Java 2.8.2
        "connection ended inside the TLS handshake",  # without an alert
    )
)
REFUSED: Final = {
    "wrong password": ("uthentication ?failed", "the login by PLAIN is refused"),
    "wrong password of SCRAM": ("uthentication ?failed", "the login by SCRAM-SHA-256 is refused"),
    "expired": ("expired|validity check|verify failed", NOT_TRUSTED),
    "elsewhere": ("match|verify failed|altern|cannot validate", NOT_TRUSTED),
    "plain bytes": ("(?i)disconnect|closed|EOF|reset|no.*bytes|unable to bootstrap", "plain bytes on a TLS listener"),
}
"""What is wrong, what the client says of it, and what the broker's log does."""
LATE: Final = "Failed to update metadata|not present in metadata|timed out|Unable to bootstrap"
TOLD_LATE: Final = {
    *(("Java 0.10.2.2", case) for case in REFUSED), ("confluent-kafka", "plain bytes"),
    *((f"Java {release}", "plain bytes") for release in ("2.8.2", "3.9.1", "4.3.1")),
    *(("kafka-python", f"wrong password{of}") for of in ("", " of SCRAM")),
}  # fmt: skip
"""Where a client may say no more than that time is up. kafka-python drops an answer that it reads with the end."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    lacking = client_programs.missing()
    if lacking is not None:
        if os.environ.get("CI"):
            pytest.fail(lacking, pytrace=False)
        pytest.skip(lacking)
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def broker(stores: Stores) -> Iterator[Broker]:
    with Broker(stores.broker_settings()) as made:
        stores.add_user(made)
        yield made


def tls(stores: Stores, client: str, protocol: str, *, own: bool = False) -> dict[str, str]:
    """Return the settings of a client for TLS; `own`: with a certificate of its own."""
    if client.startswith("Java"):
        return stores.java(protocol, own=own, old=client.startswith(("Java 0", "Java 2")))
    return (stores.python if client in ("kafka-python", "aiokafka") else stores.librdkafka)(protocol, own=own)


def login(stores: Stores, client: str, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    """Return the settings of a client for a login over TLS."""
    return tls(stores, client, "SASL_SSL") | stores.login(client, mechanism, password)


def accepted(stores: Stores, client: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return listeners and settings by what is tried."""
    return {
        "TLS": ("TLS", tls(stores, client, "SSL")),
        "mutual TLS": ("MUTUAL", tls(stores, client, "SSL", own=True)),
        **{mechanism: ("LOGIN", login(stores, client, mechanism)) for mechanism in MECHANISMS},
    }


def refused(stores: Stores, client: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return listeners and settings by what is wrong, the cases of `REFUSED`."""
    trusting = tls(stores, client, "SSL")
    protocol = next(name for name in trusting if name.replace("_", ".") == "security.protocol")
    cases = {
        "wrong password": ("LOGIN", login(stores, client, "PLAIN", WRONG)),
        "wrong password of SCRAM": ("LOGIN", login(stores, client, "SCRAM-SHA-256", WRONG)),
        "expired": ("EXPIRED", trusting),
        "elsewhere": ("ELSEWHERE", trusting),
        "plain bytes": ("TLS", {protocol: "PLAINTEXT"}),
    }
    return {case: (listener, settings | IMPATIENT[client]) for case, (listener, settings) in cases.items()}


IMPATIENT: Final[Mapping[str, Mapping[str, str]]] = {
    "Java 0.10.2.2": {"max.block.ms": "3000", "request.timeout.ms": "3000"},
    **{
        f"Java {release}": {"max.block.ms": "3000", "request.timeout.ms": "3000", "delivery.timeout.ms": "4000"}
        for release in ("2.8.2", "3.9.1", "4.3.1")
    },
    "confluent-kafka": {"message.timeout.ms": "3000"},
    "kafka-python": {"bootstrap_timeout_ms": "3000"},
    "aiokafka": {},
    "franz-go": {"retries": "0"},
    "sarama": {"retries": "0"},
    "kafkajs": {"retries": "0"},
}
"""Settings with which each gives up sooner; tests retry."""


def tell(process: ClientProcess, folder: Path, settings: Mapping[str, str]) -> None:
    (folder / "settings").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    process.ask("settings", folder / "settings")


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_client_writes_over_a_secured_listener_it_reads_again(
    client: str, stores: Stores, broker: Broker, tmp_path: Path
) -> None:
    (tmp_path / "ledger").write_text(matrix.lines(RECORDS))
    admin = AdminClient({"bootstrap.servers": broker.address("TLS"), **stores.librdkafka("SSL")})
    read: dict[str, list[list[str | None]]] = {}
    processes: dict[str, ClientProcess] = {}
    try:
        for case, (listener, settings) in accepted(stores, client).items():
            topic = f"{client}-{case}".replace(" ", "-")
            admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)
            if listener not in processes:
                address = broker.address(listener)
                processes[listener] = ClientProcess(matrix.COMMANDS[client](), address, tmp_path / "log")
            process = processes[listener]
            tell(process, tmp_path, settings)
            process.ask("produce", topic, "none", 0, tmp_path / "ledger")
            records = process.ask("consume", topic, len(RECORDS))["records"]
            read[case] = [[key, value] for _, _, key, value, _ in records]
    finally:
        for process in processes.values():
            process.close()
    written = [[key, value] for _, key, value, _ in RECORDS]
    assert read == dict.fromkeys(accepted(stores, client), written)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refusal_is_clear_on_both_sides_and_shows_no_password(
    client: str,
    stores: Stores,
    broker: Broker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(complaints, "BURST", 1_000_000)  # clients that try again and again are one address here
    (tmp_path / "ledger").write_text(matrix.lines(RECORDS))

    def is_refused(item: tuple[str, tuple[str, dict[str, str]]]) -> bool:
        """Write until both sides have said what is wrong: on a slow machine a client gives up before it knows."""
        case, (listener, settings) = item
        says, line = REFUSED[case]
        if (client, case) in TOLD_LATE:
            says = LATE
        folder, text, end = tmp_path / case, "", time.monotonic() + PATIENCE_S
        folder.mkdir()
        process = ClientProcess(
            matrix.COMMANDS[client](), broker.address(listener), folder / "log", goes_on=client.startswith("Java")
        )
        try:
            while not (re.search(says, text) and re.search(line, caplog.text)):
                assert time.monotonic() < end, (case, text, caplog.text[-3000:])
                tell(process, folder, settings)
                with pytest.raises(ClientFailedError) as failure:
                    process.ask("produce", "refused", "none", 0, tmp_path / "ledger")
                text = f"{failure.value}\n{(folder / 'log').read_text(errors='replace')}"
                time.sleep(0.1)  # some fail at once, and each attempt is logged
        finally:
            process.close()
        return True

    cases = refused(stores, client)
    with ThreadPoolExecutor(len(cases)) as threads:
        assert all(threads.map(is_refused, cases.items()))
    assert not [each for each in (PASSWORD, WRONG) if each in caplog.text]


def test_a_renegotiation_is_refused(stores: Stores, broker: Broker) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    trusting = ("-tls1_2", "-CAfile", str(stores.ca), "-verify_return_error")
    done = subprocess.run(
        ["openssl", "s_client", "-connect", broker.address("TLS"), *trusting],
        input="R\n", capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "Protocol  : TLSv1.2" in said
    assert "RENEGOTIATING" in said
    assert "no renegotiation" in said
