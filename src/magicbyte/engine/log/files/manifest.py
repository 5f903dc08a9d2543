"""Parse what a pipeline committed to an object store: its newest manifest lists the objects of partitions.

`docs/decisions/0007-pipeline.md` has the names. On file systems with rename, outputs have Kafka's names, and readers do
not need the manifest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from magicbyte.engine.errors import LogDirectoryError

if TYPE_CHECKING:
    from magicbyte.engine.log.files.store import ObjectStore

_NAME = re.compile(r"pipeline-([0-9]{8})\.json")
LARGEST = 1 << 30
"""The maximum size of a manifest, which has some 5 kB for each partition."""


class Output(NamedTuple):
    """A partition folder, or a table. `at`: the location of its objects, relative to the sink; for a table its object.

    `files`: names, sizes in bytes, SHA-256 of the content in hex.
    """

    name: str
    at: str
    files: tuple[tuple[str, int, str], ...]


class StoredSink(NamedTuple):
    """The content of a sink in a store. `checkpoints`: the location of the files beside the partitions."""

    outputs: tuple[Output, ...]
    checkpoints: str
    tables: bool


def manifest_name(number: int) -> str:
    """Return the name of manifest `number`."""
    return f"pipeline-{number:08}.json"


def manifest_number(name: str) -> int | None:
    """Return the number of a manifest, None for any other name."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def newest(names: Iterable[str]) -> int:
    """Return the number of the newest manifest; 0 if there is none."""
    return max((number for name in names if (number := manifest_number(name)) is not None), default=0)


def parse_stored(content: bytes) -> StoredSink | None:
    """Parse a manifest; return None if its sink is a folder. Raises LogDirectoryError."""
    try:
        fields: Mapping[str, Any] = json.loads(content)
        if "checkpoints" not in fields:
            return None
        outputs = [
            Output(
                each["name"], each["at"], tuple((file["name"], file["size"], file["sha256"]) for file in each["files"])
            )
            for unit in fields["units"].values()
            for each in unit["outputs"]
        ]
        return StoredSink(tuple(outputs), fields["checkpoints"], fields["tables"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogDirectoryError(f"expected the manifest of a pipeline: {error!r}") from error


def read_stored(store: ObjectStore) -> StoredSink | None:
    """Parse the newest manifest of a store; return None if there is none. Raises LogDirectoryError."""
    number = newest(name for name in store.sizes() if "/" not in name)
    return parse_stored(store.read(manifest_name(number))) if number else None
