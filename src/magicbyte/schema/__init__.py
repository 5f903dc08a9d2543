"""The schema compiler: parses Kafka's message files, with per-field integer encodings (KIP-625), into checked trees.

    >>> from magicbyte.schema import check
    >>> message, errors = check('{"type": "data", "name": "Tick", "validVersions": "0", "flexibleVersions": "0+"}')
    >>> print(errors[0].rule, errors[0].mend)
    missing-key write "fields": [] where there are none

docs/schema/grammar.md describes the language. At run time nothing imports this room: generated code needs only
`magicbyte.engine.protocol`.
"""

from magicbyte.schema.advise import Advice, advise
from magicbyte.schema.check import check
from magicbyte.schema.diff import Change, ChangeKind, compare
from magicbyte.schema.errors import Rule, SchemaError, SchemaErrors, SchemaValueError, UnknownMessageError
from magicbyte.schema.files import bundled, bundled_file, load, load_bundled, load_directory, read
from magicbyte.schema.python import modules
from magicbyte.schema.sizes import FieldSize, MessageSize, measure
from magicbyte.schema.tree import Default, Encoding, FieldSchema, FieldType, MessageSchema, SourcePlace, StructSchema
from magicbyte.schema.versions import Versions

__all__ = [
    "Advice",
    "Change",
    "ChangeKind",
    "Default",
    "Encoding",
    "FieldSchema",
    "FieldSize",
    "FieldType",
    "MessageSchema",
    "MessageSize",
    "Rule",
    "SchemaError",
    "SchemaErrors",
    "SchemaValueError",
    "SourcePlace",
    "StructSchema",
    "UnknownMessageError",
    "Versions",
    "advise",
    "bundled",
    "bundled_file",
    "check",
    "compare",
    "load",
    "load_bundled",
    "load_directory",
    "measure",
    "modules",
    "read",
]
