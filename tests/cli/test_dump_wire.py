"""What real brokers stored of every captured produce request, as Kafka's dump tool and as `dump` print it."""

import re
from pathlib import Path

import pytest

import golden_data
from cli.command import run

# Brokers stored these although their lengths, checksums or magic bytes lie. Their tool prints the bytes as they are;
# for us it is damage: docs/decisions/0003.
DAMAGE_TO_US = {
    "inner-crc-wrong",
    "inner-other-magic",
    "key-length-minus-2",
    "lz4-content-checksum-wrong",
    "lz4-content-size-wrong",
    "magic-minus1",
    "mixed-magics",
    "nested-snappy-in-gzip",
    "value-length-too-big",
    "value-length-too-small",
}


def family(case: golden_data.WireCase) -> str:
    return re.sub(r"-m\d-to-v\d$", "", case.info["case"])


@pytest.mark.parametrize("broker", golden_data.wire_brokers())
def test_stored_segments_are_dumped_as_kafkas_tool_does(broker: str, tmp_path: Path) -> None:
    cases = {}
    for number, case in enumerate(golden_data.wire_cases(broker)):
        if case.info["dump"]:
            path = tmp_path / str(number) / "00000000000000000000.log"
            path.parent.mkdir()
            path.write_bytes(case.segment)
            cases[str(path)] = case
    result = run("dump", "--deep-iteration", "--on-damage", "skip", *cases)

    printed: dict[str, list[str]] = {}
    for line in result.stdout.splitlines():
        if line.startswith("Dumping "):
            lines = printed[line.removeprefix("Dumping ")] = []
        elif not line.startswith("Log starting offset"):
            lines.append(line)
    heading = ("Dumping", "Log starting offset", "Starting offset")
    expected = {path: [row for row in case.info["dump"] if not row.startswith(heading)] for path, case in cases.items()}
    different = {path for path in cases if printed[path] != expected[path]}
    assert {family(cases[path]) for path in different} <= DAMAGE_TO_US
    assert all(path in result.stderr for path in different)
    assert len(different) < len(cases) / 8
