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
HEAD: Final = """# Clients

Fifteen clients against `magicbyte serve`, each a process of its own, all at the same time, with topics of each message
format. Written by the run of `tests/interop/test_clients.py`; the programs are in `tests/interop/clients`.

The same programs passed every cell of formats 0, 1 and 2 against Kafka 2.8.2 (414 cells, 675 pairs), and those of
format 2 against Kafka 3.9.1 (160 and 225): `python -m interop.matrix 2.8.2`, in `tests/`.

✓ passed, ✗ failed, — cannot be, for the reason of that number. Formats stand in the order 0, 1, 2, enriched; a cell
with one sign is the same for all four.
"""
WHAT: Final = """
- **produce**: 11 records (kcat: 7) with each codec, keys and values also empty and null, explicit times, headers in
  format 2; acks=all; the log then holds sets of the topic's format, compressed with that codec. **idempotent**: the
  same with a producer id.
- **consume**: all that all clients wrote uncompressed, with gzip and with snappy; LZ4 and zstd have topics of their
  own.
- **commit and resume**: a member of a group reads 7 of 20 records, commits, leaves; another one reads the other 13.
- **group**: a member has both partitions, then shares them with another, then has both again; no record is missed.
- **admin**: a topic with a message format of its own is made, described, deleted.
"""
CROSS: Final = """
## Who reads whom

Keys, values, timestamps and headers that each reader saw are those of each writer's ledger, as far as reader, writer
and format have them: no timestamps in format 0 nor with Java 0.8 and 0.9; the time of the append in enriched topics;
headers in format 2 from Java 0.11 on; LZ4 and zstd where the table above has a ✓. kcat writes text alone: no times of
its own choice, no headers, nothing empty.

librdkafka 2.15.0 is not in the table: its consumer stalls in a log of several message formats, with real brokers as
well as here.
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
