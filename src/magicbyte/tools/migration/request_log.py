"""Find which client sent which requests, in Kafka's request log, kafka-request.log. Brokers write it at DEBUG or TRACE.

Its format by release: names with colons (0.9 to 0.11, for requests with Scala classes), fields in braces (0.9 to 0.11),
`RequestHeader(…)` (1.0 to 2.7), JSON (from 2.8 on). `tests/tools/migration/request_logs` has lines of each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import BinaryIO, Final

from magicbyte.engine.protocol import APIS
from magicbyte.tools.migration.sightings import SeenClient, Sightings

MOST_LINE_BYTES: Final = 16 << 20
_MARK: Final = "Completed request:"
_VERSIONS: Final = 1 << 15
"""Versions of requests are below it."""
_DATE = re.compile(r"\[?(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{3})")
MOST_HEAD: Final = 64 << 10
"""Characters at the start of an entry that can hold a request's header: a client id has at most 32,767 bytes."""
_MOST_END: Final = 2000
"""Characters of a connection's id, and of a client's library and its version."""
# Each pattern is matched at one place of a text of bounded length, so that no line takes more than linear time.
_HEADER = re.compile(
    r"RequestHeader\(apiKey=(\w{1,64}), apiVersion=(\d{1,5}), clientId=(.*?), correlationId=-?\d{1,10}\) -- "
)
_BRACES = re.compile(r"\{api_key=(\d{1,5}),api_version=(\d{1,5}),correlation_id=-?\d{1,10},client_id=(.*?)\} -- ")
_NAMED = re.compile(
    r"Name: ?(\w{1,64})Request; ?Version: ?(\d{1,5}); ?CorrelationId: ?-?\d{1,10}; ?ClientId: ?"
    r"(.*?)(?:;| from (?:connection|client) )"
)
_CONNECTION = re.compile(r"/?([^\s;]+);")
_SOFTWARE = re.compile(r"([^,]*), softwareVersion=([^)]*)\)")
_BEFORE_CONNECTION: Final = (" from connection ", " from client ")
_BEFORE_SOFTWARE: Final = ("ClientInformation(softwareName=",)
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
    head, key = text[:MOST_HEAD], None
    if (match := _HEADER.match(head)) is not None:
        key = _KEYS.get(match[1].replace("_", "").lower())
    elif (match := _BRACES.match(head)) is not None:
        key = int(match[1])
    elif (match := _NAMED.match(head)) is not None:
        name = match[1].lower()
        key = _KEYS.get(_SCALA_NAMES.get(name, name))
    if match is None or key not in APIS or int(match[2]) >= _VERSIONS:
        return None
    software, version = _after_last(text, _BEFORE_SOFTWARE, _SOFTWARE) or ("", "")
    (connection,) = _after_last(text, _BEFORE_CONNECTION, _CONNECTION) or ("",)
    return SeenClient(match[3], _known_text(software), _known_text(version), _address(connection)), key, int(match[2])


def _after_last(text: str, marks: Iterable[str], pattern: re.Pattern[str]) -> tuple[str, ...] | None:
    """Return the groups of `pattern` after the last of `marks`: an earlier one may be in the client's own texts."""
    at = max((found + len(mark) for mark in marks if (found := text.rfind(mark)) >= 0), default=None)
    match = None if at is None else pattern.match(text[at : at + _MOST_END])
    return None if match is None else match.groups()


def _of_json(text: str) -> tuple[SeenClient, int, int] | None:
    try:
        fields, _ = json.JSONDecoder().raw_decode(text)
        header, software = fields["requestHeader"], fields.get("clientInformation", {})
        caller = SeenClient(
            str(header.get("clientId") or ""),
            _known_text(str(software.get("softwareName", ""))),
            _known_text(str(software.get("softwareVersion", ""))),
            _address(str(fields.get("connection", ""))[:_MOST_END]),
        )
        key, version = int(header["requestApiKey"]), int(header["requestApiVersion"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    return (caller, key, version) if key in APIS and 0 <= version < _VERSIONS else None


def _known_text(text: str) -> str:
    return "" if text == _UNKNOWN else text


def _address(connection: str) -> str:
    """Return the client's address from a connection id: HOST:PORT-HOST:PORT and numbers, in old releases HOST:PORT."""
    ends = re.split(r"(?<=:)(\d{1,5})(?:-|$)", connection)  # a text follows each port: "host:", "port", "host:", …
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
