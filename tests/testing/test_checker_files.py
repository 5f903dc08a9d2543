"""Histories that are noted, written to files, read again and judged by the command."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.produce import send
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker
from magicbyte.testing.checker import (
    AnomalyKind,
    ClientOperation,
    HistoryFile,
    HistoryRules,
    Kind,
    OperationOutcome,
    Polled,
    Recorder,
    Sent,
    check,
    write_history,
)
from testing.sound_histories import World


def test_a_file_gives_back_operations_and_rules(tmp_path: Path) -> None:
    world = World(1)
    history = world.run(300)
    write_history(tmp_path / "history.jsonl", history, world.rules)
    file = HistoryFile(tmp_path / "history.jsonl")
    assert file.rules == world.rules
    assert list(file) == list(file) == history
    assert check(file, file.rules).to_json() == check(history, world.rules).to_json()
    write_history(tmp_path / "plain.jsonl", history)
    plain = HistoryFile(tmp_path / "plain.jsonl")
    assert (plain.rules, list(plain)) == (HistoryRules(), history)


def test_a_line_is_an_operation_of_plain_json() -> None:
    steps = (Sent("orders-0", 7, 12, "k", may_repeat=True), Polled({"orders-0": ((12, 7),)}))
    operation = ClientOperation("a", Kind.TRANSACTION, OperationOutcome.OK, steps, (), ("orders-1",), 5, 9)
    assert json.loads(json.dumps(operation.to_json())) == {
        "process": "a",
        "kind": "transaction",
        "outcome": "ok",
        "steps": [
            {"send": "orders-0", "value": 7, "offset": 12, "key": "k", "mayRepeat": True},
            {"poll": {"orders-0": [[12, 7]]}},
        ],
        "repositioned": ["orders-1"],
        "startMs": 5,
        "endMs": 9,
    }


GOOD = '{"process": "a", "kind": "poll", "outcome": "ok"}\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "expected a JSON object"),
        ("7", "expected a JSON object"),
        ('{"process": "a", "kind": "poll"}', "an operation without 'outcome'"),
        ('{"process": 1, "kind": "poll", "outcome": "ok"}', "expected a text, found 1"),
        ('{"process": "a", "kind": "look", "outcome": "ok"}', "'look' is not a valid Kind"),
        ('{"process": "a", "kind": "poll", "outcome": "ok", "step": []}', "an operation has no step: expected some of"),
        ('{"process": "a", "kind": "poll", "outcome": "ok", "steps": [{}]}', "without 'send'"),
        ('{"process": "a", "kind": "poll", "outcome": "ok", "steps": [[]]}', "not an operation"),
        (
            '{"process": "a", "kind": "send", "outcome": "ok", "steps": [{"send": "p", "value": null}]}',
            "a number or a te",
        ),
        (
            '{"process": "a", "kind": "send", "outcome": "ok", "steps": [{"send": "p", "value": 1, "offset": -1}]}',
            "expected an offset from 0 on, found -1",
        ),
        ('{"process": "a", "kind": "poll", "outcome": "ok", "steps": [{"poll": {"p": [1]}}]}', "not an operation"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(GOOD + line + "\n")
    with pytest.raises(ValueError, match=r"history.jsonl:2: .*" + message):
        list(HistoryFile(path))


@pytest.mark.parametrize("rules", ['{"readToEnds": true}', '{"logStarts": {"p": "x"}}', "7"])
def test_wrong_rules_are_refused(tmp_path: Path, rules: str) -> None:
    (tmp_path / "history.jsonl").write_text(f'{{"rules": {rules}}}\n')
    with pytest.raises(ValueError, match=r"history.jsonl:1: "):
        HistoryFile(tmp_path / "history.jsonl")


def judged(path: Path, *options: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "magicbyte.testing.checker", str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_command_tells_by_its_exit_status(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    sent = ClientOperation("a", Kind.SEND, OperationOutcome.OK, (Sent("p", 1, 0),))
    write_history(path, [sent], HistoryRules(read_to_end=False))
    assert judged(path)[:2] == (
        0,
        "1 operations, 1 partitions: 1 values acknowledged, 0 read, 0 of unknown outcome\nsound\n",
    )
    write_history(path, [sent])
    status, out, _ = judged(path, "--format", "json")
    assert (status, json.loads(out)["counts"]) == (1, {"unseen": 1})
    write_history(path, [sent, sent])
    status, out, error = judged(path)
    assert (status, out) == (2, "")
    assert "each value can be sent to a partition once" in error


# ---- a recorder


def test_a_recorder_notes_given_outcomes_and_otherwise_unknown_ones() -> None:
    ticks = itertools.count(100)
    recorder = Recorder(lambda: next(ticks))
    with recorder.send("a", "p", 1, key="k") as first:
        first.ok(0)
    with pytest.raises(OSError, match="reset"), recorder.send("a", "p", 2):
        raise OSError("connection reset")
    recorder.send("a", "p", 3).fail()
    with recorder.transaction("b") as both:
        both.polled({"p": [(0, 1)]})
        both.send("p", 4)
        both.send("q", 5)
        both.repositioned(["q"])
        both.ok(None, 7)
    recorder.assign("c", ["p"]).ok()
    recorder.subscribe("c", ["p"]).fail()
    recorder.crash("c")
    pending = recorder.poll("c")
    both_steps = (Polled({"p": ((0, 1),)}), Sent("p", 4), Sent("q", 5, 7))
    assert recorder.history == [
        ClientOperation("a", Kind.SEND, OperationOutcome.OK, (Sent("p", 1, 0, "k"),), (), (), 100, 101),
        ClientOperation("a", Kind.SEND, OperationOutcome.INFO, (Sent("p", 2),), (), (), 102, 103),
        ClientOperation("a", Kind.SEND, OperationOutcome.FAIL, (Sent("p", 3),), (), (), 104, 105),
        ClientOperation("b", Kind.TRANSACTION, OperationOutcome.OK, both_steps, (), ("q",), 106, 107),
        ClientOperation("c", Kind.ASSIGN, OperationOutcome.OK, (), ("p",), (), 108, 109),
        ClientOperation("c", Kind.SUBSCRIBE, OperationOutcome.FAIL, (), ("p",), (), 110, 111),
        ClientOperation("c", Kind.CRASH, OperationOutcome.INFO, (), (), (), 112),
        ClientOperation("c", Kind.POLL, OperationOutcome.INFO, (), (), (), 113),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="1 offsets: the operation sent 0 records"):
        pending.ok(1)


def test_a_history_of_our_own_client_and_broker_is_sound() -> None:
    async def history(address: str) -> list[ClientOperation]:
        ticks = itertools.count()
        recorder = Recorder(lambda: next(ticks))
        async with Client(address) as client:
            await create_topic(client, NewTopic("orders"))
            for value in range(20):
                with recorder.send("producer", "orders-0", value) as sending:
                    (answer,) = await send(client, "orders", 0, [Record(0, -1, 0, None, b"%d" % value)])
                    sending.ok(answer.base_offset)
            with recorder.poll("reader") as polling:
                async for columns in read_records(client, "orders", 0, 0, 20):
                    polling.polled({"orders-0": [(each.offset, int(each.value or b"")) for each in columns]})
                polling.ok()
        return recorder.history

    with Broker() as broker:
        noted = asyncio.run(history(broker.bootstrap_servers))
    report = check(noted)
    assert (report.is_sound, report.acknowledged, report.read) == (True, 20, 20)
    assert check([each for each in noted if each.kind is Kind.SEND]).counts == {AnomalyKind.UNSEEN: 20}
