"""A broker for tests: it answers what a script says, in the manner of a release, and keeps what it was asked."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from magicbyte.access.client import Client
from magicbyte.engine.protocol import APIS, Frames, Message, read_request, write_response
from magicbyte.engine.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatResponse
from magicbyte.engine.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

API_VERSIONS, METADATA, HEARTBEAT = 18, 3, 12
UNSUPPORTED, INVALID_REQUEST = 35, 42
Answer = Callable[[Any, int], Message | bytes | None]  # of a request and its version; None closes the connection


class ScriptedBroker:
    """Answers requests by API key. Its one topic has partitions 0 and 1, and this broker leads them.

    `manner`: "new" knows ApiVersions up to version 3 and answers later ones as KIP-511 has it, "0.10" up to 0 with an
    empty list; "0.9" ignores what it does not know, "0.8.2" closes the connection. `versions`: what it says it takes.
    """

    def __init__(self, manner: str = "new", versions: dict[int, range] | None = None, topic: str = "topic") -> None:
        self.manner = manner
        self.topic = topic
        self.versions = {api.key: api.versions for api in APIS.values()} | (versions or {})
        self.answers: dict[int, Answer] = {METADATA: self.metadata}
        self.requests: list[tuple[Any, int]] = []  # but for ApiVersions
        self.connections = 0
        self.port = 0
        self.metadata_error = 0

    def asked(self, kind: type[Message]) -> list[Any]:
        return [request for request, _ in self.requests if isinstance(request, kind)]

    def metadata(self, request: Any, version: int) -> MetadataResponse:
        everything = request.topics is None or (version == 0 and not request.topics)
        names = [self.topic] if everything else [each.name for each in request.topics]
        error = self.metadata_error
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=7, host="127.0.0.1", port=self.port)],
            controller_id=7,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    error_code=error if name == self.topic else 3,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=index, leader_id=7, replica_nodes=(7,), isr_nodes=(7,)
                        )
                        for index in (0, 1)
                        if name == self.topic and not error
                    ],
                )
                for name in names
            ],
        )

    def api_versions(self, version: int) -> tuple[ApiVersionsResponse, int]:
        known = {"new": 3, "0.10": 0}[self.manner]
        keys = [
            ApiVersion(api_key=key, min_version=each[0], max_version=each[-1])
            for key, each in self.versions.items()
            if each
        ]
        if version <= known:
            return ApiVersionsResponse(api_keys=keys), version
        own = [ApiVersion(api_key=API_VERSIONS, max_version=known)] if known else []
        return ApiVersionsResponse(error_code=UNSUPPORTED, api_keys=own), 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        frames = Frames()
        try:
            while data := await reader.read(65536):
                for frame in frames.feed(data):
                    answer = self.answer(bytes(frame))
                    if answer is None:
                        return
                    writer.write(answer)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def answer(self, frame: bytes) -> bytes | None:
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        correlation_id = int.from_bytes(frame[4:8], "big")
        if key == API_VERSIONS:
            if self.manner in ("0.9", "0.8.2"):
                return b"" if self.manner == "0.9" else None
            response, version = self.api_versions(version)
            if version >= 3 and not tells_software(frame):
                response = ApiVersionsResponse(error_code=INVALID_REQUEST)  # as Kafka's brokers answer
            return bytes(write_response(response, version, correlation_id=correlation_id))
        request = read_request(frame)
        if key == HEARTBEAT and key not in self.answers:
            return bytes(write_response(HeartbeatResponse(error_code=16), version, correlation_id=correlation_id))
        self.requests.append((request.message, version))
        found = self.answers[key](request.message, version)
        if isinstance(found, bytes | None):
            return found
        return bytes(write_response(found, version, correlation_id=correlation_id))


def tells_software(frame: bytes) -> bool:
    request = read_request(frame).message
    return isinstance(request, ApiVersionsRequest) and request.client_software_name != ""


@contextmanager
def scripted(broker: ScriptedBroker) -> Iterator[str]:
    """Run a broker on a loop of its own inside the block; yield where it is."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(broker.serve, "127.0.0.1", 0))
    broker.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{broker.port}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(_end(server))
        loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    await server.wait_closed()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:  # of connections whose end was not yet read
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@asynccontextmanager
async def cluster(broker: ScriptedBroker, **options: Any) -> AsyncIterator[Client]:
    """Run a broker and a client of it inside the block."""
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        async with Client(f"127.0.0.1:{broker.port}", **{"retry_ms": 2000, "backoff_ms": 1} | options) as client:
            yield client
        await asyncio.sleep(0)
    finally:
        server.close()
        await server.wait_closed()
