"""Pages of numbers: of our brokers, and of Kafka's with an exporter, with rules of several kinds."""

import pytest

from magicbyte.access.net.scrape import Scrape
from magicbyte.engine.ports import Moment
from magicbyte.tools.migration.exporter import read_numbers
from magicbyte.tools.migration.sightings import Seen, SeenClient, SeenRequests, Sightings

PRODUCE, FETCH = 0, 1
LIBRARY = SeenClient("", "librdkafka", "1.0", "")


def read(text: str) -> dict[SeenRequests, Seen]:
    sightings = Sightings()
    read_numbers(Scrape(text, Moment(0, 0)), sightings)
    return dict(sightings)


def test_our_broker_reports_clients_and_times() -> None:
    labels = 'client_id="a",software="b",software_version="c",address="d",request="Fetch",version="3"'
    found = read(
        f"magicbyte_client_requests_total{{{labels}}} 5\n"
        f"magicbyte_client_last_request_timestamp_seconds{{{labels}}} 1700000000.5\n"
        'kafka_network_requestmetrics_requests_total{request="Fetch",version="3"} 5\n'
    )
    assert found == {SeenRequests(SeenClient("a", "b", "c", "d"), FETCH, 3): Seen(5, 1_700_000_000_500)}


@pytest.mark.parametrize(
    "line",
    [
        'kafka_network_requestmetrics_deprecatedrequestspersec_count{request="Fetch",version="3",'
        'clientSoftwareName="librdkafka",clientSoftwareVersion="1.0"} 7',
        'kafka_network_RequestMetrics_Count{name="DeprecatedRequestsPerSec",request="Fetch",version="3",'
        'clientSoftwareName="librdkafka",clientSoftwareVersion="1.0"} 7',
        'kafka_network_requestmetrics_deprecatedrequests_total{request_Fetch__version_3__clientSoftwareName="librdkafka",'
        'clientSoftwareVersion="1.0"} 7',
    ],
)
def test_kafka_tells_the_library_of_old_requests(line: str) -> None:
    assert read(line + "\n") == {SeenRequests(LIBRARY, FETCH, 3): Seen(7, None)}


def test_requests_that_are_counted_with_and_without_their_library_count_once() -> None:
    found = read(
        'kafka_network_requestmetrics_requests_total{request="Fetch",version="3"} 7\n'
        'kafka_network_requestmetrics_requests_total{request="FetchConsumer",version="3"} 7\n'
        'kafka_network_requestmetrics_requests_total{request="Produce",version="2"} 4\n'
        'kafka_network_requestmetrics_deprecatedrequests_total{request="Fetch",version="3",'
        'clientSoftwareName="librdkafka",clientSoftwareVersion="1.0"} 7\n'
    )
    assert found == {SeenRequests(SeenClient(), PRODUCE, 2): Seen(4), SeenRequests(LIBRARY, FETCH, 3): Seen(7)}


def test_numbers_that_make_no_sense_are_passed_over() -> None:
    assert (
        read(
            'kafka_network_requestmetrics_requests_total{request="Fetch",version="x"} 7\n'
            'kafka_network_requestmetrics_requests_total{request="Fetch",version="3"} NaN\n'
            'kafka_network_requestmetrics_requests_total{request="Nothing",version="3"} 1\n'
            'kafka_network_requestmetrics_totaltimems_count{request="Fetch",version="3"} 1\n'
        )
        == {}
    )
    labels = '{client_id="a",request="Fetch",version="3"}'
    found = read(
        f"magicbyte_client_requests_total{labels} +Inf\nmagicbyte_client_last_request_timestamp_seconds{labels} 1e300\n"
    )
    assert found == {SeenRequests(SeenClient("a"), FETCH, 3): Seen(0, None)}
