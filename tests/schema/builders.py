"""Small message schemas for tests."""

import json
from typing import Any

from magicbyte.schema import MessageSchema, check

Json = dict[str, Any]


def field(name: str = "A", **keys: object) -> Json:
    """Return a field of a message."""
    return {"name": name, "type": "int32", "versions": "0+", **keys}


def checked(frame: Json, *fields: Json, **keys: object) -> MessageSchema:
    """Compile a message with these fields, which must have no errors."""
    message, errors = check(json.dumps({**frame, "fields": list(fields), **keys}))
    assert message is not None, errors
    return message
