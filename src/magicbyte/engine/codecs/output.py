"""The exception with which all four codecs signal that the output does not fit."""


class OutputFull(Exception):  # noqa: N818  (a signal to come back with more room, no fault of the data)
    """The decompressed data does not fit into the given buffer; its size is still unknown.

    `needed` is the size in bytes that the data itself claims: a hint that must not be allocated unchecked. 0 if
    unknown.
    """

    def __init__(self, needed: int = 0) -> None:
        super().__init__(needed)
        self.needed = needed
