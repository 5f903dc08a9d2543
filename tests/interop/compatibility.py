"""docs/reference/compatibility.md, written from what a run of the matrix found."""

import json
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from interop import matrix
from interop.matrix import FEATURES, FORMATS, NOT_THERE, Results, reason

HERE: Final = Path(__file__).parent
NUMBERS: Final = "¹²³⁴⁵⁶⁷⁸⁹"
HEAD: Final = """# Tested clients

Which clients were tested against `magicbyte serve`, with which features. Fifteen clients run at the same time, each
in its own process, with topics of each message format. `tests/interop/test_clients.py` runs them and writes this
page; the programs are in `tests/interop/clients`.

The same programs passed every cell of formats 0, 1 and 2 against Kafka 2.8.2 (414 cells, 675 pairs), and every cell
of format 2 against Kafka 3.9.1 (160 and 225): `python -m interop.matrix 2.8.2`, in `tests/`.

✓ passed, ✗ failed, — not possible, for the numbered reason below. A cell has one sign for each of the formats 0, 1, 2
and enriched, or one sign for all four.
"""
WHAT: Final = """
- **produce**: 11 records (kcat: 7) with each codec and acks=all: also empty and null keys and values, explicit
  timestamps, and headers in format 2. The log must then contain sets of the topic's format and codec. **idempotent**:
  the same with a producer id.
- **consume**: the records of all clients, uncompressed, gzip and snappy. LZ4 and zstd have separate topics.
- **commit and resume**: a group member reads 7 of 20 records, commits and leaves; another member reads the other 13.
- **group**: a member has both partitions, shares them with another member, then has both again. No record is missed.
- **admin**: a topic with a message format is created, described and deleted.
"""
CROSS: Final = """
## Records between clients

Each reader's keys, values, timestamps and headers are compared with each writer's ledger, as far as reader, writer
and format support them. Format 0 and Java 0.8 and 0.9 have no timestamps. Enriched topics have the append time.
Headers need format 2 and Java 0.11. LZ4 and zstd are compared where the table above has a ✓. kcat writes text only:
no explicit timestamps, no headers, no empty values.

librdkafka 2.15.0 is not in the table. Its consumer stalls in a log of several message formats, with real brokers too.
"""


def page(results: Results) -> str:
    """Return the whole page."""
    reasons = list(dict.fromkeys(why for *_, why in NOT_THERE))
    rows = [
        [f"{client} {found}".strip(), *(cell(results, client, feature, reasons) for feature in FEATURES)]
        for client, found in zip(matrix.COMMANDS, versions(), strict=True)
    ]
    notes = [f"{number} {why}" for number, why in zip(NUMBERS, reasons, strict=False)]
    crossed = [[reader, *(pair(results, writer, reader) for writer in matrix.COMMANDS)] for reader in matrix.COMMANDS]
    return "\n".join(
        [
            HEAD,
            *table(["Client", *FEATURES], rows),
            "",
            "; ".join(notes) + ".",
            WHAT + CROSS,
            *table(["Reader \\ writer", *matrix.COMMANDS], crossed),
            "",
        ]
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def cell(results: Results, client: str, feature: str, reasons: list[str]) -> str:
    signs = []
    for magic in FORMATS:
        why = reason((client, feature, magic))
        passed = results.cells.get((client, feature, magic), "not tried") is None
        signs.append(f"—{NUMBERS[reasons.index(why)]}" if why else "✓" if passed else "✗")
    return short(signs)


def pair(results: Results, writer: str, reader: str) -> str:
    return short(["✓" if results.pairs.get((writer, reader, magic), "not tried") is None else "✗" for magic in FORMATS])


def short(signs: list[str]) -> str:
    return signs[0] if len(set(signs)) == 1 else " ".join(signs)


def versions() -> list[str]:
    """Return the version of each client that its name does not tell; kcat is the system's."""
    modules = (HERE / "clients/go/go.mod").read_text()
    packages = json.loads((HERE / "clients/node/package.json").read_text())["dependencies"]
    found = {name: version(name) for name in ("confluent-kafka", "kafka-python", "aiokafka")}
    for name, module in (("franz-go", r"twmb/franz-go"), ("sarama", "IBM/sarama")):
        match = re.search(rf"{module} v(\S+)", modules)
        assert match is not None
        found[name] = match[1]
    found["kafkajs"] = packages["kafkajs"]
    return [found.get(client, "") for client in matrix.COMMANDS]
