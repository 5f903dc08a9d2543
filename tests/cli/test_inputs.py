"""No command changes what it reads, unless a flag says so: contents, names and times before and after.

`run` compares the inputs of each command line of the whole suite. Here is one line at least for each command, on golden
logs, with arguments that it takes; a command without one fails a test.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import golden_data
from cli.builders import commands
from cli.command import IN_PLACE, inputs, run, state
from kraft_data import KraftNode
from magicbyte.testing import Broker
from server.metadata.zookeeper_builders import files, put

CASES = ("0.8.2.2/basic-gzip", "0.9.0.1/compact-snappy.before", "0.10.2.2/crash-flip.crashed", "0.11.0.3/txn-none",
         "2.8.2/basic-lz4", "4.3.1/basic-zstd")  # fmt: skip
SCHEMAS = Path(__file__).parents[2] / "schemas/messages"
REQUEST_LOGS = Path(__file__).parents[1] / "tools/migration/request_logs"

LINES: dict[str, list[str]] = {
    "tour": ["LOGS"],
    "inventory": ["LOGS", "LOGS --deep", "SEGMENT", "file://LOGS"],
    "space": ["LOGS", "LOGS --deep --json", "SEGMENT --html OUT/space.html"],
    "doctor": ["LOGS", "DAMAGED", "LOGS --json"],
    "cat": ["LOGS", "DAMAGED --on-damage skip --format jsonl", "PARTITION --format csv -o OUT/records.csv"],
    "dump": ["SEGMENT", "SEGMENT --deep", "SEGMENT --anatomy --at 0", "--files SEGMENT --verify-index-only"],
    "verify": ["LOGS", "LOGS --deep", "LOGS --quick"],
    "salvage": ["LOGS --out OUT/logs", "DAMAGED --out OUT/damaged"],
    "rescue": [
        "LOGS --to OUT/logs",
        "ARCHIVE --to OUT/logs",
        "LOGS --to BROKER --work OUT/work",
        "LOGS --to OUT/x --dry-run",
        "LOGS --to-kraft OUT/node",
    ],
    "convert": ["LOGS --to v2 --out OUT/logs --verify", "PARTITION --to v0 --codec gzip --out OUT/v0"],
    "diff": ["PARTITION COPY", "LOGS LOGS"],
    "metadata show": ["NODE", "NODE --at 100 --json", "ZOOKEEPER"],
    "metadata history": ["NODE", "NODE --topic alpha-one --json"],
    "metadata diff": ["NODE NODE --json"],
    "metadata check": ["NODE", "NODE --json", "NODE --repair --out OUT/repaired"],
    "metadata format": [
        "OUT/new --node-id 1 --standalone CONTROLLER://localhost:9093 --add-scram "
        "SCRAM-SHA-256=alice --password-file PASSWORDS"
    ],
    "metadata export": ["NODE --to-kraft OUT/node", "NODE --to-kraft OUT/alone --alone --logs NODE"],
    "rebuild-index": ["LOGS", "LOGS --out OUT/logs", "PARTITION"],
    "compact": ["LOGS --topic compact-snappy --drop-unkeyed --out OUT/logs", "PARTITION --dry-run --drop-unkeyed"],
    "retain": ["LOGS --bytes 1000 --out OUT/logs", "LOGS --bytes 0 --dry-run"],
    "topics create": ["-b BROKER --config CLIENT made"],
    "topics list": ["-b BROKER --config CLIENT"],
    "topics describe": ["-b BROKER --config CLIENT t"],
    "topics elect": ["-b BROKER --config CLIENT --all"],
    "topics reassign": ["-b BROKER --config CLIENT --plan PLAN --verify"],
    "topics delete": ["-b BROKER --config CLIENT gone"],
    "produce": ["-b BROKER --config CLIENT -t t"],
    "consume": ["-b BROKER --config CLIENT -t t -e"],
    "groups list": ["-b BROKER --config CLIENT"],
    "groups describe": ["-b BROKER --config CLIENT g"],
    "groups reset-offsets": ["-b BROKER --config CLIENT g -t t --to-earliest"],
    "groups delete": ["-b BROKER --config CLIENT left"],
    "transactions list": ["-b BROKER --config CLIENT"],
    "transactions describe": ["-b BROKER --config CLIENT id"],
    "transactions find-hanging": ["-b BROKER --config CLIENT"],
    "configs describe": ["-b BROKER --config CLIENT -t t"],
    "configs set": ["-b BROKER --config CLIENT -t t retention.ms=-1"],
    "configs unset": ["-b BROKER --config CLIENT -t t retention.ms"],
    "mirror": [
        "--from SOUND --to BROKER --topics .* --prefix copy. --yes",
        "--from SOUND --to OUT/mirror --topics .* --yes",
    ],
    "plan": ["--dir LOGS"],
    "migrate check": ["--request-log REQUESTS"],
    "migrate status": ["-b BROKER --config CLIENT --dir LOGS --request-log REQUESTS --rehearse 0"],
    "migrate next": ["-b BROKER --config CLIENT --dir LOGS --rehearse 0"],
    "migrate apply": ["-b BROKER --config CLIENT --topic t --to 1"],
    "migrate canary": ["-b BROKER --config CLIENT"],
    "migrate rollback": ["-b BROKER --config CLIENT --broker 0 --to 0"],
    "cluster status": ["-b BROKER --config CLIENT"],
    "schema list": [""],
    "schema show": ["FetchRequest"],
    "schema check": ["SCHEMAS"],
    "schema generate": ["SCHEMAS --out OUT/generated"],
    "schema diff": ["SCHEMAS/FetchRequest.json SCHEMAS/FetchRequest.json"],
    "schema size": ["SCHEMAS/ApiVersionsRequest.json --version 0 --values VALUES"],
    "schema advise": ["SCHEMAS/ApiVersionsRequest.json --samples VALUES"],
    "completion": ["bash"],
}
"""What is behind each command's name; words in capitals are places."""
ELSEWHERE = {
    "serve": "test_serve_with_an_overlay_leaves_the_directory_as_it_was",
    "pipeline run": "tests/spark/test_pipeline.py",
    "pipeline materialize": "tests/spark/test_pipeline_stores.py",
    "pipeline cluster up": "reads nothing",
    "cluster up": "reads nothing",
    "warm": "reads nothing, and compiles for long",
    "transactions abort": "needs a transaction that hangs: tests/cli/test_transactions.py",
    "cluster down": "reads nothing",
    "metadata import": "needs a ZooKeeper: tests/interop/test_metadata_layout.py",
}
"""Commands without a line here, and where they are tried."""
CHANGING = (
    "compact LOGS --in-place --drop-unkeyed --topic basic-gzip",
    "retain LOGS --bytes 0 --in-place --topic txn-none",
    "rebuild-index LOGS --write",
)


def test_every_command_has_a_line() -> None:
    known = [*LINES, *ELSEWHERE]
    assert sorted(known) == sorted({name for name, _ in commands()})


def test_every_flag_that_changes_an_input_is_tried() -> None:
    flags = {
        each.opts[-1] for _, command in commands() for each in command.params if each.name in IN_PLACE
    }  # fmt: skip
    assert flags == {word for line in CHANGING for word in line.split() if word.startswith("--in") or word == "--write"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as found:
        there = ("-b", found.bootstrap_servers)
        for topic in ("t", "gone"):
            assert run("topics", "create", *there, topic).exit_code == 0
        for group in ("g", "left"):
            assert run("groups", "reset-offsets", *there, group, "-t", "t:0", "--to-earliest").exit_code == 0
        assert run("produce", *there, "-t", "t", "--transactional-id", "id").exit_code == 0
        yield found


def laid_out(folder: Path) -> dict[str, str]:
    """Make all inputs below one folder; return what the words in capitals stand for, except OUT and BROKER."""
    for name in CASES:
        case = golden_data.log_case(name)
        shutil.copytree(case.partition_dir(), folder / f"logs/{case.topic}-{case.partition}")
    damaged = folder / "logs/crash-flip-0"
    shutil.copytree(folder / "logs/basic-gzip-0", folder / "sound/basic-gzip-0")
    shutil.copytree(folder / "logs/txn-none-0", folder / "copy/txn-none-0")
    texts = {
        "CLIENT": ("client.properties", "request.timeout.ms=20000\n"),
        "PLAN": ("plan.json", '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [0]}]}'),
        "VALUES": ("values.jsonl", "{}\n"),
        "PASSWORDS": ("passwords", "alice=secret\n"),
        "REQUESTS": ("kafka-request.log", (REQUEST_LOGS / "3.9.1.log").read_text()),
    }
    for name, text in texts.values():
        (folder / name).write_text(text)
    shutil.copytree(SCHEMAS, folder / "schemas")
    archive = shutil.make_archive(str(folder / "backup"), "gztar", folder / "logs")
    return {
        "LOGS": str(folder / "logs"),
        "SOUND": str(folder / "sound"),
        "PARTITION": str(folder / "logs/txn-none-0"),
        "COPY": str(folder / "copy/txn-none-0"),
        "SEGMENT": str(folder / f"logs/txn-none-0/{0:020}.log"),
        "DAMAGED": str(damaged),
        "ARCHIVE": archive,
        "SCHEMAS": str(folder / "schemas"),
        "ZOOKEEPER": str(put(folder / "zookeeper", files("3.9.1"))),
        "NODE": str(KraftNode("3.9.1/clean-a", "node").unpacked(folder / "node")),
        **{word: str(folder / name) for word, (name, _) in texts.items()},
    }


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder of the inputs of all tests that leave them as they are, and its places."""
    folder = tmp_path_factory.mktemp("given") / "inputs"
    return folder, laid_out(folder)


@pytest.fixture
def inputs_folder(given: tuple[Path, dict[str, str]]) -> Path:
    return given[0]


@pytest.fixture
def places(given: tuple[Path, dict[str, str]], tmp_path: Path) -> dict[str, str]:
    """What the words in capitals stand for. All but OUT is below `inputs_folder`, of which nothing may change."""
    (tmp_path / "out").mkdir()
    return given[1] | {"OUT": str(tmp_path / "out")}


def filled(name: str, line: str, places: dict[str, str]) -> list[str]:
    words = line.split()
    for place, path in places.items():
        words = [
            word.replace(place, path, 1) if word.removeprefix("file://").startswith(place) else word for word in words
        ]
    return [*name.split(), *words]


@pytest.mark.parametrize(
    ("name", "line"),
    [(name, line) for name, lines in LINES.items() for line in lines],
    ids=lambda text: text or "alone",
)
def test_a_command_leaves_what_it_reads_as_it_was(
    name: str, line: str, places: dict[str, str], broker: Broker, inputs_folder: Path
) -> None:
    arguments = filled(name, line, places | {"BROKER": broker.bootstrap_servers})
    before = state(inputs_folder)
    result = run(*arguments)
    assert result.exit_code in (0, 1), (arguments, result.stderr)
    assert state(inputs_folder) == before
    read = {word for word in line.split() if word.isupper() and word not in ("BROKER", "OUT")}
    assert len(inputs(arguments)) >= len(read), "run() would not have looked at them"


@pytest.mark.parametrize("line", CHANGING)
def test_a_command_with_the_flag_changes_its_input(line: str, tmp_path: Path) -> None:
    places = laid_out(tmp_path / "inputs")
    for log in (tmp_path / "inputs/logs").glob("*/*.index"):
        log.write_bytes(b"")
    before = state(tmp_path / "inputs")
    arguments = filled("", line, places)
    assert inputs(arguments) == []
    assert run(*arguments).exit_code in (0, 1)
    assert state(tmp_path / "inputs") != before


def test_run_notices_a_changed_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = laid_out(tmp_path / "inputs")
    from magicbyte.cli import inventory

    def touching(*given: object, **named: object) -> None:
        Path(places["SEGMENT"]).touch()

    monkeypatch.setattr(inventory.inventory, "callback", touching)
    with pytest.raises(AssertionError, match="which it was to read"):
        run("inventory", places["LOGS"])


def test_serve_with_an_overlay_leaves_the_directory_as_it_was(
    places: dict[str, str], inputs_folder: Path, tmp_path: Path
) -> None:
    before = state(inputs_folder)
    line = ["serve", "--dir", places["LOGS"], "--overlay", str(tmp_path / "out/overlay"), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([sys.executable, "-m", "magicbyte", *line], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("listening on ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert state(inputs_folder) == before
    refused = run("serve", "--dir", places["LOGS"], "--listen", "127.0.0.1:0")
    assert (refused.exit_code, "--adopt" in refused.stderr) == (2, True)
    assert state(inputs_folder) == before
