"""`magicbyte dump --anatomy`: print the bytes of one entry in hex, with the name of each field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from magicbyte.cli.output import complain, say_json, say_styled
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.printable import printable
from magicbyte.engine.records.anatomy import UNREADABLE, FieldPart, anatomy, inside
from magicbyte.engine.records.layout import LOG_OVERHEAD, SIZE, V0_MINIMUM, Dialect

if TYPE_CHECKING:
    from magicbyte.engine.ports import ReadableFile

ROW = 16  # bytes per line; half of it if lines would be longer than WIDEST columns
WIDEST = 100
ROWS = 4  # lines per field, unless `whole`
_ANY_SIZE = (1 << 31) + LOG_OVERHEAD
_SAMPLE = 4096  # bytes shown of an entry with an invalid size


class EntryPlace(NamedTuple):
    """The position and size of an entry. `damage`: the damage between the last sound entry and this position."""

    position: int
    size: int
    damage: CorruptRecordError | None


def find(file: ReadableFile, at: int, dialect: Dialect) -> EntryPlace:
    """Return the entry that contains the byte at position `at` of a `.log` file.

    After damage, and in a truncated tail, entries have no known start: then `at` is taken as the start of one.
    """
    damages: list[CorruptRecordError] = []
    for chunk in read_chunks(file, dialect=dialect, limit=_ANY_SIZE, on_damage=damages.append):
        table = chunk.table
        if at < chunk.position + table.end:
            row = max(i for i in range(len(table)) if chunk.position + int(table.position[i]) <= at)
            return EntryPlace(chunk.position + int(table.position[row]), int(table.size[row]), None)
    damage = damages[0]
    begin = damage.position if damage.position is not None and at < damage.position + LOG_OVERHEAD else at
    head = memoryview(file.read_at(begin, LOG_OVERHEAD))
    size = LOG_OVERHEAD + SIZE.read(head) if len(head) == LOG_OVERHEAD else 0
    left = file.size - begin
    if size < LOG_OVERHEAD + V0_MINIMUM:
        size = _SAMPLE
    return EntryPlace(begin, min(size, left), damage)


def show(file: ReadableFile, at: int, dialect: Dialect, *, deep: bool, whole: bool, form: str, limit: int) -> bool:
    """Print the entry that contains position `at`. Return whether it is sound. Raises UsageError beyond the end.

    `whole`: print all bytes of long fields. `deep`: also the decompressed content, up to `limit` bytes.
    """
    if at >= file.size:
        raise click.UsageError(f"--at {at}: expected a position in {file.path}, which has {file.size} bytes")
    entry_at = find(file, at, dialect)
    if entry_at.damage is not None:
        complain(entry_at.damage.locate(path=file.path))
    if at != entry_at.position:
        inner = at - entry_at.position
        complain(
            f"position {at} is {inner} bytes into the entry at position {entry_at.position} ({entry_at.size} bytes)"
        )
    entry = memoryview(file.read_at(entry_at.position, entry_at.size))
    parts = anatomy(entry, dialect)
    sound = entry_at.damage is None and _sound(parts)
    title = f"{file.path}, position {entry_at.position}: {entry_at.size} bytes"
    _print(entry, parts, entry_at.position, at, title=title, whole=whole, form=form)
    if deep:
        try:
            content = inside(entry, dialect, limit=limit)
        except CorruptRecordError as error:
            complain(error.locate(path=file.path, shift=entry_at.position))
            return False
        if content is not None:
            _print(content.data, content.parts, 0, None, title=f"inside, decompressed: {len(content.data)} bytes",
                   whole=whole, form=form)  # fmt: skip
            sound = sound and _sound(content.parts)
    return sound


def _sound(parts: list[FieldPart]) -> bool:
    return not any(part.type == UNREADABLE or part.note.startswith("wrong") for part in parts)


def _print(
    data: memoryview,
    parts: list[FieldPart],
    position: int,
    at: int | None,
    *,
    title: str,
    whole: bool,
    form: str,
) -> None:
    if form == "jsonl":
        for part in parts:
            raw = data[part.start : part.start + part.size]
            place = {"position": position + part.start, "size": part.size, "inside": at is None}
            said = {"field": part.field, "type": part.type, "value": part.value, "note": part.note, "hex": raw.hex()}
            say_json(place | said, indent=None)
        return
    say_styled(click.style(printable(title), bold=True))
    width = max((len(part.field) for part in parts), default=0)
    places = max(len(str(position + len(data))), 8)
    longest = max((len(click.unstyle(_meaning(part, b""))) for part in parts if part.value is not None), default=0)
    row_size = ROW if places + 2 + 3 * ROW + 1 + width + 2 + longest <= WIDEST else ROW // 2
    for part in parts:
        marked = at is not None and part.start <= at - position < part.start + part.size and at != position
        for line in _lines(data, part, position, places, width, row_size, whole=whole, marked=marked):
            say_styled(line)


def _lines(
    data: memoryview,
    field_part: FieldPart,
    position: int,
    places: int,
    width: int,
    row_size: int,
    *,
    whole: bool,
    marked: bool,
) -> Iterator[str]:
    """Yield the lines of one field: position, `row_size` bytes, and on the first line name and meaning."""
    raw = data[field_part.start : field_part.start + field_part.size]
    color = _color(field_part)
    rows = range(0, len(raw), row_size)
    shown = rows if whole or len(rows) <= ROWS + 1 else rows[:ROWS]
    for row in shown:
        piece = bytes(raw[row : row + row_size])
        place = f"{position + field_part.start + row:>{places}}"
        line = f"{place}  {click.style(f'{piece.hex(chr(32)):<{3 * row_size - 1}}', fg=color)}  "
        if row == 0:
            line += f"{click.style(f'{field_part.field:<{width}}', fg=color)}  {_meaning(field_part, piece)}"
            line += "  <- here" if marked else ""
        else:
            line += f"{'':<{width}}  {_text(piece)}"
        yield line.rstrip()
    if len(shown) < len(rows):
        yield f"{'':>{places}}  … {len(raw) - len(shown) * row_size} more bytes"


def _meaning(field_part: FieldPart, first: bytes) -> str:
    if field_part.type == UNREADABLE:
        return click.style(f"unreadable: {printable(field_part.note)}", fg="red")
    value = (
        _text(first)
        if field_part.value is None
        else f"{field_part.value:#010x}"
        if field_part.field.endswith("crc")
        else field_part.value
    )
    size = f"{field_part.size} bytes" if field_part.value is None else ""
    words = [printable(str(value)), *(f"({printable(text)})" for text in (size, field_part.note) if text)]
    wrong = field_part.note.startswith("wrong") or field_part.note.startswith("unknown codec")
    return click.style(" ".join(words), fg="red" if wrong else None)


def _text(piece: bytes) -> str:
    """Return the bytes as ASCII, with a dot for each unprintable byte."""
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)


def _color(part: FieldPart) -> str:
    """Return the color of a field by its kind."""
    name = part.field.rpartition(".")[2]
    if part.type == UNREADABLE or part.note.startswith("wrong"):
        return "red"
    if part.type == "bytes":
        return "green" if "key" in name else "yellow"
    if "length" in name or "size" in name or "count" in name:
        return "bright_black"
    if "timestamp" in name or name == "seconds":
        return "magenta"
    if "offset" in name:
        return "cyan"
    return "blue"
