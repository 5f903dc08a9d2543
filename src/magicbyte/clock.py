"""This machine's clocks and its random numbers. Nothing else in the package asks the machine for a date
(tests/test_clock.py checks it); `client/` and `net/` are given all of these, so that a cluster can be simulated.
"""

import time


class SystemClock:
    """The `ports.Clock` of this machine."""

    def now_ms(self) -> int:
        """Return the date in ms since 1970, which an administrator or NTP may turn either way at any time."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return ms since an arbitrary start, which nobody turns."""
        return time.monotonic_ns() // 1_000_000


def monotonic_s() -> float:
    """Return seconds since an arbitrary start, which nobody turns."""
    return time.monotonic()


def cpu_s() -> float:
    """Return the processor time of this process in seconds."""
    return time.process_time()


def uniform(low: float, high: float) -> float:
    """Return a random number between two."""
    import random  # here: a broker that only serves needs none

    return random.uniform(low, high)
