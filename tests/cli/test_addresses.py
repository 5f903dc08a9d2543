"""Every option of every command that takes an address refuses a port that the system would wrap, with one message."""

from pathlib import Path

import pytest

from cli.builders import BESIDE, options
from cli.command import run

PAGES = {("plan", "--http"), *((f"migrate {name}", "--metrics") for name in ("check", "canary", "status", "next"))}
"""Options for a page of metrics, HOST:PORT or a URL: tests/test_addresses.py."""
FORMS = {"--standalone": "CONTROLLER://{}", "--controller-quorum-voters": "1@{}"}
"""What is around the address, if anything."""


def test_the_options_are_found() -> None:
    assert len(options()) > 30


@pytest.mark.parametrize("address", ["localhost:65536", "localhost:74628", "localhost"])
@pytest.mark.parametrize(("name", "option"), [each for each in options() if each not in PAGES])
def test_an_option_refuses_a_port_that_would_be_wrapped(
    name: str, option: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}')
    if "zookeeper" in option and address == "localhost":
        return  # the default port
    beside = BESIDE.get(name, "").replace("{}", "x:1")
    result = run(*name.split(), *beside.split(), option, FORMS.get(option, "{}").format(address))
    assert result.exit_code == 2
    assert f"{address!r}: expected" in result.stderr
    assert "HOST:PORT: expected" not in result.stderr
    if ":" in address:
        assert f"to 65535, found {address.partition(':')[2]}" in result.stderr
    assert option in result.stderr or option in ("--http", "--listen")


@pytest.mark.parametrize("name", ["cat", "diff", "inventory"])
def test_a_topic_as_a_path_has_such_an_address(name: str) -> None:
    count = BESIDE[name].count("{}")
    result = run(name, *["kafka://localhost:65536/t"] * count)
    assert result.exit_code == 2
    assert "'localhost:65536': expected a port from 1 to 65535, found 65536" in result.stderr


@pytest.mark.parametrize(
    "line", ["mirror --from {} --to a:1 --topics t", "mirror --from . --to {} --topics t", "rescue . --to {}"]
)
@pytest.mark.parametrize("url", ["http://x:1/y", "s3://x/y", "kafka://x:1/t", "PLAINTEXT://x:1"])
def test_a_url_is_neither_brokers_nor_a_folder(
    line: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(b"")
    result = run(*line.format(url).split())
    assert result.exit_code == 2
    assert f"{url!r}: expected HOST:PORT, such as localhost:9092, or a log directory of this machine" in result.stderr


def test_a_store_that_cannot_be_reached_is_named() -> None:
    result = run("inventory", "ftp://localhost:1/logs")
    assert result.exit_code == 2
    assert "ftp://localhost:1/logs: expected a path or a URL" in result.stderr
