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
    from inspect import Signature
    from types import ModuleType
    from typing import Any

    from magicbyte import testing
    from magicbyte.client.producer import RecordProducer
    from magicbyte.codecs import Codec
    from magicbyte.errors import (
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
    from magicbyte.public.client import Client
    from magicbyte.public.logs import Log, open_log, records
    from magicbyte.public.operations import convert, diff, inventory, salvage, verify
    from magicbyte.records.columns import Record
    from magicbyte.records.encode import Format
    from magicbyte.records.layout import Dialect
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
    "Codec": "codecs",
    "Dialect": "records.layout",
    "Format": "records.encode",
    "Log": "public.logs",
    "RecordProducer": "client.producer",
    "Record": "records.columns",
    "convert": "public.operations",
    "diff": "public.operations",
    "inventory": "public.operations",
    "open_log": "public.logs",
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
        value = getattr(_imported(_MODULES.get(name, "errors")), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return [*__all__, "__version__"]


class _CallableRoom(ModuleType):
    """The module `magicbyte.records`, which is also the public function.

    The public function has the name of an internal package: any import from that package replaces the function by the
    package in this namespace.
    """

    def __call__(self, *args: "Any", **kwargs: "Any") -> "Any":
        """Call the public function."""
        return self._function(*args, **kwargs)

    def __reduce__(self) -> "tuple[Any, ...]":
        """Pickle the module by name, as cloudpickle does with ordinary modules."""
        return _imported, ("records",)

    @property
    def __signature__(self) -> "Signature":
        """The function's signature, for `help` and editors."""
        from inspect import signature

        return signature(self._function)

    @property
    def _function(self) -> "Any":
        from magicbyte.public.logs import records

        return records


_imported("records").__class__ = _CallableRoom  # a cheap import: the package's `__init__` has only a docstring
