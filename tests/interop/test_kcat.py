"""`magicbyte consume` and `produce` beside kcat, with the same options: the same output, the same records."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from magicbyte.cli.main import main
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop]

LINES = b"a:1\nb\n:2\nc:\nd:\xc3\xbc\n"
ALL = r"%t %p %o %T %k %K %s %S %h\n"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with a topic of each producer, with a header on all records of one partition."""
    if shutil.which("kcat") is None:
        pytest.skip("needs kcat; on Debian or Ubuntu: sudo apt install kcat")
    with Broker({"num.partitions": "1"}) as broker:
        address = broker.bootstrap_servers
        options = ["-K", ":", "-H", "name=value", "-H", "empty=", "-p", "0"]
        assert ours("produce", address, "ours", "--create", *options, text=LINES) == b""
        assert kcat("-P", address, "kcat", *options, text=LINES) == b""
        yield address


def ours(command: str, address: str, topic: str, *options: str, text: bytes = b"") -> bytes:
    result = CliRunner().invoke(main, [command, "-b", address, "-t", topic, *options], input=text)
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes


def kcat(mode: str, address: str, topic: str, *options: str, text: bytes = b"") -> bytes:
    command = ["kcat", mode, "-b", address, "-m", "200", "-t", topic, *options, *(["-q"] if mode == "-C" else [])]
    return subprocess.run(command, input=text, capture_output=True, timeout=240, check=True).stdout


@pytest.mark.parametrize("topic", ["ours", "kcat"])
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["-f", ALL],
        ["-K", r"\t"],
        ["-o", "-2"],
        ["-o", "1", "-c", "2"],
        ["-o", "end"],
        ["-o", "s@0", "-p", "0"],
    ],
    ids=" ".join,
)
def test_consume_prints_what_kcat_prints(options: list[str], topic: str, bootstrap: str) -> None:
    expected = kcat("-C", bootstrap, topic, "-e", *options)
    assert ours("consume", bootstrap, topic, "-e", *options) == expected
    assert bool(expected) == ("end" not in options)


def test_produce_writes_the_records_that_kcat_writes(bootstrap: str) -> None:
    written = [ours("consume", bootstrap, topic, "-e", "-f", r"%p %o %k %K %s %S %h\n") for topic in ("ours", "kcat")]
    assert written[0] == written[1]
    assert written[0].count(b"name=value,empty=") == 5
