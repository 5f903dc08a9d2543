"""A secured listener for a test's broker: a temporary authority, users, and client settings by library."""

from __future__ import annotations

import re
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magicbyte.access.security.sasl import PLAIN
from magicbyte.access.security.scram import HASHES
from magicbyte.access.security.server import credential_of_password
from magicbyte.access.security.settings import PROTOCOLS, ClientSecurity
from magicbyte.engine.cluster.changes import ScramCredentialChanged
from magicbyte.testing.certificates import Authority

if TYPE_CHECKING:
    pass

_MECHANISMS: Final = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
_WORD: Final = re.compile(r"[\w.@-]+")
_MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class Security:
    """The security of a broker's listener, and the settings of its clients. Certificates are in `folder`."""

    def __init__(self, protocol: str, users: Mapping[str, str], folder: Path) -> None:
        """Create an authority and a certificate if the protocol uses TLS. Raises ValueError."""
        if protocol not in PROTOCOLS:
            raise ValueError(f"security: expected {', '.join(PROTOCOLS)}, found {protocol!r}")
        if bool(users) != protocol.startswith("SASL"):
            raise ValueError(f"users: expected with SASL_PLAINTEXT and SASL_SSL only, found {protocol}")
        self.protocol, self.users = protocol, dict(users)
        self.authority: Path | None = None
        if protocol.endswith("SSL"):
            made = Authority()
            self.authority = folder / "ca.pem"
            self.authority.write_text(made.certificate)
            self._own = made.write(folder, "broker")

    def broker_settings(self) -> dict[str, str]:
        """Return the settings of the broker."""
        settings = {"listeners": f"{self.protocol}://127.0.0.1:0"}
        if self.authority is not None:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._own)}
        if self.users:
            plain = {name: password for name, password in self.users.items() if _WORD.fullmatch(name)}
            named = "".join(f" user_{name}={_quoted(password)}" for name, password in plain.items())
            own = f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config"
            settings |= {"sasl.enabled.mechanisms": _MECHANISMS, own: f"{_MODULES[PLAIN]} required{named};"}
        return settings

    def cluster_settings(self, broker: str) -> dict[str, str]:
        """Return the settings of a broker in a secured cluster: it authenticates as the user `broker`."""
        settings = self.broker_settings() | {"security.inter.broker.protocol": self.protocol}
        if self.authority is not None:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority)}
        if self.users:
            own = f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config"
            login = f" username={_quoted(broker)} password={_quoted(self.users[broker])};"
            settings |= {own: settings[own].removesuffix(";") + login, "sasl.mechanism.inter.broker.protocol": PLAIN}
            settings["super.users"] = f"User:{broker}"
        return settings

    def credentials(self) -> list[ScramCredentialChanged]:
        """Return the users' SCRAM credentials, as changes of a cluster."""
        return [
            ScramCredentialChanged(name, each, credential_of_password(each, password, secrets.token_bytes(16)))
            for name, password in self.users.items()
            for each in HASHES
        ]

    def java(self, user: str | None = None, mechanism: str = PLAIN) -> dict[str, str]:
        """Return settings of Java clients, and of magicbyte's."""
        settings = {"security.protocol": self.protocol}
        if self.authority is not None:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority)}
        if self.users:
            name, password = self._user(user)
            module = _MODULES[PLAIN if mechanism == PLAIN else "SCRAM"]
            text = f"{module} required username={_quoted(name)} password={_quoted(password)};"
            settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": text}
        return settings

    def librdkafka(self, user: str | None = None, mechanism: str = PLAIN) -> dict[str, str]:
        """Return settings of librdkafka and clients built on it, such as confluent-kafka and kcat."""
        settings = {"security.protocol": self.protocol}
        if self.authority is not None:
            settings["ssl.ca.location"] = str(self.authority)
        if self.users:
            name, password = self._user(user)
            settings |= {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}
        return settings

    def kafka_python(self, user: str | None = None, mechanism: str = PLAIN) -> dict[str, Any]:
        """Return arguments of kafka-python's clients."""
        found = self._plain(user, mechanism)
        if self.authority is not None:
            found["ssl_cafile"] = str(self.authority)
        return found

    def aiokafka(self, user: str | None = None, mechanism: str = PLAIN) -> dict[str, Any]:
        """Return arguments of aiokafka's clients."""
        found = self._plain(user, mechanism)
        if self.authority is not None:
            found["ssl_context"] = ssl.create_default_context(cafile=self.authority)
        return found

    def client(self, user: str | None = None, mechanism: str = PLAIN) -> ClientSecurity:
        """Return the `security` argument of `magicbyte.Client`."""
        return ClientSecurity.of(self.java(user, mechanism))

    def _plain(self, user: str | None, mechanism: str) -> dict[str, Any]:
        found: dict[str, Any] = {"security_protocol": self.protocol}
        if self.users:
            name, password = self._user(user)
            found |= {"sasl_mechanism": mechanism, "sasl_plain_username": name, "sasl_plain_password": password}
        return found

    def _user(self, user: str | None) -> tuple[str, str]:
        name = next(iter(self.users)) if user is None else user
        return name, self.users[name]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
