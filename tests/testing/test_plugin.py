"""pytest's fixtures, in test suites that are run here, and the example that shows them."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from magicbyte.testing import plugin

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PLUGIN = ("-p", "magicbyte.testing.plugin", "-p", "no:cacheprovider")


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty test suite, in whose run the plugin is the only one."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv(
        "PYTHONDONTWRITEBYTECODE", "1"
    )  # else a test rewritten within the same second would run from the old bytecode
    return pytester


ASKING = """
    import asyncio

    import pytest

    from magicbyte.access.client import Client, admin

    def topics(broker):
        async def ask():
            async with Client(broker.bootstrap_servers) as client:
                return await client.topics()
        return asyncio.run(ask())

    def settings(broker, name):
        async def ask():
            async with Client(broker.bootstrap_servers) as client:
                return await admin.describe_configs(client, admin.ConfigResource.TOPIC, name)
        return asyncio.run(ask())
"""


def passes(suite: pytest.Pytester, tests: str, count: int) -> None:
    suite.makepyfile(ASKING + tests)
    suite.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=count)


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    ((name, module),) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
        "pytest11"
    ].items()
    assert EntryPoint(name=name, value=module, group="pytest11").load() is plugin


def test_modules_of_the_package_are_not_rewritten_for_assertions(suite: pytest.Pytester) -> None:
    """pytest marks every module of a distribution with a plugin for that."""
    suite.makeconftest("import pytest; pytest.register_assert_rewrite('magicbyte')")
    suite.makepyfile("""
    def test_loader():
        import magicbyte.server.settings.config
        assert type(magicbyte.server.settings.config.__spec__.loader).__name__ == "SourceFileLoader"
    """)
    suite.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


def test_a_run_has_one_broker_and_each_test_a_new_topic(suite: pytest.Pytester) -> None:
    passes(
        suite,
        """
    seen = []

    @pytest.mark.parametrize("case", ["a/b", "ü", "x" * 300])
    def test_one(kafka_broker, kafka_topic, case):
        assert list(topics(kafka_broker)[kafka_topic].partitions) == [0]
        seen.append((kafka_broker, kafka_topic))

    def test_two(kafka_broker):
        assert {broker for broker, _ in seen} == {kafka_broker}
        assert len({name for _, name in seen}) == 3
        assert not topics(kafka_broker)  # each went with its test
        """,
        4,
    )


def test_a_mark_says_how_the_topic_is_made(suite: pytest.Pytester) -> None:
    passes(
        suite,
        """
    @pytest.mark.kafka_topic(partitions=3, configs={"cleanup.policy": "compact"})
    def test_mark(kafka_broker, kafka_topic):
        assert len(topics(kafka_broker)[kafka_topic].partitions) == 3
        assert settings(kafka_broker, kafka_topic)["cleanup.policy"].value == "compact"
        """,
        1,
    )


def test_a_test_may_delete_its_topic_and_may_ask_for_it_inside_a_running_loop(suite: pytest.Pytester) -> None:
    passes(
        suite,
        """
    def test_deleted(kafka_broker, kafka_topic):
        async def work():
            async with Client(kafka_broker.bootstrap_servers) as client:
                await admin.delete_topic(client, kafka_topic)
        asyncio.run(work())

    def test_late(kafka_broker, request):
        async def work():
            return request.getfixturevalue("kafka_topic")
        assert asyncio.run(work()) in topics(kafka_broker)
        """,
        2,
    )


def test_settings_come_from_the_configuration_or_from_a_fixture(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\nkafka_broker_settings =\n    log.retention.ms = 1234\n    num.partitions=2\n")
    tests = """
    def test_setting(kafka_broker, kafka_topic):
        assert settings(kafka_broker, kafka_topic)["retention.ms"].value == "{}"
    """
    passes(suite, tests.format(1234), 1)
    suite.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def kafka_broker_settings():
            return {"log.retention.ms": "5678"}
        """
    )
    passes(suite, tests.format(5678), 1)


def test_a_setting_without_a_value_is_said_to_be_so(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\nkafka_broker_settings = num.partitions\n")
    suite.makepyfile("def test_setting(kafka_broker): pass")
    result = suite.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*kafka_broker_settings: 'num.partitions': expected KEY=VALUE*"])


def test_a_run_that_needs_no_broker_imports_none_and_the_mark_is_explained(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import sys

        def test_nothing():
            assert "magicbyte.testing.plugin" in sys.modules
            assert not {"magicbyte.testing.broker", "magicbyte.access.client", "numpy"} & set(sys.modules)
        """
    )
    suite.runpytest_subprocess(*PLUGIN, "--strict-markers").assert_outcomes(passed=1)
    suite.runpytest_subprocess(*PLUGIN, "--markers").stdout.fnmatch_lines(["@pytest.mark.kafka_topic(partitions=1*"])


def test_the_example_passes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(left), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", *PLUGIN, str(ROOT / "examples/pytest")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    assert not list(left.iterdir())


def test_the_option_has_the_broker_offer_what_an_older_release_does(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        def test_it(kafka_broker):
            assert kafka_broker.served.runtime.offer.answered[0] == range(3)
    """)
    suite.runpytest_inprocess(*PLUGIN, "--kafka-as-version", "0.10.2").assert_outcomes(passed=1)
    refused = suite.runpytest_inprocess(*PLUGIN, "--kafka-as-version", "0.7")
    refused.assert_outcomes(errors=1)
    refused.stdout.fnmatch_lines("*as.version: expected a release from 0.8.2 to 4.4, found '0.7'*")


def test_a_cluster_is_whole_again_for_the_next_test_and_has_settings_of_its_own(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\nkafka_cluster_brokers = 2\nkafka_cluster_settings =\n    num.partitions=4\n")
    tests = """
    from magicbyte.access.client.admin import NewTopic, create_topic

    def test_breaks(kafka_cluster):
        kafka_cluster.cut(1, 2)
        kafka_cluster.kill(1)
        assert kafka_cluster.running == {2}

    def test_is_whole(kafka_cluster):
        assert kafka_cluster.running == {1, 2}
        async def make():
            async with Client(kafka_cluster.bootstrap_servers) as client:
                await create_topic(client, NewTopic("orders", -1, -1))
                return (await client.topics(["orders"]))["orders"]
        topic = asyncio.run(make())
        assert len(topic.partitions) == 4
        assert len(topic.partitions[0].replicas) == 2
    """
    passes(suite, tests, 2)


def test_a_number_of_brokers_that_is_none_is_an_error_of_use(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\nkafka_cluster_brokers = many\n")
    suite.makepyfile("def test_it(kafka_cluster): pass")
    suite.runpytest_subprocess(*PLUGIN).stdout.fnmatch_lines("*kafka_cluster_brokers: 'many': expected a number*")
