"""The schema files of real releases: all pass the compiler, and `diff` finds what changed between two."""

import zipfile
from pathlib import Path

import pytest

from interop import kafka_oracle
from magicbyte.schema import MessageSchema, SchemaError, check, compare
from magicbyte.schema.python import modules

pytestmark = pytest.mark.interop

LAST_OF_EACH = ("3.9.1", "4.3.1")
TWICE_WITH_ONE_VALUE = {"DescribeTopicPartitionsRequest", "DescribeTopicPartitionsResponse"}  # in 3.9


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


@pytest.mark.parametrize("version", LAST_OF_EACH)
def test_every_schema_file_of_a_release_passes_and_becomes_code(version: str) -> None:
    found, errors = schemas(version)
    assert len(found) > 200
    assert all(error.warning for error in errors)
    assert {error.field.partition(".")[0] for error in errors} <= TWICE_WITH_ONE_VALUE
    for text in modules({name: each for name, each in found.items() if not each.valid_versions.is_empty}).values():
        compile(text, "module", "exec")


def test_between_two_releases_only_old_versions_went_and_share_groups_changed() -> None:
    """Share groups were early access in 3.9, and what they changed then got no new version."""
    old, new = schemas(LAST_OF_EACH[0])[0], schemas(LAST_OF_EACH[1])[0]
    changes = [change for name in old.keys() & new.keys() for change in compare(old[name], new[name])]
    assert {change.field for change in changes if not change.compatible and change.kind != "versions-removed"} == {
        "ReadShareGroupStateSummaryResponse.Results.Partitions.LeaderEpoch",
        "ShareGroupMetadataValue.MetadataHash",
    }
    assert sum(change.kind == "versions-added" for change in changes) > 20
