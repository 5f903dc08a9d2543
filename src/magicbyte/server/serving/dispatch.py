"""Dispatch frames to handlers, and encode their responses.

A handler's module is imported at its first request or, for the requests that every client sends first, while a start
waits for its disk.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from magicbyte.access.net.server import DelayResponse, MuteConnection
from magicbyte.engine.errors import TooManyElementsError, UnsupportedVersionError
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol import APIS, Api, read_request_header, write_response
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.message import Allowance
from magicbyte.engine.protocol.outcomes import Collect, codes_of
from magicbyte.server.serving.authorization import AuthorizedCaller
from magicbyte.server.serving.metrics import MOST_NEW, UNNAMED, ClientSoftware, now_ns
from magicbyte.server.serving.request import ClientConnection, Handler, Request
from magicbyte.server.serving.shared_answers import SharedAnswer
from magicbyte.server.settings.offer import unsupported_versions

if TYPE_CHECKING:
    from magicbyte.access.net.server import Answer
    from magicbyte.engine.protocol import Message
    from magicbyte.engine.protocol.messages.request_header import RequestHeader
    from magicbyte.server.serving.authorization import Authorizes
    from magicbyte.server.serving.routes import Route, Routes
    from magicbyte.server.serving.runtime import Runtime

log = logger(__name__)

FIRST_ASKED: Final = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH)
FEW_ELEMENTS: Final = 2_000
"""Elements of a message that is parsed on the event loop, within some 3 ms; nearly all messages have fewer."""
LARGE_BODY: Final = 64 << 10  # bytes, after which memory is returned to the system
ELEMENT_BYTES: Final = 512
"""Memory counted for each element of a larger message: its object, and that in the response."""


class _BoundRoute(Struct, frozen=True):
    """A route of one server: its handler is bound to its services."""

    route: Route
    api: Api
    request: type[Message]
    handler: Handler
    codes: Collect | None


class Router:
    """The routes of one server, each bound at its first request.

    `services`: the first parameter of all handlers. `authorizer`: None if everything is allowed.
    """

    def __init__(self, runtime: Runtime, routes: Routes, services: object, authorizer: Authorizes | None) -> None:
        self.runtime, self._routes, self._services, self._authorizer = runtime, routes, services, authorizer
        self.bound: dict[int, _BoundRoute] = {}  # by API key

    async def route(self, key: int) -> _BoundRoute:
        """Return the route of an API's requests; its module is imported if needed."""
        route = self._routes.loaded(key)
        if route is None:
            route = await self.runtime.reading.run(self._routes.load, key)
        if (bound := self.bound.get(key)) is None:
            api, handler = APIS[key], partial(route.handler, self._services)
            bound = self.bound[key] = _BoundRoute(route, api, api.request, handler, codes_of(api.response))
        return bound

    def handle(self, bound: _BoundRoute, request: Request[Any]) -> Awaitable[Message | None]:
        """Return the response of the handler, as far as the caller is authorized."""
        by_id = bound.route.by_id
        if by_id is not None and request.version >= by_id.first:
            return by_id(self._services, request, partial(self._authorized, bound))
        return self._authorized(bound, request)

    def _authorized(self, bound: _BoundRoute, request: Request[Any]) -> Awaitable[Message | None]:
        if self._authorizer is None or (rights := bound.route.rights) is None:
            return bound.handler(request)
        return rights(self._services, request, bound.handler, AuthorizedCaller(self._authorizer, request.connection))


class Dispatcher:
    """Answer the requests of one connection."""

    __slots__ = ("_connection", "_router", "_runtime")

    def __init__(self, router: Router, connection: ClientConnection) -> None:
        self._router, self._runtime, self._connection = router, router.runtime, connection

    async def __call__(self, frame: memoryview) -> Answer | None:
        """Return the response to a frame, or None.

        Raises UnsupportedVersionError for unsupported requests, ProtocolError for invalid ones, and the handler's
        errors: each ends the connection.
        """
        api, header, at = read_request_header(frame)
        version = self._runtime.offer.answers(api.key, header.request_api_version)
        if version is None:
            return self._refuse(api, header.request_api_version, header.correlation_id)
        started, connection = now_ns(), self._connection
        connection.waited_ns = 0
        bound = self._router.bound.get(api.key)
        if bound is None:
            bound = await self._router.route(api.key)
        body, size = frame[at:], len(frame)
        if len(body) >= LARGE_BODY:
            self._runtime.trimming.ask()
        del frame  # so that the frame's memory is released before the handler runs
        message = None
        # Trailing bytes are ignored, as in Kafka: librdkafka 2.16 sends three too many when it asks for all topics.
        if len(body) <= FEW_ELEMENTS:  # each element takes at least a byte
            message, _ = bound.request.read_at(body, 0, version)
        else:
            try:  # noqa: SIM105 (`suppress` costs three calls)
                message, _ = bound.request.read_within(body, 0, version, Allowance(FEW_ELEMENTS))
            except TooManyElementsError:
                pass
        if message is None:
            answering = self._answer_large(bound, header, body, size, started)
            del body
            return await answering
        del body
        request = Request(message, version, header.client_id, connection, self._client(header.client_id or ""))
        response = await self._router.handle(bound, request)
        if isinstance(response, SharedAnswer):
            return await self._answer_shared(bound, request, response, header.correlation_id, started)
        pause = None
        if self._runtime.quotas.is_limiting:
            pause = self._charge(bound, request, response, size, started)
        if request.turns.is_long:
            return await self._answer_long(bound, request, response, header.correlation_id, started, pause)
        answer: Answer | None = None
        if response is not None:
            codes = self._runtime.metrics.apis[api.key].codes
            answer = _written(bound, response, version, header.correlation_id, codes)
        self._count(bound, version, started)
        return answer if pause is None else pause.around(answer)

    def _charge(
        self, bound: _BoundRoute, request: Request[Any], response: Message | None, size: int, started_ns: int
    ) -> MuteConnection | DelayResponse | None:
        """Record what a request of `size` bytes has used in its quotas; return how its client is throttled."""
        quotas = self._runtime.quotas
        busy_ns = now_ns() - started_ns - self._connection.waited_ns
        wait_ms = quotas.charge(bound.route, request, response, bound.codes, size, busy_ns)
        return quotas.pause(response, wait_ms) if wait_ms else None

    async def _answer_large(
        self, bound: _BoundRoute, header: RequestHeader, body: memoryview, size: int, started: int
    ) -> Answer | None:
        """Answer a request with many elements: it is parsed in a thread, with its memory counted before."""
        runtime, version, most = self._runtime, header.request_api_version, bound.route.most_elements
        async with runtime.memory.message(min(most, len(body)) * ELEMENT_BYTES):
            read = partial(bound.request.read_within, body, 0, version, Allowance(most))
            message, _ = await runtime.messages.run(read)
            del body, read
            client = self._client(header.client_id or "")
            request = Request(message, version, header.client_id, self._connection, client, is_large=True)
            del message
            response = await self._router.handle(bound, request)
            pause = None
            if isinstance(response, SharedAnswer):
                return await self._answer_shared(bound, request, response, header.correlation_id, started)
            if runtime.quotas.is_limiting:
                pause = self._charge(bound, request, response, size, started)
            return await self._answer_long(bound, request, response, header.correlation_id, started, pause)

    async def _answer_shared(
        self,
        bound: _BoundRoute,
        request: Request[Any],
        shared: SharedAnswer,
        correlation_id: int,
        started: int,
    ) -> Answer:
        """Send an answer that others get, too. No quota is in force, so it has no throttle time."""
        if not shared.is_encoded:
            if shared.is_long:
                await self._runtime.messages.run(shared.make, bound.codes)
            else:
                shared.make(bound.codes)
        self._runtime.metrics.apis[bound.api.key].codes.extend(shared.codes)
        frame = shared.frame(correlation_id)
        self._count(bound, request.version, started)
        return [frame]

    async def _answer_long(
        self,
        bound: _BoundRoute,
        request: Request[Any],
        response: Message | None,
        correlation_id: int,
        started: int,
        pause: MuteConnection | DelayResponse | None,
    ) -> Answer | None:
        """Encode a response that may be long in a thread, one such response of this broker at a time."""
        runtime = self._runtime
        answer: Answer | None = None
        if response is not None:
            codes = list[int]()  # the thread leaves the broker's own list alone
            writing = partial(_written, bound, response, request.version, correlation_id, codes)
            del response
            answer = await runtime.messages.run(writing)
            runtime.metrics.apis[bound.api.key].codes.extend(codes)
        self._count(bound, request.version, started)
        runtime.trimming.ask()
        return answer if pause is None else pause.around(answer)

    def _client(self, client_id: str) -> ClientSoftware:
        """Return the client software for which a request is counted."""
        connection = self._connection
        client = connection.client
        if client is None or client != (client_id, connection.software_name, connection.software_version):
            client = self._named(client_id)  # nearly always the same as before
        return client

    def _named(self, client_id: str) -> ClientSoftware:
        """Return the client software for the connection's requests from now on."""
        connection, metrics = self._connection, self._runtime.metrics
        found = metrics.client(client_id, connection.software_name, connection.software_version)
        connection.client = found
        connection.asked.clear()
        return found

    def _count(self, bound: _BoundRoute, version: int, started_ns: int) -> None:
        """Count an answered request, and log it if it was slow, apart from waiting."""
        runtime, connection, key, ended_ns = self._runtime, self._connection, bound.api.key, now_ns()
        waited_ns, total_ns = connection.waited_ns, ended_ns - started_ns
        asked = connection.asked.get((key, version))
        if asked is None:
            client = connection.client or UNNAMED
            asked = connection.asked[key, version] = runtime.metrics.asking(client, connection.host, key, version)
        asked.count += 1
        asked.last_ns = ended_ns
        counters = runtime.metrics.apis[key]
        codes = counters.codes
        counters.versions.append(version)
        counters.totals.append(total_ns)
        counters.waits.append(waited_ns)
        if len(counters.totals) >= MOST_NEW or len(codes) >= MOST_NEW:
            counters.sort()
        if total_ns - waited_ns >= runtime.slow_ns:
            self._tell_slow(bound.api, version, total_ns - waited_ns)

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
        offer = self._runtime.offer
        known = offer.answered.get(api.key, range(0))
        if not known and offer.ignores_unknown:
            return None
        if api.key != ApiKey.API_VERSIONS or version < 0 or not known:
            raise UnsupportedVersionError(api.name, version, known=known)
        return write_response(unsupported_versions(offer), 0, correlation_id=correlation_id).buffers()


def _written(bound: _BoundRoute, response: Message, version: int, correlation_id: int, codes: list[int]) -> Answer:
    """Return the encoded response, and add its error codes to `codes`."""
    pieces: Any = write_response(response, version, correlation_id=correlation_id).pieces()
    if bound.codes is not None:
        bound.codes(response, codes)
    answer: Answer = pieces  # those elsewhere come from handlers, and can be sent
    return answer
