"""This machine's clocks. Nothing else in the package asks the machine for a date (tests/test_clock.py checks it)."""

import time


class SystemClock:
    """The `ports.Clock` of this machine."""

    def now_ms(self) -> int:
        """Return the date in ms since 1970, which an administrator or NTP may turn either way at any time."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return ms since an arbitrary start, which nobody turns."""
        return time.monotonic_ns() // 1_000_000
