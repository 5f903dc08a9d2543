"""The project's own schemas, loaded once for all tests."""

from functools import cache
from pathlib import Path

from magicbyte.schema import MessageSchema, load_directory

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = ROOT / "schemas"


@cache
def all_schemas() -> dict[str, MessageSchema]:
    """Return every request, response, header and stored record of Kafka, by name."""
    return load_directory(SCHEMAS / "messages") | load_directory(SCHEMAS / "records")


@cache
def versions() -> tuple[tuple[str, int], ...]:
    """Return the name and the number of every version of every message."""
    return tuple((name, version) for name, schema in all_schemas().items() for version in schema.valid_versions)
