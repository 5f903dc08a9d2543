"""The schema files of real releases: all pass the compiler, their code writes what the release's own classes write, and
`diff` finds what changed between two."""

import base64
import json
import zipfile
from functools import cache
from pathlib import Path

import pytest

from cli.command import run
from engine.protocol.generated import Codec, loaded
from engine.protocol.interpreter import UNKNOWN
from engine.protocol.values import Values, examples
from interop import jvm, kafka_oracle
from magicbyte.schema import MessageSchema, SchemaError, check, compare, measure
from magicbyte.schema.python import groups

pytestmark = pytest.mark.interop

LAST_OF_EACH = ("3.9.1", "4.3.1")
TWICE_WITH_ONE_VALUE = {"DescribeTopicPartitionsRequest", "DescribeTopicPartitionsResponse"}  # in 3.9
RELEASES = (
    "2.3.1", "2.4.1", "2.5.1", "2.6.3", "2.7.2", "2.8.2", "3.0.2", "3.1.2", "3.2.3", "3.3.2", "3.4.1", "3.5.2", "3.6.2",
    "3.7.2", "3.8.1", "3.9.1", "4.0.0", "4.1.0", "4.3.1",
)  # fmt: skip
IN_CI = ("2.3.1", "2.8.2")
WITHOUT_FLEXIBLE_VERSIONS = {"2.3.1": 92, "2.4.1": 2, "2.5.1": 4, "2.6.3": 4, "2.7.2": 10, "2.8.2": 28}
AT_ONCE = 4000  # questions to one JVM


@cache
def schema_files(version: str) -> dict[str, str]:
    """Return what the schema files in all jars of a version hold, by the path in the jar."""
    found = {}
    for jar in sorted(Path(kafka_oracle.fetch(version)).glob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith("common/") and name.endswith(".json"):
                    found[name] = archive.read(name).decode()
    return found


def schemas(version: str) -> tuple[dict[str, MessageSchema], list[SchemaError]]:
    found, errors = {}, []
    for path, text in schema_files(version).items():
        message, wrong = check(text, path)
        errors += wrong
        if message is not None:
            found[message.name] = message
    return found, errors


def ask(version: str, questions: list[tuple[str, int, Values]]) -> list[Values]:
    """Return the answers of a release's classes, in order: see java/ReleaseMessages.java."""
    answers: list[Values] = []
    for first in range(0, len(questions), AT_ONCE):
        lines = [
            json.dumps({"message": name, "version": number, "values": values}) + "\n"
            for name, number, values in questions[first : first + AT_ONCE]
        ]
        printed = jvm.run("ReleaseMessages", stdin="".join(lines).encode(), version=version)
        answers += map(json.loads, printed.decode().splitlines())
    return answers


def generated(version: str, folder: Path) -> dict[str, Codec]:
    """Return the code that the commands make of a release's files, by the names of messages."""
    files = folder / "files"
    files.mkdir()
    for path, text in schema_files(version).items():
        (files / Path(path).name).write_text(text, encoding="utf-8")
    checked = run("schema", "check", files)
    assert checked.exit_code == 0, checked.stdout
    made = run("schema", "generate", files, "--out", folder / "code")
    assert made.exit_code == 0, made.stderr
    found, _ = schemas(version)
    codecs: dict[str, Codec] = {}
    for name, messages in groups(found).items():
        codecs |= loaded(messages, (folder / "code" / f"{name}.py").read_text(encoding="utf-8"))
    return codecs


@pytest.mark.usefixtures("needs_java")
@pytest.mark.parametrize(
    "version", [pytest.param(each, marks=[] if each in IN_CI else pytest.mark.campaign) for each in RELEASES]
)
def test_the_code_for_a_release_writes_the_bytes_of_its_own_classes(version: str, tmp_path: Path) -> None:
    found, errors = schemas(version)
    assert len(found) == len(schema_files(version)) > 90
    assert all(error.warning for error in errors)
    missing = [error for error in errors if error.rule == "missing-key"]
    assert len(missing) == WITHOUT_FLEXIBLE_VERSIONS.get(version, 0)
    codecs = generated(version, tmp_path)
    questions = [
        (name, number, values)
        for name, schema in found.items()
        for number in schema.valid_versions
        for values in examples(schema, number)
    ]
    unknown = set()
    for (name, number, values), answer in zip(questions, ask(version, questions), strict=True):
        if not answer:
            unknown.add(name)
            continue
        if version == "2.7.2" and "Cannot write records" in answer.get("error", ""):
            continue  # this release alone writes them by something else
        assert "error" not in answer, (name, number, values, answer)
        data = base64.b64decode(answer["written"])
        assert (base64.b64decode(answer["again"]), answer["rest"]) == (data, 0), (name, number, values)
        assert codecs[name].write(number, values) == data, (name, number, values)
        assert codecs[name].read(number, data) == values, (name, number, values)
        if UNKNOWN not in str(values):  # `size` takes Kafka's JSON alone
            assert measure(found[name], number, values).bytes == len(data), (name, number, values)
    assert not unknown
    assert not [change for schema in found.values() for change in compare(schema, schema)]


@pytest.mark.parametrize("version", LAST_OF_EACH)
def test_every_schema_file_of_a_release_passes(version: str) -> None:
    found, errors = schemas(version)
    assert len(found) > 200
    assert all(error.warning for error in errors)
    assert {error.field.partition(".")[0] for error in errors} <= TWICE_WITH_ONE_VALUE


def test_between_two_releases_only_old_versions_went_and_share_groups_changed() -> None:
    """Share groups were early access in 3.9, and what they changed then got no new version."""
    old, new = schemas(LAST_OF_EACH[0])[0], schemas(LAST_OF_EACH[1])[0]
    changes = [change for name in old.keys() & new.keys() for change in compare(old[name], new[name])]
    assert {change.field for change in changes if not change.compatible and change.kind != "versions-removed"} == {
        "ReadShareGroupStateSummaryResponse.Results.Partitions.LeaderEpoch",
        "ShareGroupMetadataValue.MetadataHash",
    }
    assert sum(change.kind == "versions-added" for change in changes) > 20
