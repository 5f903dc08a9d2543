"""Read the metrics page of another process."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from magicbyte.access.clock import SystemClock
from magicbyte.access.net.timed_http import timed_handlers
from magicbyte.engine.errors import NetworkError
from magicbyte.engine.ports import Moment

PATIENCE_S: Final = 30.0
_MOST_BYTES: Final = 256 << 20


class MetricSample(NamedTuple):
    """A sample with its labels."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class PageAccess:
    """The credentials for a page. `authority`: certificates to trust instead of the system's; PEM, as the other files.

    `certificate`: the client's, with its key. `token`: a bearer token, never sent to another page.
    """

    authority: Path | None = None
    certificate: Path | None = None
    token: str = field(default="", repr=False)


class Scrape:
    """All samples of one moment, by name. `at`: by this machine's clocks."""

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
        """Yield all samples of a name."""
        yield from self._samples.get(name, ())

    def one(self, name: str) -> float | None:
        """Return the sample without labels, or None."""
        return next((each.value for each in self.all(name) if not each.labels), None)


async def scrape(address: str, access: PageAccess | None = None, *, patience_s: float = PATIENCE_S) -> Scrape:
    """Return the metrics of http://ADDRESS/metrics, or of the page at ADDRESS if that is a URL.

    Raises NetworkError, also if the whole page does not come within `patience_s`.
    """
    url = address if "://" in address else f"http://{address}/metrics"
    if not url.lower().startswith(("http://", "https://", "file://")):
        raise NetworkError(f"{url}: expected HOST:PORT, or a URL that begins with http:// or https://")

    def get() -> str:
        try:
            with _opened(url, access, patience_s) as response:
                text = response.read(_MOST_BYTES + 1)
                if len(text) > _MOST_BYTES:
                    raise NetworkError(f"{url}: more than {_MOST_BYTES} bytes: expected a page of metrics")
                if missing := getattr(response, "length", None):  # only HTTP responses have a length
                    raise NetworkError(f"{url}: the response ends {missing} bytes early")
                return str(text.decode())
        except (OSError, ValueError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise NetworkError(f"{url}: {reason}") from error

    if access is not None and access.token and not url.startswith("https://"):
        raise NetworkError(f"{url}: a token is sent to https:// only")
    at = Moment.of(SystemClock())
    text = await asyncio.to_thread(get)
    try:
        return await asyncio.to_thread(Scrape, text, at)
    except ValueError as error:
        raise NetworkError(f"{url}: not in Prometheus' text format: {error}") from error


def _opened(url: str, access: PageAccess | None, patience_s: float) -> Any:
    """Return the response for a page. Raises OSError, ValueError, HTTPException."""
    if access is None:
        return urllib.request.build_opener(*timed_handlers(patience_s)).open(url, timeout=patience_s)
    context = ssl.create_default_context(cafile=access.authority)
    if access.certificate is not None:
        context.load_cert_chain(access.certificate)
    headers = {"Authorization": f"Bearer {access.token}"} if access.token else {}
    opener = urllib.request.OpenerDirector()  # without a redirect handler: the token is for this page only
    for handler in (
        *timed_handlers(patience_s, context),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener.open(urllib.request.Request(url, headers=headers), timeout=patience_s)
