"""Kafka's generated message classes, asked many questions at once: see java/Messages.java."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from engine.protocol.schemas import all_schemas
from interop import jvm

OLD, NEW = "3.9.1", "4.4.0"  # the last release with every old version; the newest
AT_ONCE = 4000  # questions to one JVM
# What the two releases changed without a new version; our schemas follow the other one.
DIFFERENT = {
    OLD: {
        ("ConsumerGroupCurrentMemberAssignmentValue", 0), ("ConsumerGroupMetadataValue", 0),
        ("ConsumerGroupTargetAssignmentMetadataValue", 0), ("OffsetCommitValue", 4),
        ("ReadShareGroupStateSummaryResponse", 0), ("ShareGroupMetadataValue", 0),
        ("ShareGroupPartitionMetadataValue", 0), ("TransactionLogValue", 1),
    },
    NEW: set(),
}  # fmt: skip
# Fields for which a release has other names than our schemas.
RENAMED = {
    ("VoteRequest", NEW): {
        "candidateEpoch": "replicaEpoch", "candidateId": "replicaId", "candidateDirectoryId": "replicaDirectoryId",
    },
    ("TxnOffsetCommitRequest", OLD): {"generationIdOrMemberEpoch": "generationId"},
}  # fmt: skip

Json = dict[str, Any]


def ask(questions: Iterable[Json], kafka: str) -> list[Json]:
    """Return the answers of one Kafka version's classes, in order."""
    asked = list(questions)
    lines = [json.dumps(question) for question in asked]
    names = [RENAMED.get((question["message"], kafka), {}) for question in asked]
    lines = [renamed(line, ours) for line, ours in zip(lines, names, strict=True)]
    answers: list[Json] = []
    for first in range(0, len(lines), AT_ONCE):
        given = "".join(line + "\n" for line in lines[first : first + AT_ONCE]).encode()
        told = jvm.run("Messages", stdin=given, version=kafka).decode().splitlines()
        for line, ours in zip(told, names[first : first + AT_ONCE], strict=True):
            answers.append(json.loads(renamed(line, {theirs: name for name, theirs in ours.items()})))
    return answers


def renamed(text: str, names: dict[str, str]) -> str:
    """Return JSON text with other names of fields."""
    for name, other in names.items():
        text = text.replace(f'"{name}"', f'"{other}"')
    return text


@cache
def supported(kafka: str) -> dict[str, range]:
    """Return the versions that a Kafka release has of each message; messages that it does not know are left out."""
    found = ask(({"op": "versions", "message": name} for name in all_schemas()), kafka)
    return {
        name: range(answer["lowest"], answer["highest"] + 1)
        for name, answer in zip(all_schemas(), found, strict=True)
        if "lowest" in answer
    }


def java_version(name: str, version: int, kafka: str) -> int | None:
    """Return the number of our version in a Kafka release's class, None if it has none.

    4.x counts the versions of the keys of coordinators' records from 0; before, they were the number before a key.
    """
    if kafka == NEW and all_schemas()[name].type == "data" and name.endswith("Key"):
        java = 0
    else:
        java = version
    return java if java in supported(kafka).get(name, ()) and (name, version) not in DIFFERENT[kafka] else None
