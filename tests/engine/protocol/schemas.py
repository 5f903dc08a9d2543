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
def ends() -> tuple[tuple[str, int], ...]:
    """Return the name of every message with the numbers of its first and its last version."""
    numbers = {name: list(schema.valid_versions) for name, schema in all_schemas().items() if schema.valid_versions}
    return tuple((name, version) for name, valid in numbers.items() for version in dict.fromkeys((valid[0], valid[-1])))


def versions() -> tuple[tuple[str, int], ...]:
    """Return the name and the number of every version of every message."""
    return tuple((name, version) for name, schema in all_schemas().items() for version in schema.valid_versions)
