"""Recommend an encoding for each integer field of a message from sample values, as KIP-625's motivation does by hand.

Only encodings with all bits of the type are considered: a narrower one saves more on some values and refuses others,
which is the schema author's decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from magicbyte.schema.sizes import check_version, encoded_size, encoding_of, integers
from magicbyte.schema.tree import ENCODABLE_BITS, Encoding, FieldSchema, MessageSchema

_KINDS: tuple[Literal["fixed", "unpacked", "packed"], ...] = ("fixed", "unpacked", "packed")  # in order of preference


@dataclass(slots=True)
class Advice:
    """The statistics of one field, or of the elements of an array.

    `bytes` has the size of all values under each encoding, `today` is the current encoding, `best` the smallest one; of
    equal ones the current one, then fixed, then unpacked.
    """

    way: str
    type: str
    today: Encoding
    values: int = 0
    lowest: int = 0
    highest: int = 0
    bytes: dict[Encoding, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the field as printed by `magicbyte schema advise --format json`."""
        return {
            "field": self.way,
            "type": self.type,
            "values": self.values,
            "lowest": self.lowest,
            "highest": self.highest,
            "today": str(self.today),
            "best": str(self.best),
            "bytes": {str(encoding): count for encoding, count in self.bytes.items()},
            "saved": self.saved,
            "worstGrowth": self.worst_growth,
        }

    @property
    def best(self) -> Encoding:
        """The encoding that needs the fewest bytes for these values."""
        return min(self.bytes, key=lambda each: (self.bytes[each], each != self.today))

    @property
    def saved(self) -> int:
        """Bytes that the best encoding saves over the current one, on all values."""
        return self.bytes[self.today] - self.bytes[self.best]

    @property
    def worst_growth(self) -> int:
        """The most bytes by which one value is longer in the best encoding than in the type's fixed one."""
        return max(0, self.best.max_bytes - ENCODABLE_BITS[self.type.removeprefix("[]")] // 8)

    def _add(self, value: int) -> None:
        self.lowest = min(self.lowest, value) if self.values else value
        self.highest = max(self.highest, value) if self.values else value
        self.values += 1
        for encoding in self.bytes:
            self.bytes[encoding] += encoded_size(value, encoding)


def advise(message: MessageSchema, version: int, samples: Iterable[object]) -> list[Advice]:
    """Return advice on every int16, int32 and int64 of `version` with a value in the samples, in their order.

    Each sample is the JSON form of a whole message; omitted fields count with their defaults, which are written. Raises
    SchemaValueError for a sample that cannot be written in that version, and for an invalid version.
    """
    check_version(message, version)
    advices: dict[str, Advice] = {}
    for sample in samples:
        for way, field_, value in integers(message, version, sample):
            if way not in advices:
                advices[way] = _advice(way, field_, version)
            advices[way]._add(value)
    return list(advices.values())


def _advice(way: str, field_: FieldSchema, version: int) -> Advice:
    today = encoding_of(field_, version)
    assert today is not None, "only integers are yielded"
    bits = ENCODABLE_BITS[field_.type.name]
    weighed = {Encoding(kind, bits): 0 for kind in _KINDS}
    weighed.setdefault(today, 0)
    return Advice(way, str(field_.type), today, bytes=weighed)
