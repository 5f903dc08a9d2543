"""Kafka's generated message classes, asked many questions at once: see java/Messages.java."""

import json
from collections.abc import Iterable
from typing import Any

from interop import jvm

OLD, NEW = "3.9.1", "4.3.1"  # the last release with every old version; the newest
AT_ONCE = 4000  # questions to one JVM

Json = dict[str, Any]


def ask(questions: Iterable[Json], kafka: str) -> list[Json]:
    """Return the answers of one Kafka version's classes, in order."""
    lines = [json.dumps(question) for question in questions]
    answers: list[Json] = []
    for first in range(0, len(lines), AT_ONCE):
        given = "".join(line + "\n" for line in lines[first : first + AT_ONCE]).encode()
        answers += [json.loads(line) for line in jvm.run("Messages", stdin=given, version=kafka).splitlines()]
    assert len(answers) == len(lines)
    return answers


def supported(names: Iterable[str], kafka: str) -> dict[str, range]:
    """Return the versions that a Kafka release has of each message; messages that it does not know are left out."""
    names = list(names)
    found = ask(({"op": "versions", "message": name} for name in names), kafka)
    return {
        name: range(answer["lowest"], answer["highest"] + 1)
        for name, answer in zip(names, found, strict=True)
        if "lowest" in answer
    }
