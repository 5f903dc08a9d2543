"""`magicbyte metadata history` and `metadata diff`: what changed in the clusters of real KRaft nodes."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.command import run
from kraft_data import KraftNode, nodes
from magicbyte.engine.cluster.image_json import broker_json, partition_json
from magicbyte.tools.offline.quorum import Note, differences, quorum_folder, read_history, read_quorum

CLEAN = KraftNode("4.3.1/clean-a", "node")


def shown(path: Path, *words: object) -> list[dict[str, Any]]:
    done = run("metadata", "history", path, "--json", *words)
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("node", nodes(), ids=str)
def test_the_changes_add_up_to_the_cluster(node: KraftNode, tmp_path: Path) -> None:
    """Image by image: the images themselves are compared with those of Kafka's classes elsewhere."""
    folder = quorum_folder(str(node.unpacked(tmp_path)))
    notes = list[Note]()
    history = list(read_history(folder, notes))
    reached = dict[str, Any]()
    first = min((past.offset for past in history), default=0)
    if notes:  # the history begins with a snapshot
        first = int(
            next(note.text for note in notes if "begins at offset" in note.text).split("offset ")[1].split(":")[0]
        )
        reached = parts(read_quorum(folder, first - 1).image)
    for past in history:
        event = past.event
        if event.kind in ("partition", "broker"):
            if event.after is None:
                assert reached.pop(event.subject, None) is not None
            elif event.before is None:
                assert event.subject not in reached
                reached[event.subject] = event.after
            else:
                assert {name: reached[event.subject].get(name) for name in event.before} == event.before
                reached[event.subject] |= event.after
        elif event.before is not None and event.after is not None:
            assert event.before != event.after
    assert reached == parts(read_quorum(folder).image)
    assert [past.offset for past in history] == sorted(past.offset for past in history)


def parts(image: Any) -> dict[str, Any]:
    found = {f"broker {each.id}": broker_json(each) for each in image.brokers.values()}
    for topic in image.topics.values():
        found |= {
            f"{topic.name}-{number}": partition_json(number, each) for number, each in enumerate(topic.partitions)
        }
    return found


@pytest.mark.parametrize("node", nodes(), ids=str)
def test_the_differences_of_two_offsets_add_up_too(node: KraftNode, tmp_path: Path) -> None:
    folder = quorum_folder(str(node.unpacked(tmp_path)))
    new = read_quorum(folder).image
    begin = max(new.position - 40, int(folder.segments[0].base_offset))
    old = read_quorum(folder, begin).image
    assert not list(differences(old, old))
    changed = {each.subject for each in differences(old, new) if each.kind in ("partition", "broker")}
    assert changed == {
        name for name in parts(old).keys() | parts(new).keys() if parts(old).get(name) != parts(new).get(name)
    }


def test_a_topic_and_a_kind_and_a_time_are_chosen(tmp_path: Path) -> None:
    path = CLEAN.unpacked(tmp_path)
    every = shown(path)
    of_topic = shown(path, "--topic", "alpha-one")
    assert {each["kind"] for each in of_topic} >= {"topic", "partition", "settings"}
    assert all("alpha-one" in each["subject"] for each in of_topic)
    assert {each["subject"] for each in shown(path, "--broker", 1, "--kind", "broker")} == {"broker 1"}
    middle = every[len(every) // 2]
    before, after = shown(path, "--to", middle["offset"]), shown(path, "--from", middle["offset"])
    assert before + after == every
    before, after = shown(path, "--until", middle["timestamp"]), shown(path, "--since", middle["timestamp"])
    assert before + after == every


def test_a_history_is_read_line_by_line(tmp_path: Path) -> None:
    printed = run("metadata", "history", CLEAN.unpacked(tmp_path)).stdout.splitlines()
    assert any(line.endswith("broker 1: isFenced true -> false") for line in printed)
    assert any("topic alpha-gone: removed" in line for line in printed)
    assert any("settings of topic alpha-one: " in line and " -> " in line for line in printed)


def test_no_secret_is_in_a_history(tmp_path: Path) -> None:
    path = CLEAN.unpacked(tmp_path)
    printed = run("metadata", "history", path, "--json").stdout
    users = read_quorum(quorum_folder(str(path))).image.scram_users
    secrets = {part for user in users.values() for each in user.values() for part in each.dump().split(",")[:3]}
    assert len(secrets) > 2
    assert "boot-a" in printed
    assert not any(each in printed for each in secrets)


def test_two_offsets_of_one_node_are_compared(tmp_path: Path) -> None:
    path = CLEAN.unpacked(tmp_path)
    same = run("metadata", "diff", path, path)
    assert (same.exit_code, same.stdout) == (0, "0 differences\n")
    done = run("metadata", "diff", f"{path}@100", path, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (found["old"]["endOffset"], found["new"]["endOffset"]) == (101, 174)
    assert found["differences"]
    text = run("metadata", "diff", f"{path}@100", path)
    assert text.stdout.splitlines()[-1] == f"{len(found['differences'])} differences"
    backwards = json.loads(run("metadata", "diff", path, f"{path}@100", "--json").stdout)["differences"]
    assert {each["subject"] for each in backwards} == {each["subject"] for each in found["differences"]}


def test_a_path_with_an_at_sign_is_a_path(tmp_path: Path) -> None:
    path = CLEAN.unpacked(tmp_path / "node@1")
    assert run("metadata", "diff", path, f"{path}@173").exit_code == 0


def test_the_start_of_a_trimmed_log_is_in_a_note(tmp_path: Path) -> None:
    done = run("metadata", "history", KraftNode("4.3.1/trimmed-a", "node").unpacked(tmp_path))
    assert done.exit_code == 0
    assert "note: the log begins at offset" in done.stderr
