"""Answers that follow from the cluster's image alone: each is encoded once, and its bytes go to all who ask for it.

Invariants:
1. An answer is given as long as the image is the one it was made of: images are never changed, so they are compared by
   identity. What it depends on besides, its maker compares before it gives the answer again (`seen`).
2. It is kept without its message: only its bytes and error codes. So it cannot be changed.
3. The rows of all kept answers are bounded; beyond that all are forgotten.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final

from magicbyte.engine.protocol import Message, write_response

if TYPE_CHECKING:
    from magicbyte.engine.protocol.outcomes import Collect

MOST_ROWS: Final = 100_000
"""Rows of all kept answers, of about 50 bytes each."""
_CORRELATION_ID: Final = struct.Struct(">i")
_AT: Final = 4  # after the size of the frame


class SharedAnswer(Message, eq=False):
    """An answer to all requests of one kind and version, in place of its message.

    `seen`: what it was made of besides the image. `is_long`: it is encoded in a thread. `codes`: its error codes, known
    with its bytes.
    """

    _message: Message | None
    _version: int
    seen: Sequence[object] = ()
    is_long: bool = False
    codes: Sequence[int] = ()
    _frame: bytes | None = None

    @property
    def is_encoded(self) -> bool:
        """Whether its bytes are known. They are made at the first response."""
        return self._frame is not None

    def make(self, collect: Collect | None) -> None:
        """Make its bytes, and `collect` its error codes: on the loop, or if it is long in the thread for messages."""
        message, codes = self._message, list[int]()
        if message is None:  # another request was faster
            return
        if collect is not None:
            collect(message, codes)
        self.codes = codes  # before the bytes, with which they are counted
        self._frame, self._message = bytes(write_response(message, self._version, correlation_id=0)), None

    def frame(self, correlation_id: int) -> bytearray:
        """Return the frame of the response to one request."""
        assert self._frame is not None, "it is encoded"
        frame = bytearray(self._frame)
        _CORRELATION_ID.pack_into(frame, _AT, correlation_id)
        return frame


class SharedAnswers:
    """The answers of one broker by the latest image that was asked about."""

    def __init__(self) -> None:
        self._image: object = None
        self._answers: dict[Hashable, SharedAnswer] = {}
        self._rows = 0

    def find(self, image: object, key: Hashable) -> SharedAnswer | None:
        """Return the answer to requests of one kind, None if none was made of this image."""
        if image is not self._image:
            self._image, self._rows = image, 0
            self._answers.clear()
        return self._answers.get(key)

    def put(self, image: object, key: Hashable, answer: SharedAnswer, rows: int) -> None:
        """Keep an answer of so many rows, unless the image has changed since `find`, or it is too long."""
        if image is not self._image or rows > MOST_ROWS:
            return
        self._rows += rows + 1
        if self._rows > MOST_ROWS:
            self._answers.clear()
            self._rows = rows + 1
        self._answers[key] = answer
