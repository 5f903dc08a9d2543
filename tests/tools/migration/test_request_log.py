"""Lines of real brokers' request logs, one file for each form that they have had."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.tools.migration.request_log import MOST_LINE_BYTES, lines_of, read_request_log
from magicbyte.tools.migration.sightings import Seen, SeenClient, SeenRequests, Sightings

LOGS = Path(__file__).parent / "request_logs"
"""By release: what real brokers wrote while a client of this project, `orders-service`, was there."""
METADATA, FETCH, API_VERSIONS = 3, 1, 18


def read(text: str) -> dict[SeenRequests, Seen]:
    sightings = Sightings()
    read_request_log(text.splitlines(), sightings)
    return dict(sightings)


def of(release: str) -> dict[SeenRequests, Seen]:
    return read((LOGS / f"{release}.log").read_text())


@pytest.mark.parametrize(
    ("release", "asking"),
    [
        ("0.9.0.1", SeenRequests(SeenClient("orders-service", address="127.0.0.1"), FETCH, 1)),
        ("0.10.0.1", SeenRequests(SeenClient("orders-service", address="127.0.0.1"), API_VERSIONS, 0)),
        ("0.11.0.3", SeenRequests(SeenClient("orders-service", address="127.0.0.1"), METADATA, 4)),
        ("1.1.1", SeenRequests(SeenClient("orders-service", address="127.0.0.1"), METADATA, 5)),
        ("2.4.1", SeenRequests(SeenClient("orders-service", "", "", "127.0.0.1"), METADATA, 9)),
        ("2.7.2", SeenRequests(SeenClient("orders-service", "magicbyte", "0.1", "127.0.0.1"), METADATA, 9)),
        ("2.8.2", SeenRequests(SeenClient("orders-service", "magicbyte", "0.1", "127.0.0.1"), METADATA, 11)),
        ("3.9.1", SeenRequests(SeenClient("orders-service", "magicbyte", "0.1", "127.0.0.1"), METADATA, 12)),
    ],
)
def test_a_client_is_found_in_the_log_of_each_release(release: str, asking: SeenRequests) -> None:
    found = of(release)
    assert found[asking].count > 0
    assert 1_795_594_800_000 < (found[asking].last_ms or 0) < 1_795_600_000_000  # 25 November 2026


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
def test_every_line_is_understood(path: Path) -> None:
    sightings = Sightings()
    lines = [line for line in path.read_text().splitlines() if "Controller:" not in line]  # which speak to brokers
    assert read_request_log(lines, sightings) == len(lines)


def test_ids_with_marks_of_the_log_in_them_are_read_whole() -> None:
    hostile = 'probe}, -- {x;y"z'
    header = {"requestApiKey": 8, "requestApiVersion": 0, "clientId": hostile}
    as_json = json.dumps({"requestHeader": header, "connection": "10.0.0.1:9092-10.0.0.2:48498-4"})
    log = (
        f"x Completed request:{as_json}\n"
        f"x Completed request:RequestHeader(apiKey=FETCH, apiVersion=3, clientId={hostile}, correlationId=1) -- {{}}"
        " from connection 0:0:0:0:0:0:0:1:9092-0:0:0:0:0:0:0:2:48498-4;totalTime:1\n"
    )
    assert list(read(log)) == [
        SeenRequests(SeenClient(hostile, address="0:0:0:0:0:0:0:2"), FETCH, 3),
        SeenRequests(SeenClient(hostile, address="10.0.0.2"), 8, 0),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Completed request:",
        "Completed request:{",
        'Completed request:{"requestHeader":[]}',
        'Completed request:{"requestHeader":{"requestApiKey":"x","requestApiVersion":0}}',
        'Completed request:{"requestHeader":{"requestApiKey":9999,"requestApiVersion":0}}',
        'Completed request:{"a":' + "[" * 100_000,
        "Completed request:RequestHeader(apiKey=NOTHING, apiVersion=1, clientId=a, correlationId=1) -- {}",
        "[2026-11-25 08:22:04,061] INFO something else",
    ],
)
def test_other_lines_are_passed_over(line: str) -> None:
    assert read(line) == {}


def test_lines_are_bounded() -> None:
    file = io.BytesIO(b"x" * (MOST_LINE_BYTES + 10) + b"\nnext\n")
    assert [len(line) for line in lines_of(file)] == [MOST_LINE_BYTES, 11, 5]


FORMS = {
    "header": "RequestHeader(apiKey=FETCH, apiVersion=1, clientId=",
    "braces": "{api_key=1,api_version=1,correlation_id=1,client_id=",
    "named": "Name: FetchRequest; Version: 1; CorrelationId: 1; ClientId: ",
    "connection": "RequestHeader(apiKey=FETCH, apiVersion=1, clientId=a, correlationId=1) -- {} from connection ",
    "software": "RequestHeader(apiKey=FETCH, apiVersion=1, clientId=a, correlationId=1) -- {} "
    "clientInformation:ClientInformation(softwareName=",
}
FRAGMENTS = (
    ", correlationId=", ", correlationId=1) -- ", "} -- ", ";", " from connection ", " from client /", "1:1-",
    "ClientInformation(softwareName=", ", softwareVersion=", ")", "9" * 20, "a", " ", "\u20ac",
)  # fmt: skip
"""What a client can write into its id so that a pattern restarts or continues."""


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_no_line_takes_more_than_linear_time(form: str, fragment: str) -> None:
    """A megabyte each: a pattern of quadratic time would not end."""
    read(f"[2026-11-25 08:22:04,061] x Completed request:{form}{fragment * ((1 << 20) // len(fragment))}")


@given(form=st.sampled_from(sorted(FORMS)), middle=st.lists(st.sampled_from(FRAGMENTS), max_size=30))
def test_whatever_a_client_calls_itself_is_an_id_or_no_request(form: str, middle: list[str]) -> None:
    for asking in read(f"Completed request:{FORMS[form]}{''.join(middle)}, correlationId=1) -- {{}}; "):
        assert (asking.api_key, asking.version) == (FETCH, 1)


@pytest.mark.parametrize(
    "number", ["9" * 5000, "1e999", "Infinity", "-1", "99999"], ids=["long", "large", "infinite", "negative", "beyond"]
)
def test_a_version_beyond_any_is_no_request(number: str) -> None:
    header = f'{{"requestHeader":{{"requestApiKey":1,"requestApiVersion":{number},"clientId":"a"}}}}'
    assert read(f"Completed request:{header}\n") == {}
    text = f"RequestHeader(apiKey=FETCH, apiVersion={number}, clientId=a, correlationId=1) -- {{}}"
    assert read(f"Completed request:{text}\n") == {}
