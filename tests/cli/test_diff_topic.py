"""`magicbyte diff` with a topic on one side: brokers that give the sets of a log of a real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.builders import CASE, Topic, folder_of, log_directory, served
from cli.command import run


@pytest.mark.parametrize("threads", [1, 2])
def test_a_topic_and_the_log_directory_that_it_is_from_are_the_same(tmp_path: Path, threads: int) -> None:
    with served(Topic(folder_of(CASE))) as bootstrap:
        result = run("diff", f"kafka://{bootstrap}/topic", log_directory(tmp_path), "--threads", threads)
        other_way = run("diff", tmp_path, f"kafka://{bootstrap}/topic")
    assert (result.exit_code, result.stdout) == (
        0,
        "same: 123 records in 2 partitions compared: offset, key, value, timestamps, headers\n",
    )
    assert other_way.stdout == result.stdout


def test_two_topics_that_differ_in_one_record_do_so_with_the_digests_of_folders(tmp_path: Path) -> None:
    topic, cut = Topic(folder_of(CASE)), Topic(folder_of(CASE))
    cut.sets = cut.sets[:-1]
    cut.end = cut.sets[-1][0]
    with served(topic) as one, served(cut) as other:
        result = run("diff", f"kafka://{one}/topic", f"kafka://{other}/topic", "--format", "json")
        folders = run("diff", log_directory(tmp_path), tmp_path, "--format", "json")
    found, same = json.loads(result.stdout), json.loads(folders.stdout)
    assert result.exit_code == 1
    assert [each["partition"] for each in found["partitions"] if not each["same"]] == ["topic-0"]
    (difference,) = found["partitions"][0]["differences"]
    assert (difference["what"], difference["firstOffset"], difference["lastOffset"]) == (["only in a"], cut.end, 122)
    assert found["partitions"][0]["a"]["digest"] == same["partitions"][0]["a"]["digest"]
    assert found["partitions"][0]["a"]["path"] == f"kafka://{one}/topic-0"


def test_what_lies_below_the_start_of_a_topic_does_not_count(tmp_path: Path) -> None:
    with served(Topic(folder_of(CASE), start=100)) as bootstrap:
        result = run("diff", f"kafka://{bootstrap}/topic", log_directory(tmp_path))
    assert result.exit_code == 1
    assert "topic-0: 100 records differ" in result.stdout
    assert "23 records in 2 partitions compared" in result.stdout


def test_a_topic_that_is_not_there_is_an_error_and_none_is_made() -> None:
    with served(Topic(folder_of(CASE))) as bootstrap:
        result = run("diff", f"kafka://{bootstrap}/other", folder_of(CASE))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "topic 'other'" in result.stderr


@pytest.mark.parametrize("address", ["kafka://127.0.0.1:9092", "kafka:///topic", "kafka://nowhere/topic"])
def test_an_address_without_broker_or_topic_is_wrong_use(address: str) -> None:
    result = run("diff", address, folder_of(CASE))
    assert result.exit_code == 2
    assert "kafka://" in result.stderr or "HOST:PORT" in result.stderr
