"""Find which client sent which requests, in Kafka's request log, kafka-request.log. Brokers write it at DEBUG or TRACE.

Its format by release: names with colons (0.9 to 0.11, for requests with Scala classes), fields in braces (0.9 to 0.11),
`RequestHeader(…)` (1.0 to 2.7), JSON (from 2.8 on). `tests/migration/request_logs` has lines of each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import BinaryIO, Final

from magicbyte.migration.sightings import SeenClient, Sightings
from magicbyte.protocol import APIS

MOST_LINE_BYTES: Final = 16 << 20
_MARK: Final = "Completed request:"
_DATE = re.compile(r"\[?(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{3})")
_HEADER = re.compile(r"RequestHeader\(apiKey=(\w+), apiVersion=(\d+), clientId=(.*?), correlationId=-?\d+\) -- ")
_BRACES = re.compile(r"\{api_key=(\d+),api_version=(\d+),correlation_id=-?\d+,client_id=(.*?)\} -- ")
_NAMED = re.compile(
    r"Name: ?(\w+)Request; ?Version: ?(\d+); ?CorrelationId: ?-?\d+; ?ClientId: ?"
    r"(.*?)(?:;| from (?:connection|client) )"
)
_CONNECTION = re.compile(r" from (?:connection|client) /?(\S+?);")
_SOFTWARE = re.compile(r"ClientInformation\(softwareName=(.*?), softwareVersion=(.*?)\)")
_KEYS: Final = {api.name.lower(): api.key for api in APIS.values()}
_SCALA_NAMES: Final = {
    "producer": "produce", "offset": "listoffsets", "topicmetadata": "metadata", "consumermetadata": "findcoordinator",
    "groupcoordinator": "findcoordinator",
}  # fmt: skip
_UNKNOWN: Final = "unknown"
"""Kafka's text for a client that does not name its library."""


def read_request_log(lines: Iterable[str], into: Sightings) -> int:
    """Add the requests in lines of a request log, and return their number. Other lines are skipped.

    Dates are taken as UTC, because the log has no time zone.
    """
    understood = 0
    for line in lines:
        date, mark, text = line.partition(_MARK)
        if mark and (request := _request(text)) is not None:
            caller, key, version = request
            into.add(caller, key, version, last_ms=_date_ms(date))
            understood += 1
    return understood


def lines_of(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file. A line longer than `MOST_LINE_BYTES` is split into pieces, which are no requests."""
    while line := file.readline(MOST_LINE_BYTES):
        yield line.decode("utf-8", "replace")


def _request(text: str) -> tuple[SeenClient, int, int] | None:
    if text.startswith('{"'):
        return _of_json(text)
    software, version = match.groups() if (match := _SOFTWARE.search(text)) is not None else ("", "")
    about = (_known_text(software), _known_text(version), _address(_CONNECTION.findall(text)))
    if (match := _HEADER.match(text)) is not None:
        key = _KEYS.get(match[1].replace("_", "").lower())
    elif (match := _BRACES.match(text)) is not None:
        key = int(match[1])
    elif (match := _NAMED.match(text)) is not None:
        name = match[1].lower()
        key = _KEYS.get(_SCALA_NAMES.get(name, name))
    if match is None or key not in APIS:
        return None
    return SeenClient(match[3], *about), key, int(match[2])


def _of_json(text: str) -> tuple[SeenClient, int, int] | None:
    try:
        fields, _ = json.JSONDecoder().raw_decode(text)
        header, software = fields["requestHeader"], fields.get("clientInformation", {})
        caller = SeenClient(
            str(header.get("clientId") or ""),
            _known_text(str(software.get("softwareName", ""))),
            _known_text(str(software.get("softwareVersion", ""))),
            _address([str(fields.get("connection", ""))]),
        )
        key, version = int(header["requestApiKey"]), int(header["requestApiVersion"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return (caller, key, version) if key in APIS else None


def _known_text(text: str) -> str:
    return "" if text == _UNKNOWN else text


def _address(connections: list[str]) -> str:
    """Return the client's address from a connection id: HOST:PORT-HOST:PORT and numbers, in old releases HOST:PORT."""
    if not connections:
        return ""
    ends = re.split(r"(?<=:)(\d+)(?:-|$)", connections[-1])  # a text follows each port: "host:", "port", "host:", …
    hosts = [end.removesuffix(":") for end in ends[::2] if end.endswith(":")]
    return hosts[1] if len(hosts) > 1 else "".join(hosts)


def _date_ms(text: str) -> int | None:
    found = _DATE.match(text)
    if found is None:
        return None
    try:
        date = datetime.fromisoformat(f"{found[1]} {found[2]}.{found[3]}").replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(date.timestamp() * 1000)
