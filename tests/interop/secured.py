"""Secured listeners of our broker, several at once, and the settings with which each client reaches them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from interop import jvm, kafka_oracle
from magicbyte.access.clock import SystemClock
from magicbyte.access.security.scram import HASHES
from magicbyte.access.security.server import credential_of_password
from magicbyte.engine.cluster.changes import ScramCredentialChanged
from magicbyte.engine.cluster.image import ClusterImage
from magicbyte.engine.ports import CreateNode
from magicbyte.server.metadata.zookeeper import ZooKeeperStore
from magicbyte.server.stores.znodes.writing import WritingTerms, node_changes
from magicbyte.testing import Broker
from magicbyte.testing.certificates import HOSTS, Authority

USER: Final = "alice"
PASSWORD: Final = 'it\'s "wonder", land'
WRONG: Final = "hunter2-is-wrong"
STORE_PASSWORD: Final = "store-pass"  # of the PKCS12 files, which old Java clients need
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS: Final = {"TLS": "SSL", "MUTUAL": "SSL", "LOGIN": "SASL_SSL", "EXPIRED": "SSL", "ELSEWHERE": "SSL"}
"""Protocols by name: the last two show a certificate that has expired, and one for another host."""
USER_NODES: Final = "/config/users"
_ENCRYPTION: Final = BestAvailableEncryption(STORE_PASSWORD.encode())
_MODULE: Final = "org.apache.kafka.common.security."


class Stores:
    """An authority and certificates in a folder: `ca`, and `own` of a client, as PEM and as PKCS12."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._authority = folder, Authority()
        self.ca = folder / "ca.pem"
        self.ca.write_text(self._authority.certificate)
        key, certificate = self._issued("broker")
        self.broker = self._written("broker", key, certificate)
        self.broker_store = self._key_store("broker", key, certificate)
        self.elsewhere = self._authority.write(folder, "elsewhere", ["elsewhere.example"])
        self.expired = self._written("expired", *self._issued("broker", datetime.timedelta(hours=-1)))
        key, certificate = self._issued("duke")
        self.own = self._written("duke", key, certificate)
        self.own_key, self.own_certificate = self._written("duke-key", key), self._written("duke-only", certificate)
        self.key_store, self.trust_store = self._key_store("duke", key, certificate), folder / "ca.p12"
        trusted = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(self._authority.certificate.encode()), b"ca")
        self.trust_store.write_bytes(pkcs12.serialize_java_truststore([trusted], _ENCRYPTION))

    def _key_store(self, name: str, key: str, certificate: str) -> Path:
        path = self._folder / f"{name}.p12"
        private = load_pem_private_key(key.encode(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        own, by = (x509.load_pem_x509_certificate(each.encode()) for each in (certificate, self._authority.certificate))
        path.write_bytes(pkcs12.serialize_key_and_certificates(name.encode(), private, own, [by], _ENCRYPTION))
        return path

    def _issued(self, name: str, lifetime: datetime.timedelta = datetime.timedelta(days=1)) -> tuple[str, str]:
        return self._authority.issue(name, HOSTS, lifetime=lifetime)

    def _written(self, name: str, *texts: str) -> Path:
        path = self._folder / f"{name}.pem"
        path.write_text("".join(texts))
        return path

    def broker_settings(self) -> dict[str, str]:
        """Return settings of our broker with all of `LISTENERS`."""
        jaas = f'{_MODULE}plain.PlainLoginModule required user_{USER}="{_escaped(PASSWORD)}";'
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in LISTENERS.items()),
            "ssl.keystore.location": str(self.broker),
            "listener.name.expired.ssl.keystore.location": str(self.expired),
            "listener.name.elsewhere.ssl.keystore.location": str(self.elsewhere),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.truststore.location": str(self.ca),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.login.plain.sasl.jaas.config": jaas,
        }

    def java(self, protocol: str, *, own: bool = False, old: bool = False) -> dict[str, str]:
        """Return TLS settings of a Java client; before 2.7 it takes PKCS12 and checks no host by itself."""
        found = {"security.protocol": protocol, "ssl.endpoint.identification.algorithm": "https"}
        stores = {"truststore": (self.ca, self.trust_store)} | ({"keystore": (self.own, self.key_store)} if own else {})
        for kind, (pem, pkcs) in stores.items():
            found |= {f"ssl.{kind}.type": "PKCS12" if old else "PEM", f"ssl.{kind}.location": str(pkcs if old else pem)}
            if old:
                found[f"ssl.{kind}.password"] = STORE_PASSWORD
        if own and old:
            found["ssl.key.password"] = STORE_PASSWORD
        return found

    def librdkafka(self, protocol: str, *, own: bool = False) -> dict[str, str]:
        found = {"security.protocol": protocol, "ssl.ca.location": str(self.ca)}
        if own:
            found |= {"ssl.certificate.location": str(self.own_certificate), "ssl.key.location": str(self.own_key)}
        return found

    def python(self, protocol: str, *, own: bool = False) -> dict[str, str]:
        found = {"security_protocol": protocol, "ssl_cafile": str(self.ca)}
        if own:
            found |= {"ssl_certfile": str(self.own_certificate), "ssl_keyfile": str(self.own_key)}
        return found

    def login(self, client: str, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        """Return what a client logs in by, in its own names; those of librdkafka unless it is of Java or Python."""
        if client.startswith("Java"):
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            jaas = f'{_MODULE}{module} required username="{USER}" password="{_escaped(password)}";'
            return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
        if client in ("kafka-python", "aiokafka"):
            return {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": password}
        return {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}

    def add_user(self, broker: Broker) -> None:
        """Let the user log in by SCRAM to our broker, which runs in its own thread, too."""
        store, thread = broker.served.cluster_store, broker._thread
        assert thread is not None
        thread.run(store.propose(_credentials(), store.image))


def _credentials() -> list[ScramCredentialChanged]:
    return [
        ScramCredentialChanged(USER, each, credential_of_password(each, PASSWORD, b"salt of a test")) for each in HASHES
    ]


def properties(path: Path, settings: Mapping[str, str], before: str = "") -> Path:
    """Write a properties file, with `before` as the prefix of each name; return its path."""
    lines = (f"{before}{name}={value}\n" for name, value in settings.items())
    path.write_text("".join(lines).replace("\\", "\\\\"))  # a single one is an escape there
    return path


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@contextmanager
def real_broker(version: str, folder: Path, stores: Stores, *settings: str) -> Iterator[tuple[str, str]]:
    """Run a real broker with a plain listener and one of SASL_SSL inside the block; yield the addresses of both.

    The user is known to PLAIN, and to SCRAM soon.
    """
    plain, secured, controller = jvm.free_port(), jvm.free_port(), jvm.free_port()
    jaas = folder / "jaas.conf"
    jaas.write_text(
        f'KafkaServer {{ {_MODULE}plain.PlainLoginModule required user_{USER}="{_escaped(PASSWORD)}"; '
        f"{_MODULE}scram.ScramLoginModule required; }};\n"
    )
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secured}"
    more = [f"listeners={listeners}"]
    if kafka_oracle.uses_kraft(version):
        more = [
            f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners={listeners}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        ]
    store = {"keystore.type": "PKCS12", "keystore.location": stores.broker_store, "keystore.password": STORE_PASSWORD}
    stored = [f"ssl.{name}={value}" for name, value in {**store, "key.password": STORE_PASSWORD}.items()]
    stored.append(f"sasl.enabled.mechanisms={','.join(MECHANISMS)}")
    try:
        with pytest.MonkeyPatch.context() as patch:  # settings of each JVM, however it is started
            patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={jaas}")
            state = jvm.start(
                version, folder / "broker", *more, *stored, *settings, port=plain, controller_port=controller
            )
        _add_user(state)
        yield f"127.0.0.1:{plain}", f"127.0.0.1:{secured}"
    finally:
        jvm.stop(folder / "broker")


def _add_user(state: jvm.Json) -> None:
    """Let the user log in by SCRAM to a real broker: by its ZooKeeper, as ours writes it, or by its API."""
    if state["zookeeper"]:
        with closing(ZooKeeperStore(state["zookeeper"])) as store:
            if store.exists(USER_NODES) is None:  # 0.10 has it when it needs it
                store.transaction([CreateNode(USER_NODES, b"")])
            terms = WritingTerms(SystemClock().now_ms(), None)
            store.transaction(node_changes(store, ClusterImage(), _credentials(), terms))
        return
    admin = AdminClient({"bootstrap.servers": state["bootstrap"]})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # KRaft refuses both in one request
        change = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        admin.alter_user_scram_credentials([change])[USER].result(60)
