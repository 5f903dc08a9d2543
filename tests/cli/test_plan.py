"""`magicbyte plan`: of log directories, of a broker, of both."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.command import run
from magicbyte.cli.main import main
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import NetworkError
from magicbyte.engine.printable import time_text
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.testing import Broker
from ports import free_port

DOCS = Path(__file__).parents[2] / "docs"
CENTURY_MS = 36_525 * 86_400_000
START = 1_700_000_000_000


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name, forms in {"orders-0": "00", "orders-1": "01", "events-0": "12"}.items():
        folder = tmp_path / "logs" / name
        folder.mkdir(parents=True)
        for at, form in enumerate(forms):
            rows = [Record(each, START + each, 0, b"key", b"value") for each in range(at * 10, at * 10 + 10)]
            data = encode_records(rows, Format(form), Codec.GZIP if form == "1" else Codec.NONE)
            (folder / f"{at * 10:020}.log").write_bytes(data)
    return tmp_path / "logs"


def test_directories_alone_show_the_stored_formats_and_when_the_old_one_leaves(logs: Path) -> None:
    done = run("plan", "--dir", logs, "--format", "json", f"retention.ms={CENTURY_MS}")
    assert done.exit_code == 0
    events, orders = json.loads(done.stdout)["topics"]
    assert (events["topic"], events["format"], events["target"], events["next"]) == (
        "events",
        "2",
        "2",
        "wait for retention",
    )
    assert events["oldFormatLeaves"] == time_text(START + 9 + CENTURY_MS + 1)  # by the newest record of the segment
    assert (orders["topic"], orders["format"], orders["phase"]) == ("orders", "1", "phase 2")
    assert (orders["formatIsKnown"], orders["retentionDeletesIt"]) == (False, True)
    assert {(each["format"], each["codec"]): each["entries"] for each in orders["stored"]} == {
        ("0", "none"): 30,
        ("1", "gzip"): 1,
    }


def test_the_table_has_a_line_for_each_topic(logs: Path) -> None:
    done = run("plan", "--dir", logs, "cleanup.policy=compact")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["topic", "format", "stored", "phase", "next", "step", "old", "format", "leaves"]
    assert lines[1].split()[:2] == ["events", "v2?"]
    assert lines[1].endswith("convert the stored records  never")
    assert "note: clients: no client was seen: the metrics of magicbyte brokers tell them" in lines[-1]
    assert "note: ?: the newest stored format; the setting is not known" in lines[-2]


def test_retention_is_not_known_without_the_topics_settings(logs: Path) -> None:
    """Kafka's defaults would delete these records soon; whether the topic has them, the directory does not say."""
    events, orders = json.loads(run("plan", "--dir", logs, "--format", "json").stdout)["topics"]
    for topic in (events, orders):
        assert (topic["next"], topic["oldFormatLeaves"]) == ("see whether retention deletes the older records", None)
        assert topic["retentionDeletesIt"] is None
    assert "not known" in run("plan", "--dir", logs).stdout.splitlines()[1]


def test_a_target_can_be_chosen(logs: Path) -> None:
    done = run("plan", "--dir", logs, "--topic", "orders", "--to", "2", "--format", "json")
    (topic,) = json.loads(done.stdout)["topics"]
    assert (topic["target"], topic["phase"], topic["next"]) == ("2", "phase 1", "see that consumers read the format")


def test_our_broker_reports_which_client_sends_what() -> None:
    with Broker({"http.address": "127.0.0.1:0", "log.message.format.version": "1"}) as broker:
        address = f"127.0.0.1:{broker.served.http_port}"
        assert run("topics", "create", "-b", broker.bootstrap_servers, "topic").exit_code == 0
        arguments = ["produce", "-b", broker.bootstrap_servers, "-t", "topic"]
        assert CliRunner().invoke(main, arguments, input=b"one\n").exit_code == 0
        done = run("plan", "-b", broker.bootstrap_servers, "--http", address, "--rehearse", "0", "--format", "json")
        assert done.exit_code == 0, done.stderr
        (topic,) = json.loads(done.stdout)["topics"]
        (client,) = topic["clients"]
        assert (client["is"], client["format"], topic["next"]) == ("producer", "2", "set message.format.version")
        text = run("plan", "-b", broker.bootstrap_servers, "--http", address, "--rehearse", "0").stdout
        assert "sends v2, Produce v" in text
        assert "the broker used" in text


@pytest.mark.parametrize(
    "command", [["plan", "--rehearse", "0"], ["migrate", "status"]], ids=["plan", "migrate status"]
)
def test_a_broker_whose_metrics_are_out_of_reach_is_a_note(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(address: str) -> None:
        raise NetworkError(f"http://{address}/metrics: Connection refused")

    with Broker({"http.address": f"127.0.0.1:{free_port()}"}) as broker:
        assert run("topics", "create", "-b", broker.bootstrap_servers, "topic").exit_code == 0
        monkeypatch.setattr("magicbyte.tools.migration.planner.scrape", refused)
        done = run(*command, "-b", broker.bootstrap_servers)
    assert done.exit_code == 0, done.stderr
    assert "note: metrics of broker 0 are unavailable" in done.stdout
    assert "Connection refused" in done.stdout


def test_what_is_damaged_is_left_to_verify(logs: Path) -> None:
    path = logs / "orders-0" / f"{10:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = run("plan", "--dir", logs, "--topic", "orders", "--format", "json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["topics"][0]["stored"]


def test_the_commands_of_the_page_work_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("tour", "--unpack", tmp_path / "tour").exit_code == 0
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "commands/plan.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for line in block.splitlines():
        done = run(*shlex.split(line)[1:])
        assert (done.exit_code, done.stderr) == (0, ""), line


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "expected -b HOST:PORT, --dir DIR, or both"),
        (["--dir", "nowhere"], "does not exist"),
        (["-b", "127.0.0.1:1"], "is a broker running there?"),
    ],
)
def test_what_cannot_be_asked_is_one_line(arguments: list[str], why: str) -> None:
    done = run("plan", *arguments)
    assert done.exit_code == 2
    assert why in done.stderr
