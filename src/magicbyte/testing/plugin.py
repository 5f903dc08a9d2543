"""pytest fixtures: `kafka_broker` and `kafka_cluster` for a session, `kafka_topic` for a test.

pytest finds them if magicbyte is installed; a session that uses neither imports nothing else of magicbyte.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from magicbyte.access.client.admin import NewTopic
    from magicbyte.testing.broker import Broker
    from magicbyte.testing.cluster import Cluster

SETTINGS: Final = "kafka_broker_settings"
CLUSTER_SETTINGS: Final = "kafka_cluster_settings"
CLUSTER_BROKERS: Final = "kafka_cluster_brokers"
OPTION: Final = "--kafka-as-version"
MARK: Final = "kafka_topic"
_MARK_USE: Final = "kafka_topic(partitions=1, configs={}): how the fixture kafka_topic creates its topic"
_LONGEST: Final = 100  # characters of a test's name in its topic; Kafka allows 249 in total
_TIMEOUT_MS: Final = 10_000

_numbers = itertools.count(1)


class _PlainImports:
    """Finds modules of magicbyte for the interpreter alone.

    pytest rewrites the assertions of every module of a distribution that has a plugin: here some 270 modules, for
    1.5 s of CPU where no bytecode is cached. Nothing in them is a test's assertion.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module of magicbyte; leave others to the finders behind."""
        return PathFinder.find_spec(name, path, target) if name.startswith("magicbyte.") else None


sys.meta_path.insert(0, _PlainImports)  # before pytest's, which is there when plugins are loaded


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting of pytest's configuration file, and the option."""
    parser.addini(SETTINGS, "Settings of kafka_broker, with Kafka's names: KEY=VALUE, one per line.", type="linelist")
    parser.addini(CLUSTER_SETTINGS, "The same for each broker of kafka_cluster.", type="linelist")
    parser.addini(CLUSTER_BROKERS, "How many brokers kafka_cluster has.", default="3")
    parser.getgroup("magicbyte").addoption(
        OPTION,
        metavar="RELEASE",
        help="The Kafka release that kafka_broker and kafka_cluster imitate, 0.8.2 to 4.4.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", _MARK_USE)


@pytest.fixture(scope="session")
def kafka_broker_settings(pytestconfig: pytest.Config) -> Mapping[str, str]:
    """Return the broker's settings from pytest's configuration. Override this fixture to change them."""
    return _settings(pytestconfig, SETTINGS)


def _settings(pytestconfig: pytest.Config, ini: str) -> dict[str, str]:
    settings = {}
    for line in pytestconfig.getini(ini):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{ini}: {line!r}: expected KEY=VALUE")
        settings[name.strip()] = value.strip()
    return settings


def _as_version(pytestconfig: pytest.Config) -> dict[str, str]:
    release = pytestconfig.getoption(OPTION)
    return {} if release is None else {"as.version": release}


@pytest.fixture(scope="session")
def kafka_broker(kafka_broker_settings: Mapping[str, str], pytestconfig: pytest.Config) -> Iterator[Broker]:
    """Yield a broker for the whole session, in its own thread; clients connect to `kafka_broker.bootstrap_servers`."""
    from magicbyte.testing.broker import Broker

    with Broker({**kafka_broker_settings, **_as_version(pytestconfig)}) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_cluster_settings(pytestconfig: pytest.Config) -> Mapping[str, str]:
    """Return the settings of each broker of the cluster from pytest's configuration.

    Override this fixture to change them.
    """
    return _settings(pytestconfig, CLUSTER_SETTINGS)


@pytest.fixture(scope="session")
def _kafka_cluster_of_the_run(
    kafka_cluster_settings: Mapping[str, str], pytestconfig: pytest.Config
) -> Iterator[Cluster]:
    from magicbyte.testing.cluster import Cluster

    count = pytestconfig.getini(CLUSTER_BROKERS)
    if not count.isdecimal() or not int(count):
        raise pytest.UsageError(f"{CLUSTER_BROKERS}: {count!r}: expected a number from 1 on")
    with Cluster(int(count), {**kafka_cluster_settings, **_as_version(pytestconfig)}) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(_kafka_cluster_of_the_run: Cluster) -> Iterator[Cluster]:
    """Yield a cluster in its own thread: one for the whole session, restored for each test.

    After a test, killed and stopped brokers are restarted, and network partitions are removed.
    """
    yield _kafka_cluster_of_the_run
    _kafka_cluster_of_the_run.restore()


@pytest.fixture
def kafka_topic(kafka_broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the name of an empty topic that is created for this test, and deleted after it.

    It has one partition, and the parameters of `@pytest.mark.kafka_topic(partitions=3, configs={...})`.
    """
    from magicbyte.access.client.admin import NewTopic

    mark = request.node.get_closest_marker(MARK)
    topic = NewTopic(_name_for(request.node.name), **({} if mark is None else mark.kwargs))
    _in_a_thread(_create(kafka_broker.bootstrap_servers, topic))
    yield topic.name
    _in_a_thread(_delete(kafka_broker.bootstrap_servers, topic.name))


def _name_for(test: str) -> str:
    """Return a topic name that is unique in this process, and contains the test's name."""
    return f"{re.sub('[^A-Za-z0-9-]+', '-', test)[:_LONGEST].strip('-')}-{next(_numbers)}"


async def _create(bootstrap: str, topic: NewTopic) -> None:
    from magicbyte.access.client import Client
    from magicbyte.access.client.admin import create_topic

    async with Client(bootstrap, request_timeout_ms=_TIMEOUT_MS, retry_ms=0) as client:
        await create_topic(client, topic)


async def _delete(bootstrap: str, name: str) -> None:
    from magicbyte.access.client import Client
    from magicbyte.access.client.admin import delete_topic
    from magicbyte.engine.errors import BrokerError, ErrorCode

    async with Client(bootstrap, request_timeout_ms=_TIMEOUT_MS, retry_ms=0) as client:
        try:
            await delete_topic(client, name)
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # otherwise the test has deleted it
                raise


def _in_a_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a thread of its own, because this thread's loop belongs to the test."""
    with ThreadPoolExecutor(1, thread_name_prefix="kafka_topic") as threads:
        threads.submit(asyncio.run, work).result()
