"""The schema compiler: Kafka's message files, with per-field integer encodings (KIP-625), in; checked trees out.

    >>> from magicbyte.schema import check
    >>> message, errors = check('{"type": "data", "name": "Tick", "validVersions": "0", "fields": []}')
    >>> print(errors[0])
    <text>:1:1: Tick: missing-key: expected the key "flexibleVersions", found none; write "flexibleVersions": "0+", …

The language is told in docs/schema/grammar.md. At run time nothing imports this room: generated code needs only
`magicbyte.protocol`.
"""

from magicbyte.schema.check import check
from magicbyte.schema.errors import Rule, SchemaError, SchemaErrors
from magicbyte.schema.files import load, load_directory, read
from magicbyte.schema.tree import Default, Encoding, FieldSchema, FieldType, MessageSchema, Place, StructSchema
from magicbyte.schema.versions import Versions

__all__ = [
    "Default",
    "Encoding",
    "FieldSchema",
    "FieldType",
    "MessageSchema",
    "Place",
    "Rule",
    "SchemaError",
    "SchemaErrors",
    "StructSchema",
    "Versions",
    "check",
    "load",
    "load_directory",
    "read",
]
