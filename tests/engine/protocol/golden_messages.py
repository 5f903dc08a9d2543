"""The frozen messages of Kafka's own classes: see tests/golden/README.md."""

import base64
import gzip
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from engine.protocol.interpreter import Values

PATH = Path(__file__).parents[2] / "golden/protocol/messages.jsonl.gz"


class GoldenMessage(NamedTuple):
    """A message as values and as bytes."""

    name: str
    version: int
    values: Values
    data: bytes


@cache
def golden_messages() -> tuple[GoldenMessage, ...]:
    """Return all frozen messages, by name and version."""
    lines = map(json.loads, gzip.decompress(PATH.read_bytes()).splitlines())
    return tuple(
        GoldenMessage(line["message"], line["version"], line["values"], base64.b64decode(line["bytes"]))
        for line in lines
    )
