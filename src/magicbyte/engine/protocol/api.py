"""An API of Kafka: its key, versions, header versions, and its request and response classes."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from msgspec import Struct

from magicbyte.engine.errors import UnsupportedVersionError
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.message import Message

_CONTROLLED_SHUTDOWN: Final = ApiKey.CONTROLLED_SHUTDOWN.value  # plain numbers: each header is compared with them
_API_VERSIONS: Final = ApiKey.API_VERSIONS.value


class Api(Struct, frozen=True):
    """One of Kafka's APIs. `name` is Kafka's, such as `Produce`; `module` is that of its messages."""

    key: int
    name: str
    module: str
    versions: range
    flexible_versions: range
    latest_version_unstable: bool = False

    @property
    def request(self) -> type[Message]:
        """The class of its requests."""
        return self._message("Request")

    @property
    def response(self) -> type[Message]:
        """The class of its responses."""
        return self._message("Response")

    def request_header_version(self, version: int) -> int:
        """Return the version of a request's header: 2 in flexible versions (KIP-482), 1 in others.

        Versions later than the known ones are flexible if the last one is. ControlledShutdown version 0 has header
        version 0, without a client id.
        """
        flexible = self.flexible_versions
        if flexible and version >= flexible.start:
            return 2
        return 0 if self.key == _CONTROLLED_SHUTDOWN and version == 0 else 1

    def response_header_version(self, version: int) -> int:
        """Return the version of a response's header: 1 in flexible versions, 0 in others.

        ApiVersions always has header version 0, because its client does not know the broker's versions yet (KIP-511).
        """
        flexible = self.flexible_versions
        return 1 if flexible and version >= flexible.start and self.key != _API_VERSIONS else 0

    def check(self, version: int) -> None:
        """Raise UnsupportedVersionError unless the version is known."""
        if version not in self.versions:
            raise UnsupportedVersionError(self.name, version, known=self.versions)

    def _message(self, kind: str) -> type[Message]:
        found = _classes.get((self.name, kind))
        if found is None:
            module: Any = import_module(f"magicbyte.engine.protocol.messages.{self.module}")
            found = _classes[self.name, kind] = getattr(module, self.name + kind)
        return found


_classes: dict[tuple[str, str], type[Message]] = {}  # each is imported at its first use
