"""What tests of the trees of metadata share."""


class Clock:
    """A clock that is a second later each time."""

    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        self.time_ms += 1000
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms
