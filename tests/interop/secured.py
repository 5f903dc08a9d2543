"""Secured listeners of a broker of ours, several at once, and what each client is told to reach them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from magicbyte.broker.scram_users import change_of
from magicbyte.ports import MetadataStore
from magicbyte.security.scram import HASHES
from magicbyte.security.server import Credential
from magicbyte.testing.certificates import HOSTS, Authority

USER: Final = "alice"
PASSWORD: Final = 'it\'s "wonder", land'
WRONG: Final = "hunter2-is-wrong"
STORE_PASSWORD: Final = "store-pass"  # of the PKCS12 files, which old Java clients need
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS: Final = {"TLS": "SSL", "MUTUAL": "SSL", "LOGIN": "SASL_SSL", "EXPIRED": "SSL", "ELSEWHERE": "SSL"}
"""Protocols by name: the last two show a certificate that has expired, and one for another host."""
_MODULE: Final = "org.apache.kafka.common.security."


class Stores:
    """An authority and certificates in a folder: `ca`, and `own` of a client, as PEM and as PKCS12."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._authority = folder, Authority()
        self.ca = folder / "ca.pem"
        self.ca.write_text(self._authority.certificate)
        self.broker = self._authority.write(folder, "broker")
        self.elsewhere = self._authority.write(folder, "elsewhere", ["elsewhere.example"])
        self.expired = self._written("expired", *self._issued("broker", datetime.timedelta(hours=-1)))
        key, certificate = self._issued("duke")
        self.own = self._written("duke", key, certificate)
        self.own_key, self.own_certificate = self._written("duke-key", key), self._written("duke-only", certificate)
        self.trust_store, self.key_store = folder / "ca.p12", folder / "duke.p12"
        encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
        trusted = x509.load_pem_x509_certificate(self._authority.certificate.encode())
        self.trust_store.write_bytes(
            pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(trusted, b"ca")], encryption)
        )
        self.key_store.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"duke",
                load_pem_private_key(key.encode(), None),  # type: ignore[arg-type]  # of any kind, here P-256
                x509.load_pem_x509_certificate(certificate.encode()),
                [trusted],
                encryption,
            )
        )

    def _issued(self, name: str, lifetime: datetime.timedelta = datetime.timedelta(days=1)) -> tuple[str, str]:
        return self._authority.issue(name, HOSTS, lifetime=lifetime)

    def _written(self, name: str, *texts: str) -> Path:
        path = self._folder / f"{name}.pem"
        path.write_text("".join(texts))
        return path

    def broker_settings(self) -> dict[str, str]:
        """Return settings of a broker of ours with all of `LISTENERS`."""
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

    def add_user(self, metadata: MetadataStore) -> None:
        """Let the user log in by SCRAM to a broker of ours, too."""
        kept = {each: Credential.of(each, PASSWORD, b"salt of a test").dump() for each in HASHES}
        metadata.transaction([change_of(metadata, USER, kept)])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
