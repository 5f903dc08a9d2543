"""Whole entries of a log file, as a walk finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from magicbyte.engine.records.scan import BatchTable


class Chunk(Struct, frozen=True):
    """Whole entries of one file. `position` is the position of the table's buffer in the file, in bytes."""

    path: str
    position: int
    table: BatchTable
