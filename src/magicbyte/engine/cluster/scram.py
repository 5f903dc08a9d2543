"""Credentials of SCRAM users."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from magicbyte.engine.errors import SecurityError


@dataclass(frozen=True, slots=True)
class Credential:
    """The stored form of a password for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def dump(self) -> str:
        """Return its text, as in Kafka's znodes."""
        parts = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        texts = [f"{name}={base64.b64encode(value).decode()}" for name, value in parts.items()]
        return ",".join([*texts, f"iterations={self.iterations}"])

    @classmethod
    def load(cls, text: str) -> Credential:
        """Parse the text of a znode. Raises SecurityError, whose message never contains it."""
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            if set(fields) != {"salt", "stored_key", "server_key", "iterations"} or text.count(",") != 3:
                raise ValueError
            salt, stored, server = (
                base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored, server, int(fields["iterations"]))
        except ValueError:
            raise SecurityError("a SCRAM credential: expected salt, stored_key, server_key and iterations") from None
