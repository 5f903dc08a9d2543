"""Connections between brokers, with versions that follow from the cluster's protocol version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magicbyte.access.client.connection import Connection
from magicbyte.access.client.login import NO_CREDENTIALS, Credentials
from magicbyte.access.client.versions import BrokerVersions
from magicbyte.engine.errors import InvalidConfigError, MagicbyteError, NetworkError
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.releases import inter_broker_versions, login_versions

if TYPE_CHECKING:
    from magicbyte.server.serving.current_files import CurrentFiles
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.settings.listeners import Listener


class Links:
    """Make connections to other brokers, secured as the inter-broker listener."""

    def __init__(self, runtime: Runtime, credentials: CurrentFiles[Credentials] | None = None) -> None:
        self._runtime, self._credentials = runtime, credentials

    @classmethod
    def of(cls, runtime: Runtime) -> Links:
        """Create it from the settings. Reads files. Raises InvalidConfigError."""
        config = runtime.config
        protocol = config.inter_broker_listener.security_protocol
        if protocol == "PLAINTEXT":
            return cls(runtime)
        from magicbyte.server.serving.current_files import CurrentFiles
        from magicbyte.server.serving.listener_security import client_of

        def read(listener: Listener, config: BrokerConfig) -> Credentials:
            return Credentials.of(client_of(listener, config))

        if protocol.startswith("SASL") and not login_versions(config.inter_broker_protocol_version):
            raise InvalidConfigError(
                "inter.broker.protocol.version: expected 0.10.0 or later with SASL between brokers"
            )
        return cls(runtime, CurrentFiles(config.inter_broker_listener, runtime, read))

    async def connect(
        self,
        broker_id: int,
        host: str,
        port: int,
        *,
        protocol: tuple[int, ...],
        client_id: str,
        timeout_ms: int,
        asks_versions: bool = False,
    ) -> Connection:
        """Return a connection to another broker. Raises NetworkError, also if one side does not trust the other.

        Requests are sent in the versions of `protocol`: brokers do not negotiate versions, as all of a cluster use its
        `inter.broker.protocol.version`. `asks_versions` is for requests that this does not determine.
        """
        runtime, current = self._runtime, self._credentials
        credentials = NO_CREDENTIALS if current is None else await current.now()
        stream = await runtime.network.connect(host, port, timeout_ms=timeout_ms)
        link = Connection(stream, name=f"broker {broker_id} ({host}:{port})", client_id=client_id)
        versions = inter_broker_versions(protocol) | login_versions(protocol)
        link.versions = BrokerVersions({key: range(version, version + 1) for key, version in versions.items()})
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await link.encrypt(credentials, host)
                if asks_versions:
                    link.versions = await link.negotiate(APIS[ApiKey.API_VERSIONS].versions[-1])
                await link.log_in(credentials)
        except BaseException as error:
            await stream.aclose()
            if isinstance(error, TimeoutError):
                raise NetworkError(f"{link.name}: not ready within {timeout_ms} ms") from None
            if isinstance(error, MagicbyteError) and not isinstance(error, NetworkError):
                raise NetworkError(str(error)) from error
            raise
        link.begin()
        return link
