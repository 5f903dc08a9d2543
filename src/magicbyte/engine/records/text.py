"""Render many records as lines of text with compiled kernels, for templates and JSON lines.

For few records, the plain renderers in `cli/` give the same bytes sooner than the kernels load.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from magicbyte.engine.compiled.kernel import Ints, worth_compiling
from magicbyte.engine.records import text_kernels as kernels
from magicbyte.engine.records.forms import form_for

if TYPE_CHECKING:
    from magicbyte.engine.records.columns import BytesColumn, RecordColumns


class TextField(enum.Enum):
    """A field of a line. Keys and values appear as they are, empty for null, or quoted as JSON strings."""

    OFFSET = enum.auto()
    TIMESTAMP = enum.auto()
    KEY_SIZE = enum.auto()  # bytes; -1: null
    VALUE_SIZE = enum.auto()
    KEY = enum.auto()
    VALUE = enum.auto()
    QUOTED_KEY = enum.auto()
    QUOTED_VALUE = enum.auto()


Part: TypeAlias = bytes | TextField

_MAKE = form_for(compiled=True)
_INTEGERS = (TextField.OFFSET, TextField.TIMESTAMP, TextField.KEY_SIZE, TextField.VALUE_SIZE)
_CELLS = {
    TextField.KEY: (kernels.KEY, 0),
    TextField.VALUE: (kernels.VALUE, 0),
    TextField.QUOTED_KEY: (kernels.KEY, 1),
    TextField.QUOTED_VALUE: (kernels.VALUE, 1),
}


def suits(columns: RecordColumns) -> bool:
    """Return whether a `LineWriter` should write these records: there are many, and they have no headers."""
    if columns.headers is not None and len(columns.headers.key):
        return False
    sizes = [len(memoryview(cells.data)) for cells in (columns.key, columns.value) if cells is not None]
    return worth_compiling(max(sizes, default=0))


def min_max(numbers: Ints) -> tuple[int, int]:
    """Return the smallest and the largest of at least one number."""
    import numpy as np

    found = np.asarray(numbers)
    return int(found.min()), int(found.max())


class LineWriter:
    """Write records as lines with the same fields, into a buffer that is reused."""

    def __init__(self, parts: Sequence[Part]) -> None:
        steps: list[int] = []
        literals = b""
        self._columns = [each for each in _INTEGERS if each in parts]
        self._fixed = self._stretch = 0
        for field in parts:
            if isinstance(field, bytes):
                steps += [kernels.LITERAL, len(literals), len(field)]
                literals += field
                self._fixed += len(field)
            elif field in _CELLS:
                kind, quoted = _CELLS[field]
                steps += [kind, quoted, 0]
                self._fixed += kernels.QUOTES
                self._stretch += kernels.LONGEST_ESCAPE if quoted else 1
            else:
                steps += [kernels.INTEGER, self._columns.index(field), 0]
                self._fixed += kernels.LONGEST_INTEGER
        self._steps, self._literals = steps, literals
        self._out: Any = b""

    def write(self, columns: RecordColumns) -> memoryview:
        """Return the lines of all records, valid until the next call. Keys and values must have been decoded."""
        import numpy as np

        assert columns.key is not None, "keys were decoded"
        assert columns.value is not None, "values were decoded"
        keys, values = _cells(columns.key), _cells(columns.value)
        lengths = np.maximum(keys[2], 0).sum(dtype=np.int64) + np.maximum(values[2], 0).sum(dtype=np.int64)
        room = len(columns) * self._fixed + self._stretch * int(lengths)
        if len(self._out) < room:
            self._out = np.empty(room, np.uint8)  # pages that are never written take no memory
        of = {
            TextField.OFFSET: columns.offset,
            TextField.TIMESTAMP: columns.timestamp,
            TextField.KEY_SIZE: keys[2],
            TextField.VALUE_SIZE: values[2],
        }
        integers = [np.asarray(of[each], np.int64) for each in self._columns]
        written = kernels.write_rows(
            np.array(self._steps, np.int64),
            _MAKE.bytes_of(self._literals),
            np.concatenate(integers) if integers else np.zeros(0, np.int64),
            *keys,
            *values,
            self._fixed,
            self._stretch,
            self._out,
        )
        assert written >= 0, "there was room for all"
        return memoryview(self._out)[:written]


def _cells(column: BytesColumn) -> tuple[Any, Any, Any]:
    """Return the bytes, starts and sizes of a column, as the kernel takes them."""
    import numpy as np

    start, size = (np.ascontiguousarray(each, np.int32) for each in (column.start, column.length))
    return _MAKE.bytes_of(column.data), start[: len(size)], size
