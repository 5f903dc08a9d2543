"""Every byte that a peer sends before it has logged in, through the entrance of a broker whose peer is a script."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

from magicbyte.access.net.server import AdmittedConnection, Entrance
from magicbyte.access.net.stream import Buffer
from magicbyte.access.security.server import credential_of_password
from magicbyte.engine.cluster.changes import ScramCredentialChanged, apply
from magicbyte.engine.cluster.image import ClusterImage
from magicbyte.engine.errors import MagicbyteError
from magicbyte.server.apis.broker_routes import BROKER_ROUTES
from magicbyte.server.metadata.memory import MemoryStore
from magicbyte.server.serving.dispatch import Dispatcher, Router
from magicbyte.server.serving.entrance import EntranceServices, entrances
from magicbyte.server.serving.runtime import Runtime
from magicbyte.server.serving.shared_answers import SharedAnswers
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.scram_users import credential_of
from magicbyte.server.stores.znodes.clients import secret_of_decoys

PASSWORD: Final = "wonderland"
HANDSHAKE: Final = bytes.fromhex("0011000100000001000163")
OLD_HANDSHAKE: Final = bytes.fromhex("0011000000000001000163")
VERSIONS: Final = bytes.fromhex("0012000000000001000163")
AUTHENTICATE: Final = bytes.fromhex("0024000100000002000163")
LISTENER: Final = "SASL_PLAINTEXT"
MOST_ANSWERED: Final = 64 << 10
MOST_TURNS: Final = 64
MOST_PIECES: Final = 12
T = TypeVar("T")


class _AtOnce:
    """Threads that are none."""

    def __init__(self, _name: str, _most: int) -> None:
        self.pool: Any = None

    async def run(self, work: Any, *arguments: Any, **named: Any) -> Any:
        return work(*arguments, **named)

    run_short = run

    async def warm_kernels(self) -> None:
        """Load nothing."""

    def close(self) -> None:
        """End nothing."""


class _Script:
    """A peer that sends some bytes at once, the next ones in pieces, the rest at once, and is gone.

    A loop over single bytes of a long token would take most of the time and show nothing new.
    """

    peer = "peer"
    is_closed = is_abandoned = False
    moved = 0

    def __init__(self, before: bytes, data: bytes, piece: int) -> None:
        self._before, self._left, self._piece = before, memoryview(data), piece
        self._pieces = 0
        self.answered = 0

    async def read(self, size: int) -> bytes:
        return bytes(self._taken(size))

    async def read_into(self, buffer: memoryview) -> int:
        taken = self._taken(len(buffer))
        buffer[: len(taken)] = taken
        return len(taken)

    def _taken(self, size: int) -> memoryview:
        if before := self._before:
            assert len(before) <= size, "a broker reads as much as a handshake has"
            self._before = b""
            return memoryview(before)
        self._pieces += 1
        count = min(size, self._piece) if self._pieces <= MOST_PIECES else size
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    async def write(self, buffers: Sequence[Buffer], *, more: bool = False) -> None:
        self.answered += sum(map(len, buffers))


class _NoLoop:
    """The running event loop of a login that never waits: what is to be called soon is called at once."""

    @staticmethod
    def call_soon_threadsafe(callback: Callable[..., object], *arguments: object) -> None:
        callback(*arguments)


_NO_LOOP: Final = _NoLoop()


def finished(login: Coroutine[Any, Any, T]) -> T:
    """Run a login to its end without an event loop, which would take most of the time.

    `asyncio.sleep(0)` yields None. A future means that the login waits for something that does not come.
    """
    asyncio._set_running_loop(_NO_LOOP)  # type: ignore[arg-type]  # what of it is used
    try:
        for _ in range(MOST_TURNS):
            assert login.send(None) is None, "a login waits"
    except StopIteration as end:
        return cast("T", end.value)
    finally:
        asyncio._set_running_loop(None)
        login.close()
    raise AssertionError(f"a login takes more than {MOST_TURNS} turns")


class _Place:
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        keys = Path(self.folder.name) / "keys.json"
        number = base64.urlsafe_b64encode(((1 << 2047) + 12_345).to_bytes(256, "big")).decode().rstrip("=")
        keys.write_text(json.dumps({"keys": [{"kty": "RSA", "kid": "one", "e": "AQAB", "n": number}]}))
        import_module("numpy")  # which a broker loads in a thread when the first large frame comes
        asyncio.run(self._prepare(f"file://{keys}"))

    async def _prepare(self, keys: str) -> None:
        config = BrokerConfig(
            {
                "listeners": f"{LISTENER}://127.0.0.1:0",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": keys,
                "sasl.oauthbearer.expected.audience": "kafka",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'm required user_alice="{PASSWORD}";',
                "connection.failed.authentication.delay.ms": "0",
            }
        )
        self.runtime = runtime = Runtime(config, config.offer, threads=_AtOnce)
        store = MemoryStore(runtime.clock)
        kept = credential_of_password("SCRAM-SHA-256", PASSWORD, b"salt of a test")
        image = apply(ClusterImage(), ScramCredentialChanged("alice", "SCRAM-SHA-256", kept))
        parts = SimpleNamespace(
            runtime=runtime, shared_answers=SharedAnswers(), cluster_store=SimpleNamespace(image=image)
        )
        router = Router(runtime, BROKER_ROUTES, parts, None)
        services = EntranceServices(
            runtime,
            partial(credential_of, lambda: image),
            partial(secret_of_decoys, store),
            partial(Dispatcher, router),
        )
        self.entrance: Entrance = entrances(services)[LISTENER]

    def enter(self, before: bytes, data: bytes, piece: int) -> tuple[AdmittedConnection | None, int]:
        """Return the user that was admitted, if any, and the number of bytes in the answers."""
        script = _Script(before, data, piece)

        async def work() -> AdmittedConnection | None:
            try:
                return await self.entrance(script, "127.0.0.1")  # type: ignore[arg-type]
            except MagicbyteError:
                return None

        return finished(work()), script.answered


@cache
def place() -> _Place:
    return _Place()


def framed(*frames: bytes) -> bytes:
    return b"".join(len(each).to_bytes(4, "big") + each for each in frames)


def shaken(mechanism: str, head: bytes = HANDSHAKE) -> bytes:
    return head + len(mechanism).to_bytes(2, "big") + mechanism.encode()


def token(data: bytes) -> bytes:
    return AUTHENTICATE + len(data).to_bytes(4, "big") + data


STATES: Final = (
    b"",
    framed(VERSIONS),
    framed(shaken("PLAIN")),
    framed(shaken("SCRAM-SHA-256")),
    framed(shaken("OAUTHBEARER")),
    framed(shaken("PLAIN", OLD_HANDSHAKE)),
    framed(shaken("SCRAM-SHA-256", OLD_HANDSHAKE)),
    framed(shaken("OAUTHBEARER", OLD_HANDSHAKE)),
)
"""The bytes before the input, by its first byte. The upper half says in which pieces bytes come, and whether the rest
is a token that is put into a request."""


def fuzz_login(data: bytes) -> None:
    """Promise: a client without the password is not admitted, and no memory stays reserved."""
    first, rest = (data[0], data[1:]) if data else (0, b"")
    before = STATES[first & 7]
    if first & 8:
        rest = framed(token(rest)) if before[4:8] == HANDSHAKE[:4] else framed(rest)
    entered, answered = place().enter(before, rest, 1 + (first >> 4) ** 3)
    assert entered is None or PASSWORD.encode() in rest, "a stranger came in"
    assert answered <= MOST_ANSWERED
    if entered is not None:
        entered.incoming.release()
    assert place().runtime.memory.used == place().runtime.login_memory.used == 0


def login_inputs() -> Iterator[tuple[str, bytes]]:
    """Yield names and inputs to begin with: logins that succeed, and the first messages of others."""
    plain, scram = b"\0alice\0" + PASSWORD.encode(), b"n,,n=alice,r=abc"
    head = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"one"}').rstrip(b"=")
    claims = base64.urlsafe_b64encode(b'{"sub":"alice","aud":"kafka","exp":4000000000}').rstrip(b"=")
    bearer = b"n,,\x01auth=Bearer " + head + b"." + claims + b"." + b"A" * 342 + b"\x01\x01"
    final = framed(token(scram), token(b"c=biws,r=abcdef,p=" + b"A" * 43 + b"="))
    for upper in (0x00, 0x30, 0xF0):
        yield f"plain-{upper}", bytes([upper | 2 | 8]) + plain
        yield f"old-plain-{upper}", bytes([upper | 5 | 8]) + plain
        yield f"scram-{upper}", bytes([upper | 3]) + final
        yield f"old-scram-{upper}", bytes([upper | 6 | 8]) + scram
        yield f"bearer-{upper}", bytes([upper | 4 | 8]) + bearer
        yield f"bearer-again-{upper}", bytes([upper | 4]) + framed(token(b"n,,\x01auth=Bearer x\x01\x01"), token(b"\1"))
        yield f"whole-{upper}", bytes([upper]) + framed(VERSIONS, shaken("PLAIN"), token(plain))
        yield f"versions-{upper}", bytes([upper | 1]) + framed(bytes.fromhex("001200030000000100016300026101620100"))
        yield f"metadata-{upper}", bytes([upper]) + framed(bytes.fromhex("0003000100000003000163ffffffff"))
        yield f"tls-{upper}", bytes([upper]) + bytes.fromhex("16030102000100")
