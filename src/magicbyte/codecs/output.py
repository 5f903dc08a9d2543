"""What all four codecs share: the signal that the output does not fit."""


class OutputFull(Exception):  # noqa: N818  (a signal to come back with more room, no fault of the data)
    """The decompressed data does not fit into the buffer that was given; nothing says yet how long it would be.

    `needed` is a size in bytes that the data itself claims: a hint, never to be allocated unchecked. 0 when unknown.
    """

    def __init__(self, needed: int = 0) -> None:
        super().__init__(needed)
        self.needed = needed
