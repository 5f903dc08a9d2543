"""Format the lines of `dump`: JSON, or text comparable with that of Kafka's dump tool."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Callable
from typing import Any

from magicbyte.engine.protocol.kafka_json import json_text

Fields = dict[str, Any]
Show = Callable[[bytes], str]
"""Converts the bytes of keys and values to text."""

_AS_JAVA = "magicbyte-as-java"
_OPTIONAL = {"deleteHorizonMs", "currentTxnFirstOffset"}


def plainly(data: bytes) -> str:
    """Return bytes as Kafka's tool prints them, including control characters: a Show."""
    return data.decode(errors=_AS_JAVA)


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Replace the two or three bytes of a surrogate by one mark, as Java does. Python would write a mark per byte."""
    assert isinstance(error, UnicodeDecodeError)
    cut = error.object[error.start : error.start + 3]
    if cut[:1] == b"\xed" and b"\xa0" <= cut[1:2] <= b"\xbf":
        return "\N{REPLACEMENT CHARACTER}", error.start + (3 if b"\x80" <= cut[2:3] <= b"\xbf" else 2)
    return "\N{REPLACEMENT CHARACTER}", error.end


codecs.register_error(_AS_JAVA, _replace_as_java)


def readably(data: bytes) -> str:
    """Return bytes as text that is safe to print on one line, with escapes for other bytes: a Show."""
    return _printable(data.decode(errors="backslashreplace"))


class _Escapes(dict[int, str]):
    """The printable form of each character, by its code; filled on demand."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = char if char.isprintable() else char.encode("unicode_escape").decode()
        return self[code]


_ESCAPES = _Escapes()


def _printable(text: str) -> str:
    return text if text.isprintable() else text.translate(_ESCAPES)


def line_of(fields: Fields, *, contents: Show | None, metadata: bool, names_leaders: bool) -> str:
    """Return the line for a dict from dump_log or dump_files.

    `contents`: converts keys and values to text, None to leave them out. `metadata`: print the rest of a record.
    `names_leaders`: print changes of a quorum's leader as JSON, as the tools of 4.1 and later do.
    """
    match fields["kind"]:
        case "batch":
            return _batch(fields)
        case "record":
            return _record(fields, contents, metadata=metadata, names_leaders=names_leaders)
        case "empty":
            return f"{fields['file']} is empty."
        case "sanity check":
            return f"{fields['file']} passed sanity check."
        case "invalid bytes":
            return f"Found {fields['size']} invalid bytes at the end of {fields['segment']}"
        case "meta properties":
            return _pairs(fields["properties"])
        case "quorum state":
            return _printable(json.dumps(fields["state"]))
        case _:
            return _pairs({name: value for name, value in fields.items() if name != "kind"})


def _batch(fields: Fields) -> str:
    if fields["magic"] == 2:
        names = list(fields)
        start = _pairs({name: fields[name] for name in names[1 : names.index("position")]})
    else:
        first = fields.get("baseOffset")
        start = f"offset: {fields['lastOffset'] if first is None else first}"
    line = (
        f"{start} position: {fields['position']} {fields['timestampType']}: {fields['maxTimestamp']} "
        f"size: {fields['size']} magic: {fields['magic']} compresscodec: {fields['codec']} crc: {fields['crc']} "
        f"isvalid: {_value('', fields['isvalid'])}"
    )
    return f"{line} tags: {_list(fields['tags'])}" if "tags" in fields else line


def _record(fields: Fields, contents: Show | None, *, metadata: bool, names_leaders: bool) -> str:
    parts = ["|"]
    if metadata:
        parts.append(f"offset: {fields['offset']} {fields['timestampType']}: {fields['timestamp']}")
        parts.append(f"keySize: {fields['keySize']} valueSize: {fields['valueSize']}")
        if "sequence" in fields:
            names = [(contents or plainly)(name.encode()) for name, _ in fields["headers"]]
            parts.append(f"sequence: {fields['sequence']} headerKeys: [{','.join(names)}]")
        else:
            parts.append(f"isValid: {_value('', fields['isValid'])} crc: {fields['crc']}}}")  # Kafka's own stray brace
        if "tags" in fields:
            parts.append(f"tags: {_list(fields['tags'])}")
        if "control" in fields:
            parts.append(_control(fields["control"], names_leaders=names_leaders))
    if contents is not None and "control" not in fields:
        parts.extend(_contents(fields, contents))
    return " ".join(parts) if len(parts) > 1 else ""  # null key and value, and no metadata


def _contents(fields: Fields, contents: Show) -> list[str]:
    if "decodedKey" in fields:
        named = {"key": fields["decodedKey"], "payload": fields["decodedPayload"]}
        return [f"{name}: {contents(text.encode())}" for name, text in named.items() if text is not None]
    cells = {"key": fields["key"], "payload": fields["value"]}
    return [f"{name}: {contents(cell)}" for name, cell in cells.items() if cell is not None]


_CONTROL_NAMES = {
    "SNAPSHOT_HEADER": "SnapshotHeader",
    "SNAPSHOT_FOOTER": "SnapshotFooter",
    "KRAFT_VERSION": "KRaftVersion",
    "KRAFT_VOTERS": "KRaftVoters",
}
"""Control records that Kafka's tool prints as JSON. It prints a change of the leader so from 4.1 on."""


_VOTERS = ("voters", "grantingVoters")


def _control(fields: Fields, *, names_leaders: bool) -> str:
    if names_leaders and fields["type"] == "LEADER_CHANGE" and "data" in fields:
        ids = {name: [{"voterId": each["voterId"]} for each in fields["data"][name]] for name in _VOTERS}
        return f"LeaderChange: {json_text(fields['data'] | ids)}"  # version 0 has no other field of voters
    if name := _CONTROL_NAMES.get(fields["type"]):
        return f"{name} {json_text(fields['data'])}"
    if "typeId" in fields:
        return f"controlType: {fields['type']}({fields['typeId']})"
    if fields["type"] in ("ABORT", "COMMIT"):
        return f"endTxnMarker: {fields['type']} coordinatorEpoch: {fields['coordinatorEpoch']}"
    return _pairs({"controlType": fields["type"]} | {name: value for name, value in fields.items() if name != "type"})


def _pairs(fields: Fields) -> str:
    return " ".join(f"{name}: {_value(name, value)}" for name, value in fields.items())


def _list(tags: Fields) -> str:
    return f"[{','.join(f'{name}={value}' for name, value in tags.items())}]"


def _value(name: str, value: Any) -> str:
    """Return a value as Java prints it."""
    if name in _OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    return str(value).lower() if isinstance(value, bool) else _printable(str(value))


def jsonable(fields: Fields) -> Fields:
    """Return the fields with bytes in base64."""

    def shown(value: Any) -> Any:
        if isinstance(value, bytes | memoryview):
            return base64.b64encode(value).decode()
        if isinstance(value, tuple):
            return [shown(each) for each in value]
        return value

    return {name: shown(value) for name, value in fields.items()}
