"""Read and write structs of numbers, and arrays of them, in one step for several fields or structs."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from magicbyte.engine.errors import ProtocolError
from magicbyte.engine.protocol.fields import FEW_NUMBERS, ONE_BYTE, read_count, write_uvarint

T = TypeVar("T")

_INT32 = struct.Struct(">i")


class Shapes(dict[tuple[int, ...], Callable[..., bytes]]):
    """Pack fields in one step that include arrays of numbers: one function for each combination of array lengths.

    `layout` is as for `struct`, with "[" before the numbers of each array: "hii[i[i" is a 16-bit number, two 32-bit
    numbers and two arrays. The function takes all fields in order, each array as its count on the wire (its length plus
    one if `flexible`), then its numbers. At most `KEPT` functions are kept.
    """

    KEPT = 1024

    def __init__(self, layout: str, *, flexible: bool) -> None:
        super().__init__()
        self.flexible = flexible
        self.first, *self.rest = layout.split("[")

    def __missing__(self, lengths: tuple[int, ...]) -> Callable[..., bytes]:
        if self.flexible and max(lengths) >= ONE_BYTE - 1:
            return functools.partial(self._pack_long, lengths)
        count = "B" if self.flexible else "i"
        arrays = "".join(f"{count}{length}{part}" for length, part in zip(lengths, self.rest, strict=True))
        pack = struct.Struct(f">{self.first}{arrays}").pack
        if len(self) < self.KEPT:
            self[lengths] = pack
        return pack

    def _pack_long(self, lengths: tuple[int, ...], *values: Any) -> bytes:
        """Pack arrays of which some have counts of more than a byte."""
        at = len(self.first)
        buffer = bytearray(struct.pack(f">{self.first}", *values[:at]))
        for length, part in zip(lengths, self.rest, strict=True):
            end = at + length + len(part)
            write_uvarint(buffer, values[at])
            buffer += struct.pack(f">{length}{part}", *values[at + 1 : end])
            at = end
        return bytes(buffer)


class _Plan(NamedTuple):
    """The plan for reading adjacent structs of one shape."""

    size: int  # bytes of each
    checks: list[tuple[int, bytes]]  # position in each struct and required byte: counts, and no tagged fields
    columns: list[Callable[[bytes], Iterator[Any]]]  # of the fields that are not arrays; then of each array


class Rows:
    """Read many structs in one step: adjacent ones whose arrays have the same lengths.

    `layout` is as that of `Shapes`; if `flexible`, a struct ends with its count of tagged fields, which must be 0. Each
    row is a tuple of the numbers, or, with arrays, of that tuple and one for each array.
    """

    KEPT = 256  # plans
    AT_ONCE = 256  # structs per step, so that a failed attempt costs the same however many follow

    def __init__(self, layout: str, *, flexible: bool) -> None:
        self.flexible = flexible
        self.first, *self.rest = layout.split("[")
        self.before = struct.calcsize(f">{self.first}")
        self.sizes = [(struct.calcsize(f">{part[0]}"), struct.calcsize(f">{part[1:]}")) for part in self.rest]
        self.plans: dict[tuple[int, ...], _Plan] = {}

    def read(self, data: memoryview, at: int, most: int) -> tuple[Iterable[Any], int]:
        """Return up to `most` structs of one shape, and the position after them; none if the first is unusual."""
        lengths = self._lengths(data, at) if self.rest else ()
        plan = self.plans.get(lengths) or self._plan(lengths)
        if plan is None:
            return (), at
        size, checks, columns = plan
        rows = bytes(data[at : at + size * min(most, self.AT_ONCE)])
        alike = len(rows) // size
        for offset, byte in checks:
            column = rows[offset : size * alike : size]
            if other := column.lstrip(byte):
                alike -= len(other)
        if not alike:
            return (), at
        end = size * alike
        if end < len(rows):
            rows = rows[:end]
        if len(columns) == 1:
            return columns[0](rows), at + end
        # if all arrays are empty, one column has no end
        return zip(*[column(rows) for column in columns], strict=False), at + end

    def _lengths(self, data: memoryview, at: int) -> tuple[int, ...]:
        """Return the lengths of the arrays of the struct at `at`."""
        lengths = []
        at += self.before
        for number, after in self.sizes:
            if self.flexible:
                length, at = data[at] - 1, at + 1
            else:
                (length,) = _INT32.unpack_from(data, at)
                at += 4
            lengths.append(length)
            at += max(length, 0) * number + after
        return tuple(lengths)

    def _plan(self, lengths: tuple[int, ...]) -> _Plan | None:
        """Return the plan for structs whose arrays have these lengths, or None if one of them is null or long."""
        if len(self.plans) == self.KEPT or not all(0 <= length < FEW_NUMBERS for length in lengths):
            return None
        head, checks, arrays = f">{self.first}", list[tuple[int, bytes]](), list[tuple[int, str]]()
        for length, code in zip(lengths, self.rest, strict=True):
            count = bytes([length + 1]) if self.flexible else _INT32.pack(length)
            offset = struct.calcsize(head)
            checks += [(offset + each, count[each : each + 1]) for each in range(len(count))]
            arrays.append((offset + len(count), f"{length}{code[0]}"))
            numbers = struct.calcsize(f">{length}{code[0]}")
            head += f"{len(count) + numbers}x{code[1:]}"
        if self.flexible:
            checks.append((struct.calcsize(head), b"\0"))
            head += "x"
        fields = struct.Struct(head)
        columns: list[Callable[[bytes], Iterator[Any]]] = [fields.iter_unpack]
        for offset, numbers_code in arrays:
            after = fields.size - offset - struct.calcsize(f">{numbers_code}")
            column = struct.Struct(f">{offset}x{numbers_code}{after}x")
            columns.append(column.iter_unpack)
        plan = self.plans[lengths] = _Plan(fields.size, checks, columns)
        return plan


_WORTH = 4  # fewer structs are read individually


class Row(Protocol[T]):
    """The class of a struct that can be read in rows."""

    def _read_each(self, data: memoryview, at: int, count: int, version: int) -> tuple[list[T], int]: ...

    def _read_many(self, data: memoryview, at: int, most: int, version: int) -> tuple[list[T], int]:
        """Read up to `most` structs of one shape; none if the first is unusual."""


def read_rows(
    data: memoryview, at: int, flexible: bool, minimum: int, field: str, kind: Row[T], version: int
) -> tuple[list[T], int]:
    """Read an array of structs of numbers, those of one shape in one step."""
    count, end = read_count(data, at, flexible, minimum, field)
    if count == -1:
        raise ProtocolError(field, expected="not null", found="null", position=at)
    return _rows(data, end, count, kind, version)


def read_nullable_rows(
    data: memoryview, at: int, flexible: bool, minimum: int, field: str, kind: Row[T], version: int
) -> tuple[list[T] | None, int]:
    """Read a nullable array of structs of numbers, those of one shape in one step."""
    count, end = read_count(data, at, flexible, minimum, field)
    return (None, end) if count == -1 else _rows(data, end, count, kind, version)


def _rows(data: memoryview, at: int, count: int, kind: Row[T], version: int) -> tuple[list[T], int]:
    values: list[T] = []
    while (left := count - len(values)) > 0:
        if left >= _WORTH:
            alike, at = kind._read_many(data, at, left, version)
            if len(alike) == count:
                return alike, at
            values += alike
            left -= len(alike)
            if len(alike) >= _WORTH:
                continue
        few, at = kind._read_each(data, at, min(left, _WORTH), version)
        values += few
    return values, at
