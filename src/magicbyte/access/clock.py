"""This machine's clocks and random numbers.

Nothing else in the package asks the machine for a date (tests/test_clock.py checks it). `client/` and `net/` get all of
these as parameters, so that a cluster can be simulated.
"""

import time
from typing import Final

_monotonic_ns: Final = (time.monotonic_ns,)  # in a tuple, where what replaces functions of modules does not find it


class SystemClock:
    """The `ports.Clock` of this machine."""

    def now_ms(self) -> int:
        """Return the date in ms since 1970. An administrator or NTP may change it in either direction at any time."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return ms since an arbitrary start; never adjusted. A test that freezes Python's clocks does not stop it."""
        return _monotonic_ns[0]() // 1_000_000


def monotonic_s() -> float:
    """Return seconds since an arbitrary start; never adjusted."""
    return time.monotonic()


def cpu_s() -> float:
    """Return the CPU time of this process in seconds."""
    return time.process_time()


def uniform(low: float, high: float) -> float:
    """Return a random number between `low` and `high`."""
    import random  # imported here because a broker that only serves does not need it

    return random.uniform(low, high)
