"""Every Kafka message format in one package: read, write, convert, compact, serve, mirror.

    for record in magicbyte.records("logs/orders-0", since="2016-11-01"):
        print(record.offset, record.key, record.value)

    table = magicbyte.open_log("logs").to_arrow(topic="orders")

The names in `__all__`, with the signatures of the functions and the attributes of their results, are the public
interface; docs/python/api.md describes them. Every other module is internal: it moves and changes without notice.

Importing this package loads none of it. Each name is imported when it is first used.
"""

import sys

TYPE_CHECKING = False  # true for type checkers; importing `typing` would take longer than everything else here
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from magicbyte import testing
    from magicbyte.access.client.producer import RecordProducer
    from magicbyte.engine.codecs import Codec
    from magicbyte.engine.errors import (
        BatchTooLargeError,
        BrokerError,
        CorruptRecordError,
        LogDirectoryError,
        MagicbyteError,
        NetworkError,
        TruncatedLogError,
        UnknownTopicError,
        UnsupportedCompressionError,
    )
    from magicbyte.engine.records.columns import Record
    from magicbyte.engine.records.encode import Format
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.public.client import Client
    from magicbyte.public.logs import Log, open_log, records
    from magicbyte.public.operations import convert, diff, inventory, salvage, verify
else:
    ModuleType = type(sys)

__version__ = "0.1.0"

__all__ = [
    "BatchTooLargeError",
    "BrokerError",
    "Client",
    "Codec",
    "CorruptRecordError",
    "Dialect",
    "Format",
    "Log",
    "LogDirectoryError",
    "MagicbyteError",
    "NetworkError",
    "Record",
    "RecordProducer",
    "TruncatedLogError",
    "UnknownTopicError",
    "UnsupportedCompressionError",
    "convert",
    "diff",
    "inventory",
    "open_log",
    "records",
    "salvage",
    "testing",
    "verify",
]

_MODULES = {
    "Client": "public.client",
    "Codec": "engine.codecs",
    "Dialect": "engine.records.layout",
    "Format": "engine.records.encode",
    "Log": "public.logs",
    "RecordProducer": "access.client.producer",
    "Record": "engine.records.columns",
    "convert": "public.operations",
    "diff": "public.operations",
    "inventory": "public.operations",
    "open_log": "public.logs",
    "records": "public.logs",
    "salvage": "public.operations",
    "verify": "public.operations",
}
"""The module of each public name that is neither an error nor a module."""


def _imported(name: str) -> "ModuleType":
    """Import a module of this package, without `importlib`, which would have to be loaded first."""
    __import__(f"{__name__}.{name}")
    return sys.modules[f"{__name__}.{name}"]


if not TYPE_CHECKING:  # otherwise type checkers would accept every name

    def __getattr__(name: str) -> "Any":
        """Import a public name at its first use (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}: expected one of {', '.join(__all__)}")
        if name == "testing":
            return _imported("testing")
        value = getattr(_imported(_MODULES.get(name, "engine.errors")), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return [*__all__, "__version__"]
