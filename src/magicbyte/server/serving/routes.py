"""The routes of a server: what it answers, declared once for each API, beside its handler.

A start imports no handler. What a server must know of a route before its first request is in a table that
`tools/generate.py` writes from the routes: `settings/served.py` is that of brokers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from magicbyte.access.net.server import FrameLimit
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.outcomes import codes_of

if TYPE_CHECKING:
    from magicbyte.engine.protocol.api_key import ApiKey
    from magicbyte.server.serving.authorization import Rights
    from magicbyte.server.serving.request import UnboundHandler
    from magicbyte.server.serving.topic_ids import ById
    from magicbyte.server.settings.versions import Served

KIB, MIB = 1 << 10, 1 << 20
ONE_NAME: Final = 256 * KIB
"""Bytes of a request with one name: each string may have 32 KiB."""
OTHERS_MOST_BYTES: Final = ONE_NAME
"""The largest frame of an API without a route: enough to parse its header, and refuse it."""
FEW, MANY = 1_000, 50_000
"""Elements of requests about one thing, and about many."""
ALL_PARTITIONS: Final = 500_000
"""Elements of a controller's request about a whole cluster: some ten for each of its partitions."""
_ANY_SIZE: Final = 1 << 31  # larger than any frame: the setting is the limit
_KEY: Final = struct.Struct(">h")


class Route(Struct, frozen=True):
    """One API of a server: the versions it answers, its handler, the cost limits of one request, and who may send it.

    The lowest version is always 0: librdkafka deduces features from it, and old clients do not ask. `most_bytes`: of a
    frame, None: the broker's `socket.request.max.bytes`, which is the upper bound for all. `most_elements`: of all its
    arrays and tagged fields. Both allow requests about 10,000 topics with names of 249 bytes, or about 40,000
    partitions, if an API can have that many. `rights`: what its sender needs, None: nothing. `of_brokers`: brokers send
    it, and their time is not counted in request quotas. `by_id`: fills in the names of topics that are named by id;
    None: there are none, or the handler resolves them.
    """

    key: ApiKey
    versions: range
    handler: UnboundHandler
    most_bytes: int | None
    most_elements: int
    rights: Rights | None = None
    of_brokers: bool = False
    by_id: ById | None = None


class Routes:
    """The routes of one kind of server. `package` has their modules, each with `ROUTES`; `served` lists them."""

    def __init__(self, package: str, served: Mapping[int, Served]) -> None:
        self._package, self._served = package, served
        self._loaded: dict[int, Route] = {}

    def frame_limit_of(self, head: memoryview) -> FrameLimit:
        """Return the treatment of a frame that begins with `head`, which starts with the API key."""
        served = self._served.get(_KEY.unpack_from(head)[0])
        if served is None:
            return FrameLimit(OTHERS_MOST_BYTES, is_kept=False)
        return FrameLimit(
            _ANY_SIZE if served.most_bytes is None else served.most_bytes, is_kept=served.most_bytes is None
        )

    def loaded(self, key: int) -> Route | None:
        """Return the route of an API if its module was imported."""
        return self._loaded.get(key)

    def load(self, key: int) -> Route:
        """Return the route of an API; its module is imported if needed."""
        if key not in self._loaded:
            module: Any = import_module(f"{self._package}.{self._served[key].module}")
            self._loaded.update({route.key: route for route in module.ROUTES})
        return self._loaded[key]

    def load_all(self, keys: Iterable[int] | None = None) -> None:
        """Import the modules of APIs, by default of all, and what collects the error codes of their responses."""
        for key in self._served if keys is None else keys:
            self.load(key)
            codes_of(APIS[key].response)
