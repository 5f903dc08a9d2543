"""Random produced sets through Kafka's own validator and through our append: same decision, offsets and bytes.

Where we answer something else on purpose (docs/internals/append.md), the inputs say so, and both answers are expected.
"""

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from builders import base64_text, unbase64
from engine.log.made_sets import batch as one_batch
from engine.log.made_sets import messages, patched, wrapped, wrapper
from interop import jvm
from interop.batches import CODECS, blob
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import AppendRefusedError
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.record_set import RecordSet
from magicbyte.engine.log.append.rules import UNLIMITED_MS, AppendRules
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    MAGIC,
    MESSAGE_ATTRIBUTES,
    MESSAGE_CRC,
    RECORD_COUNT,
    TimestampType,
)
from wire_reader import unpacked

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

SEED = 20261121
NOW = 1_700_000_000_000
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = ("producer", *CODEC_NAMES)
Json = dict[str, Any]


class Case(NamedTuple):
    """A set and a topic. `kafka` and `ours`: the codes, where the documented answers differ; None: they do not."""

    data: bytes
    rules: AppendRules
    kafka: int | None = None
    ours: int | None = None

    def asked(self) -> Json:
        rules = self.rules
        return {
            "records": base64_text(self.data),
            "magic": rules.format.magic,
            "codec": "producer" if rules.codec is None else CODEC_NAMES[rules.codec],
            "timestampType": rules.timestamp_type.label,
            "before": rules.before_max_ms,
            "after": rules.after_max_ms,
            "compacted": rules.compacted,
            "now": NOW,
            "nextOffset": 1_234_567,
            "leaderEpoch": 9,
        }

    def append(self) -> RecordSet | AppendRefusedError:
        try:
            return prepare(memoryview(self.data), self.rules, next_offset=1_234_567, now_ms=NOW, leader_epoch=9,
                           request_version=None)  # fmt: skip
        except AppendRefusedError as refusal:
            return refusal


def records(rng: random.Random, count: int, *, odd_time: bool, keyless: bool, headers: bool) -> list[Record]:
    made = []
    for at in range(count):
        time = NOW + rng.randrange(-900, 900)
        if odd_time and rng.random() < 0.2:
            time = rng.choice((-1, NOW - 5000, NOW + 5000))
        key = None if keyless and rng.random() < 0.2 else blob(rng, rng.randrange(30))
        value = None if rng.random() < 0.1 else blob(rng, rng.choice((0, 5, 200, 3000)))
        names = (("h", b"v"), ("", None)) if headers and rng.random() < 0.3 else ()
        made.append(Record(at, time, 0, key, value, names))
    return made


def produced(rng: random.Random, magic: int, codec: Codec, some: list[Record]) -> bytes:
    """A set as a producer sends it; of magic 1 now and then with gaps inside, or without the wrapper's offset."""
    if magic == 2:
        said: dict[str, int | bool] = {}
        if rng.random() < 0.2:
            said = {"producer_id": 5, "producer_epoch": 1, "base_sequence": rng.choice((0, 2**31 - 2))}
            said["is_transactional"] = rng.random() < 0.5
        return one_batch(codec, some, **said)
    if not codec:
        return messages(magic, some)
    inside = list(range(len(some)))
    offset = rng.choice((len(some) - 1, 0))
    if magic == 1 and rng.random() < 0.2:
        inside = [2 * at + rng.randrange(2) for at in inside]
        offset = inside[-1]
    latest = max(record.timestamp for record in some) if rng.random() < 0.8 else 77
    return wrapped(magic, codec, messages(magic, some, offsets=inside), offset=offset, timestamp=latest)


def every_cell(rng: random.Random) -> Iterator[Case]:
    """Each produced format, codec, stored format and setting, with records of all kinds."""
    for magic, names in CODECS.items():
        for name in names:
            codec = Codec(CODEC_NAMES.index(name))
            for stored in (Format.V0, Format.V1, Format.V2):
                for setting in SETTINGS:
                    target = codec if setting == "producer" else Codec(CODEC_NAMES.index(setting))
                    if stored is not Format.V2 and Codec.ZSTD in (codec, target):
                        continue  # both refuse; Kafka says -1, or writes another codec
                    for number in range(6):
                        odd, keyless = number in (1, 4, 5), number in (2, 5)
                        some = records(rng, rng.choice((1, 2, 3, 20, 150)), odd_time=odd, keyless=keyless,
                                       headers=stored is Format.V2)  # fmt: skip
                        rules = AppendRules(
                            format=stored,
                            codec=None if setting == "producer" else Codec(CODEC_NAMES.index(setting)),
                            timestamp_type=rng.choice((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)),
                            before_max_ms=1000 if odd else UNLIMITED_MS,
                            after_max_ms=rng.choice((UNLIMITED_MS, 1000)),
                            compacted=keyless and rng.random() < 0.7,
                        )
                        yield Case(produced(rng, magic, codec, some), rules)


def on_purpose() -> Iterator[Case]:
    """What Kafka 3.9 answers in another way (docs/internals/append.md), and some faults that both refuse alike."""
    some = [Record(at, NOW, 0, b"k", b"v") for at in range(3)]
    plain, batch_, gzipped = messages(1, some), one_batch(Codec.NONE, some), wrapper(1, Codec.GZIP, some)
    v1, v2 = AppendRules(format=Format.V1), AppendRules()
    yield Case(gzipped + gzipped, v1, 87, 0)
    yield Case(plain + gzipped, v1, 87, 0)
    yield Case(plain + messages(0, some), v1, 87, 0)
    yield Case(wrapped(1, Codec.GZIP, plain, offset=1), v1, 87, 0)
    yield Case(patched(messages(1, some[:1]), MESSAGE_ATTRIBUTES, 8), v1, 0, 32)
    yield Case(patched(batch_, ATTRIBUTES, 8), v2, 0, 32)
    headers = [some[0]._replace(headers=(("h", b"v"),))]
    yield Case(one_batch(Codec.NONE, headers), v1, -1, 43)
    yield Case(wrapped(1, Codec.GZIP, b"", payload=b"rubbish"), v1, -1, 2)
    for rules in (v1, v2):
        yield Case(wrapped(1, Codec.GZIP, patched(plain, MESSAGE_CRC, 1, reseal=False), offset=2), rules, 2, 2)
        yield Case(wrapped(1, Codec.GZIP, gzipped), rules, 87, 87)
        yield Case(wrapped(1, Codec.GZIP, messages(0, some)), rules, 87, 87)
        yield Case(batch_ + batch_, rules, 87, 87)
        for count in (0, 2, 4, -1):
            yield Case(patched(batch_, RECORD_COUNT, count), rules, 87, 87)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [*every_cell(random.Random(SEED)), *on_purpose()]


@pytest.fixture(scope="module")
def answers(cases: list[Case]) -> list[Json]:
    asked = "".join(json.dumps(case.asked()) + "\n" for case in cases)
    return [json.loads(line) for line in jvm.run("Validate", stdin=asked.encode()).splitlines()]


def test_kafkas_validator_decides_and_stores_as_we_do(cases: list[Case], answers: list[Json]) -> None:
    assert len(cases) > 1000
    found = [(number, what_differs(case, said)) for number, (case, said) in enumerate(zip(cases, answers, strict=True))]
    assert [each for each in found if each[1] is not None] == []
    assert sum("error" in said for said in answers) > 200


def what_differs(case: Case, said: Json) -> object:
    """What we do and Kafka does not; None where it is the same, or a difference that docs/internals/append.md has."""
    ours, theirs = case.append(), said.get("error", 0)
    code = int(ours.code) if isinstance(ours, AppendRefusedError) else 0
    if case.kafka is not None:
        return None if (theirs, code) == (case.kafka, case.ours) else ("on purpose", theirs, code)
    rules, magic = case.rules, case.data[MAGIC.start]
    one_by_one = magic < 2 and not case.data[MAGIC.start + 1] & 7  # Kafka judges each plain message for itself
    if theirs == -1 and code == 43 and RecordBatch(memoryview(case.data)).is_transactional:
        return None
    if rules.format is Format.V0 and theirs == 32:  # it checks timestamps that it does not store
        return None if code in (0, 87) else ("code", theirs, code)
    if theirs != code:
        return None if one_by_one and {theirs, code} == {32, 87} else ("code", theirs, code)
    if isinstance(ours, AppendRefusedError):
        named = [error.batch_index for error in ours.record_errors]
        return None if named == said["faulty"] or one_by_one else ("records", said["faulty"], named)
    if ours.rebuilt != said["rebuilt"]:
        return "rebuilt", said["rebuilt"], ours.rebuilt
    timeless = rules.format is Format.V0 and rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    if ours.max_timestamp != said["maxTimestamp"] and not timeless:
        return "maximum", said["maxTimestamp"], ours.max_timestamp
    stored = unbase64(said["records"])
    assert stored is not None
    if ours.compressed:
        same = list(unpacked(memoryview(bytes(ours)))) == list(unpacked(memoryview(stored)))
    else:
        same = bytes(ours) == stored
    return None if same else ("bytes", rules)
