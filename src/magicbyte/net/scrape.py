"""The numbers of a process that shows them over HTTP, read back."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from magicbyte.clock import SystemClock
from magicbyte.errors import NetworkError
from magicbyte.ports import Moment

_PATIENCE_S: Final = 30.0
_MOST_BYTES: Final = 256 << 20


class MetricSample(NamedTuple):
    """A number with its labels."""

    labels: Mapping[str, str]
    value: float


class Scrape:
    """All numbers of one moment, by name. `at`: by this machine's clocks."""

    def __init__(self, text: str, at: Moment) -> None:
        from prometheus_client.parser import text_string_to_metric_families

        self.at = at
        self._samples: dict[str, list[MetricSample]] = {}
        for family in text_string_to_metric_families(text):
            for each in family.samples:
                self._samples.setdefault(each.name, []).append(MetricSample(each.labels, each.value))

    def names(self) -> Iterable[str]:
        """Return all names."""
        return self._samples.keys()

    def all(self, name: str) -> Iterator[MetricSample]:
        """Yield all numbers of a name."""
        yield from self._samples.get(name, ())

    def one(self, name: str) -> float | None:
        """Return the number that has no labels; None where there is none."""
        return next((each.value for each in self.all(name) if not each.labels), None)


async def scrape(address: str) -> Scrape:
    """Return what http://ADDRESS/metrics says, or the page at ADDRESS where that is a URL. Raises NetworkError."""
    url = address if "://" in address else f"http://{address}/metrics"

    def get() -> str:
        try:
            with urllib.request.urlopen(url, timeout=_PATIENCE_S) as response:
                text = response.read(_MOST_BYTES + 1)
                if len(text) > _MOST_BYTES:
                    raise NetworkError(f"{url}: more than {_MOST_BYTES} bytes: expected a page of numbers")
                return str(text.decode())
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise NetworkError(f"{url}: {reason}") from error

    at = Moment.of(SystemClock())
    text = await asyncio.to_thread(get)
    try:
        return await asyncio.to_thread(Scrape, text, at)
    except ValueError as error:
        raise NetworkError(f"{url}: not in Prometheus' text format: {error}") from error
