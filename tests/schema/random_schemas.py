"""Random schemas that keep every rule of the language: all types, version ranges, tags, defaults and encodings.

Names are awkward on purpose: keywords of Python, names of methods, of modules and of what generated code imports.
"""

import base64
import random
from typing import Any

from magicbyte.schema.tree import ENCODABLE_BITS, INTEGER_BITS

Json = dict[str, Any]

PRIMITIVES = (*INTEGER_BITS, "bool", "float64", "uuid", "string", "bytes", "records")
FIELD_WORDS = (
    "Topic", "Name", "Class", "From", "Import", "Version", "Write", "Read", "Size", "Out", "Buffer", "Self", "Type",
    "Id", "Int", "Bytes", "List", "Str", "Lambda", "Async", "Field", "Data", "Match", "At", "Value", "Position", "Tag",
    "Length", "Count", "None", "Def", "Len", "Memoryview", "Tuple", "UUID", "IsrNodes", "V0Host", "Struct", "Unknown",
    "End", "X", "ApiKey", "ValidVersions", "Any", "Cls", "Error", "Default", "Start", "Number", "Payload", "Total",
)  # fmt: skip
STRUCT_WORDS = (
    "Writer", "Reader", "Protocol", "Struct", "Final", "ClassVar", "Dataclass", "Buffer", "Topic", "Partition", "Part",
    "TrueValue", "Exception", "ValueError", "List", "Str", "Int", "Uuid", "Message", "Field", "Versions", "Annotations",
)  # fmt: skip
NULLABLE = ("string", "bytes", "records")


def random_schema(rng: random.Random, *, encodings: bool = True, name: str = "RandomMessage") -> Json:
    """Return a schema of up to seven versions and some dozen fields."""
    return _Maker(rng, encodings).schema(name)


def span(lowest: int, highest: int | None = None) -> str:
    """Return the text of a version range."""
    if highest is None:
        return f"{lowest}+"
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"


def random_encoding(rng: random.Random, type_: str, versions: str) -> str | Json:
    """Return an encoding that covers the versions of an integer field."""
    lowest = int(versions.rstrip("+").partition("-")[0])
    highest = None if versions.endswith("+") else int(versions.rpartition("-")[2])
    names = [
        f"{kind}{bits}"
        for kind in ("fixed", "packed", "unpacked")
        for bits in (16, 32, 64)
        if bits <= ENCODABLE_BITS[type_]
    ]
    if rng.random() < 0.4:
        return rng.choice(names)
    parts: Json = {}
    while rng.random() < 0.6 and (highest is None or lowest < highest):
        end = lowest + rng.randrange(3)
        if highest is not None and end >= highest:
            break
        parts[span(lowest, end)] = rng.choice(names)
        lowest = end + 1
    parts[span(lowest, highest)] = rng.choice(names)
    return parts


class _Maker:
    """Makes one schema; knows its versions and which struct names are taken."""

    def __init__(self, rng: random.Random, encodings: bool) -> None:
        self.rng = rng
        self.encodings = encodings
        self.highest = rng.randrange(7)
        self.lowest = rng.randrange(self.highest + 1)
        self.flexible = rng.choice((None, 0, rng.randrange(self.highest + 1)))  # the first flexible version
        self.struct_names = list(STRUCT_WORDS)
        rng.shuffle(self.struct_names)
        self.common: list[str] = []

    def schema(self, name: str) -> Json:
        schema: Json = {
            "type": "data",
            "name": name,
            "validVersions": span(self.lowest, self.highest),
            "flexibleVersions": "none" if self.flexible is None else span(self.flexible),
        }
        common = []
        for _ in range(self.rng.choice((0, 0, 1))):
            struct = self.struct_names.pop()
            common.append({"name": struct, "versions": "0+", "fields": self.fields(1, self.lowest, self.highest)})
            self.common.append(struct)
        schema["fields"] = self.fields(0, self.lowest, self.highest)
        return schema | ({"commonStructs": common} if common else {})

    def fields(self, depth: int, lowest: int, highest: int) -> list[Json]:
        """Return the fields of a struct that some versions have.

        The first one is always there: no element of an array is without bytes.
        """
        names = self.rng.sample(FIELD_WORDS, self.rng.randrange(1, 7 if depth == 0 else 5))
        first: Json = {"name": names[0], "type": self.rng.choice(PRIMITIVES), "versions": "0+"}
        fields = [first] + [self.field(name, depth, lowest, highest) for name in names[1:]]
        self.encode(first)
        tag = 0
        for field in fields[1:]:
            open_ended = field["versions"].endswith("+") and field["type"] != "records"
            if self.flexible is not None and open_ended and self.rng.random() < 0.3:
                start = max(self.flexible, int(field["versions"][:-1]))
                if start <= highest and field.get("nullableVersions") in (None, span(start), field["versions"]):
                    field |= {"tag": tag, "taggedVersions": span(start)}
                    field.pop("mapKey", None)
                    tag += 1
                    if "nullableVersions" in field:
                        field["nullableVersions"] = field["versions"]
        return fields

    def field(self, name: str, depth: int, first: int, last: int) -> Json:
        rng = self.rng
        lowest = rng.randrange(first, last + 1) if rng.random() < 0.5 else 0
        highest = rng.randrange(max(first, lowest), last + 1) if rng.random() < 0.3 else None
        field: Json = {"name": name, "versions": span(lowest, highest), "about": f"What {name} says."}
        struct = depth < 3 and rng.random() < 0.35
        array = rng.random() < (0.6 if struct else 0.25)
        if struct and self.common and rng.random() < 0.4:
            base = rng.choice(self.common)
        elif struct and self.struct_names:
            base = self.struct_names.pop()
            field["fields"] = self.fields(depth + 1, max(first, lowest), last if highest is None else highest)
        else:
            base = rng.choice(PRIMITIVES)
        if array and base == "records":
            base = "bytes"
        field["type"] = f"[]{base}" if array else base
        if (array or base in NULLABLE or base[0].isupper()) and rng.random() < 0.4:
            start = rng.randrange(lowest, (self.highest if highest is None else highest) + 1)
            field["nullableVersions"] = span(rng.choice((lowest, start)), highest)
        self.default(field, base, array)
        if rng.random() < 0.4:
            field["ignorable"] = True
        if base == "bytes" and not array and rng.random() < 0.3:
            field["zeroCopy"] = True
        self.encode(field)
        return field

    def default(self, field: Json, base: str, array: bool) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            return
        if field.get("nullableVersions") == field["versions"] and rng.random() < 0.6:
            field["default"] = "null"
        elif array or base in ("bytes", "records") or base[0].isupper():
            return
        elif base in INTEGER_BITS:
            signed = not base.startswith("u")
            number = rng.getrandbits(rng.randrange(1, 8 if self.encodings else INTEGER_BITS[base]))
            field["default"] = rng.choice((str(number), number, hex(number), str(-number) if signed else "0"))
        elif base == "bool":
            field["default"] = rng.choice(("true", "false", True))
        elif base == "float64":
            field["default"] = rng.choice(("0.5", "-1e10"))
        elif base == "string":
            field["default"] = rng.choice(("", "this or that", 'it\'s "quoted" \\ é'))
        elif base == "uuid":
            field["default"] = base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")

    def encode(self, field: Json) -> None:
        """Put an encoding on some integer fields and arrays of integers."""
        base = field["type"].removeprefix("[]")
        if self.encodings and base in ENCODABLE_BITS and self.rng.random() < 0.7:
            key = "elementEncoding" if field["type"].startswith("[]") else "encoding"
            field[key] = random_encoding(self.rng, base, field["versions"])
