"""Kafka's messages: every request, response, header and stored record, in every version.

    >>> from magicbyte.engine.protocol.messages.metadata import MetadataRequest
    >>> MetadataRequest(topics=None).encode(1)
    b'\\xff\\xff\\xff\\xff'
    >>> MetadataRequest.read(b"\\xff\\xff\\xff\\xff", 1).topics is None
    True

`messages` has a module for each API, `stored` one for each record of the internal topics; `APIS` lists the APIs by
their keys. All of it is imported when it is used. docs/protocol describes the messages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magicbyte.engine.protocol.api import Api
    from magicbyte.engine.protocol.apis import APIS
    from magicbyte.engine.protocol.fields import NULL_UUID
    from magicbyte.engine.protocol.framing import (
        FramedRequest,
        Frames,
        api_of,
        read_request,
        read_request_header,
        read_response,
        write_request,
        write_response,
    )
    from magicbyte.engine.protocol.message import Message, Writer

__all__ = [
    "APIS",
    "NULL_UUID",
    "Api",
    "FramedRequest",
    "Frames",
    "Message",
    "Writer",
    "api_of",
    "read_request",
    "read_request_header",
    "read_response",
    "write_request",
    "write_response",
]

_HOMES = {"APIS": "apis", "Api": "api", "Message": "message", "NULL_UUID": "fields", "Writer": "message"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'framing')}"), name)
