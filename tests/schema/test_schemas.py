"""The project's own definition files: all there, every version from 0 on, every field explained."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from magicbyte.schema import MessageSchema, load_directory
from magicbyte.schema.tree import FieldSchema

SCHEMAS = Path(__file__).parents[2] / "schemas"
FOLDERS = ("messages", "records", "extensions")
SMALL_WORDS = {"a", "an", "and", "as", "for", "from", "in", "is", "it", "its", "of", "on", "or", "that", "the", "to"}
LONGEST_ABOUT = 240  # two sentences; what is longer belongs into docs/


@cache
def schemas(folder: str) -> dict[str, MessageSchema]:
    return load_directory(SCHEMAS / folder)


def fields_of(message: MessageSchema) -> Iterator[tuple[str, FieldSchema]]:
    """Yield every field of a message with the name of the struct that it is in."""
    for field in message.fields:
        yield message.name, field
    for struct in message.structs.values():
        for field in struct.fields:
            yield struct.name, field


def words(text: str) -> set[str]:
    """Return the words of a text or of a name in camel case, without small ones and without the s of plurals."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return {word.rstrip("s") for word in re.findall(r"[a-z0-9]+", spaced.lower())} - SMALL_WORDS


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_file_is_named_after_its_message(folder: str) -> None:
    names = {path.stem for path in (SCHEMAS / folder).glob("*.json")}
    assert names == set(schemas(folder))
    assert len(names) > 2


def test_the_folder_holds_nothing_but_schemas() -> None:
    assert {path.parent.name for path in SCHEMAS.rglob("*.*")} == set(FOLDERS)
    assert {path.suffix for path in SCHEMAS.rglob("*.*")} == {".json"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_message_and_field_is_explained_in_more_words_than_its_name(folder: str) -> None:
    for message in schemas(folder).values():
        texts = [(message.name, message.about)]
        texts += [(f"{owner}.{field.name}", field.about) for owner, field in fields_of(message)]
        for name, about in texts:
            assert about.endswith("."), (name, about)
            assert words(about) - words(name.rpartition(".")[2]), (name, about)
            assert len(about) <= LONGEST_ABOUT, (name, about)
            assert about == " ".join(about.split()), (name, about)


def test_a_common_struct_is_explained() -> None:
    for folder in FOLDERS:
        for message in schemas(folder).values():
            inline = {field.type.name: field.about for _, field in fields_of(message) if field.type.struct}
            for struct in message.structs.values():
                assert struct.about or inline[struct.name], (message.name, struct.name)


def test_every_request_has_a_response_of_the_same_key_and_versions() -> None:
    requests = {name: message for name, message in schemas("messages").items() if message.type == "request"}
    responses = {name: message for name, message in schemas("messages").items() if message.type == "response"}
    assert {name.replace("Request", "Response") for name in requests} == set(responses)
    for name, request in requests.items():
        response = responses[name.replace("Request", "Response")]
        assert (request.api_key, request.valid_versions) == (response.api_key, response.valid_versions), name
        assert request.flexible_versions == response.flexible_versions, name
        assert request.listeners, name


def test_every_key_up_to_the_newest_has_one_request() -> None:
    keys = sorted(message.api_key for message in schemas("messages").values() if message.type == "request")
    assert keys == list(range(95))


def test_every_message_begins_with_version_0() -> None:
    for message in schemas("messages").values():
        assert message.valid_versions.lowest == 0, message.name


def test_the_old_requests_between_brokers_are_there_in_every_version() -> None:
    newest = {"LeaderAndIsr": 7, "StopReplica": 4, "UpdateMetadata": 8, "ControlledShutdown": 3}
    for name, version in newest.items():
        assert schemas("messages")[name + "Request"].valid_versions.highest == version
        assert schemas("messages")[name + "Response"].valid_versions.highest == version


def test_keys_of_stored_records_have_the_numbers_that_kafka_writes_before_them() -> None:
    numbers = {name: message.valid_versions for name, message in schemas("records").items() if name.endswith("Key")}
    of_group = {name: versions for name, versions in numbers.items() if name[:5] not in ("Trans", "Share")}
    of_group |= {name: versions for name, versions in numbers.items() if name.startswith("ShareGroup")}
    found = sorted(number for versions in of_group.values() for number in versions)
    assert found == sorted(set(found))  # the number tells what the record is
    assert list(numbers["OffsetCommitKey"]) == [0, 1]
    assert list(numbers["GroupMetadataKey"]) == [2]
    assert list(numbers["TransactionLogKey"]) == [0]
    assert {name.removesuffix("Key") for name in numbers} == {
        name.removesuffix("Value") for name in schemas("records") if name.endswith("Value")
    }


def test_only_extensions_have_encodings() -> None:
    encoded = {
        message.name
        for folder in FOLDERS
        for message in schemas(folder).values()
        if any(field.encodings for _, field in fields_of(message))
    }
    assert encoded == set(schemas("extensions"))
