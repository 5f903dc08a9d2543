"""From a frame to its handler, and from what that returns to what is sent.

A handler's file is imported when the first request for it comes, or, of those that every client sends first, while a
start waits for its disk.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from magicbyte.broker.metrics import MOST_NEW, UNNAMED, Client, now_ns
from magicbyte.broker.request import Connection, Handler, Request
from magicbyte.broker.versions import SERVED, unsupported_versions
from magicbyte.errors import UnsupportedVersionError
from magicbyte.protocol import APIS, Api, read_request_header, write_response
from magicbyte.protocol.api import API_VERSIONS
from magicbyte.protocol.outcomes import Collect, codes_of

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker
    from magicbyte.net.server import Answer
    from magicbyte.protocol import Message

log = logging.getLogger(__name__)

FIRST_ASKED: Final = (18, 3, 0, 1)  # ApiVersions, Metadata, Produce, Fetch


@dataclass(frozen=True, slots=True)
class _Route:
    api: Api
    versions: range
    request: type[Message]
    handler: Handler
    codes: Collect | None


_ROUTES: Final[dict[int, _Route]] = {}  # those whose file was imported


def _route(key: int) -> _Route:
    served, api = SERVED[key], APIS[key]
    module: Any = import_module(f"magicbyte.broker.{served.module}")
    handler, codes = module.HANDLERS[api.request], codes_of(api.response)
    return _ROUTES.setdefault(key, _Route(api, served.versions, api.request, handler, codes))


def load_first() -> None:
    """Import what the first requests of a client need."""
    for key in FIRST_ASKED:
        _route(key)


class Dispatcher:
    """Answers the requests of one connection."""

    __slots__ = ("_broker", "_connection")

    def __init__(self, broker: Broker, connection: Connection) -> None:
        self._broker, self._connection = broker, connection

    async def __call__(self, frame: memoryview) -> Answer | None:
        """Return the answer to a frame, None where there is none.

        Raises UnsupportedVersionError for requests that are not served, ProtocolError for bytes that are no request,
        and what the handler raises: each ends the connection.
        """
        api, header, at = read_request_header(frame)
        version = self._broker.release.answers(api.key, header.request_api_version)
        if version is None:
            return self._refuse(api, header.request_api_version, header.correlation_id)
        started, connection = now_ns(), self._connection
        connection.waited_ns = 0
        route = _ROUTES.get(api.key)
        if route is None:
            route = await self._broker.reading.run(_route, api.key)
        # Bytes behind it are let be, as Kafka does: librdkafka 2.16 asks for all topics with three too many.
        message, _ = route.request.read_at(frame[at:], 0, version)
        client, client_id = connection.client, header.client_id or ""
        if client is None or client != (client_id, connection.software_name, connection.software_version):
            client = self._named(client_id)  # nearly always it is who it was before
        response = await route.handler(self._broker, Request(message, version, header.client_id, connection, client))
        answer = None
        if response is not None:
            frame_out = write_response(response, version, correlation_id=header.correlation_id)
            answer = cast("Answer", frame_out.pieces())  # what is elsewhere in it comes from handlers, and can be sent
        self._count(route, response, version, now_ns() - started)
        return answer

    def _named(self, client_id: str) -> Client:
        """Return who the connection's requests are counted for from now on."""
        connection, metrics = self._connection, self._broker.metrics
        found = metrics.client(client_id, connection.software_name, connection.software_version)
        connection.client = found
        return found

    def _count(self, route: _Route, response: Message | None, version: int, total_ns: int) -> None:
        """Count a request that was answered, and say so where it was slow: what it waited for others is no fault."""
        broker, waited_ns = self._broker, self._connection.waited_ns
        counters = broker.metrics.apis[route.api.key]
        codes = counters.codes
        counters.versions.append(version)
        counters.totals.append(total_ns)
        counters.waits.append(waited_ns)
        if response is not None and route.codes is not None:
            route.codes(response, codes)
        if len(counters.totals) >= MOST_NEW or len(codes) >= MOST_NEW:
            counters.sort()
        if total_ns - waited_ns >= broker.slow_ns:
            self._tell_slow(route.api, version, total_ns - waited_ns)

    def _tell_slow(self, api: Api, version: int, local_ns: int) -> None:
        connection, client = self._connection, self._connection.client or UNNAMED
        facts = {
            "api": api.name,
            "version": version,
            "peer": connection.peer,
            "client_id": client.id,
            "software": f"{client.software} {client.version}".strip(),
            "local_ms": round(local_ns / 1e6, 3),
            "waited_ms": round(connection.waited_ns / 1e6, 3),
        }
        log.warning("slow request: %s", " ".join(f"{name}={value!r}" for name, value in facts.items()),
                    extra={"fields": facts})  # fmt: skip

    def _refuse(self, api: Api, version: int, correlation_id: int) -> Answer | None:
        release = self._broker.release
        known = release.answered.get(api.key, range(0))
        if not known and release.ignores_unknown:
            return None
        if api.key != API_VERSIONS or version < 0 or not known:
            raise UnsupportedVersionError(api.name, version, known=known)
        return write_response(unsupported_versions(release), 0, correlation_id=correlation_id).buffers()
