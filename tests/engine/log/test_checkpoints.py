"""The text files of a log directory: what is accepted, what is refused and where."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.checkpoints import (
    CleanShutdown,
    LeaderEpoch,
    parse_clean_shutdown,
    parse_leader_epochs,
    parse_message_dialect,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from magicbyte.engine.log.files.properties import parse_properties
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.layout import Dialect

PARSERS = (
    parse_offset_checkpoint,
    parse_leader_epochs,
    parse_partition_metadata,
    parse_message_dialect,
    parse_meta_properties,
    parse_clean_shutdown,
)


def test_an_offset_checkpoint_maps_partitions_to_offsets() -> None:
    assert parse_offset_checkpoint(b"0\n2\na.b-c 0 17\na.b-c 12 0\n") == {
        TopicPartition("a.b-c", 0): 17,
        TopicPartition("a.b-c", 12): 0,
    }


def test_a_checkpoint_of_no_bytes_has_no_entries() -> None:
    assert parse_offset_checkpoint(b"") == {}
    assert parse_leader_epochs(b"") == []


def test_leader_epochs_ascend() -> None:
    assert parse_leader_epochs(b"0\n2\n0 0\n3 17\n") == [LeaderEpoch(0, 0), LeaderEpoch(3, 17)]


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (b"1\n0\n", 0),
        (b"x\n0\n", 0),
        (b"0\n", 2),
        (b"0\n2\na 0 17\n", 11),
        (b"0\n1\na 0 17\nb 0 17\n", 18),
        (b"0\n1\na 17\n", 4),
        (b"0\n1\na zero 17\n", 4),
        (b"0\n1\na 0 1_7\n", 4),
        (b"0\n1\na 0 9223372036854775808\n", 4),
        (b"0\n2\na 0 1\na 0 2\n", 10),
        (b"0\n1\n\xff 0 2\n", 4),
    ],
    ids=[
        "version",
        "no number",
        "no count",
        "too few",
        "too many",
        "two fields",
        "partition",
        "digits",
        "over 64 bits",
        "twice",
        "utf-8",
    ],
)
def test_a_damaged_offset_checkpoint_names_the_position_of_its_line(content: bytes, position: int) -> None:
    with pytest.raises(CorruptRecordError) as raised:
        parse_offset_checkpoint(content)
    assert raised.value.position == position


@pytest.mark.parametrize("content", [b"0\n2\n1 0\n1 5\n", b"0\n2\n0 5\n1 4\n", b"0\n1\n1\n"])
def test_leader_epochs_out_of_order_are_damage(content: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        parse_leader_epochs(content)


def test_the_topic_id_is_the_one_kafka_prints() -> None:
    metadata = parse_partition_metadata(b"version: 0\ntopic_id: 5ptrNISvTJe74vGcXP9B0w\n")
    assert metadata.topic_id_text == "5ptrNISvTJe74vGcXP9B0w"
    assert metadata.topic_id.hex == "e69b6b3484af4c97bbe2f19c5cff41d3"


@pytest.mark.parametrize(
    "content",
    [b"", b"version: 1\ntopic_id: 5ptrNISvTJe74vGcXP9B0w", b"version: 0", b"version: 0\ntopic_id: abc", b"a: 0\nb: 1"],
)
def test_partition_metadata_of_another_shape_is_damage(content: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        parse_partition_metadata(content)


def test_the_dialect_is_read_and_an_unknown_one_refused() -> None:
    assert parse_message_dialect(b"version: 0\ndialect: enriched\n") is Dialect.ENRICHED
    assert parse_message_dialect(b"version: 0\ndialect: kafka\n") is Dialect.KAFKA
    with pytest.raises(CorruptRecordError, match="expected kafka or enriched"):
        parse_message_dialect(b"version: 0\ndialect: esperanto\n")


def test_meta_properties_name_the_broker_or_the_node() -> None:
    old = parse_meta_properties(b"#\n#Sat Nov 21\nbroker.id=3\nversion=0\ncluster.id=NuHc\n")
    assert (old.version, old.node_id, old.cluster_id, old.directory_id) == (0, 3, "NuHc", None)
    new = parse_meta_properties(b"node.id=4\ndirectory.id=UuuN\nversion=1\ncluster.id=b3Jh\n")
    assert (new.version, new.node_id, new.cluster_id, new.directory_id) == (1, 4, "b3Jh", "UuuN")
    with pytest.raises(CorruptRecordError, match="version: expected 0 or 1"):
        parse_meta_properties(b"broker.id=3\n")


def test_the_clean_shutdown_marker_is_empty_or_json() -> None:
    assert parse_clean_shutdown(b"") == CleanShutdown(None, None)
    assert parse_clean_shutdown(b'{"version":0,"brokerEpoch":13}') == CleanShutdown(0, 13)
    for damaged in (b"{", b"[]", b"{}", b"[" * 100_000):
        with pytest.raises(CorruptRecordError):
            parse_clean_shutdown(damaged)


def test_properties_are_read_as_java_reads_them() -> None:
    content = rb"""
# a comment \
! another
plain=value
 spaced  :  out \t\
    continued
with\:colon = \u00e4
flag
empty=
"""
    assert parse_properties(content) == {
        "plain": "value",
        "spaced": "out \tcontinued",
        "with:colon": "ä",
        "flag": "",
        "empty": "",
    }


@given(junk=st.one_of(st.binary(max_size=200), st.text(alphabet='01-:= \n#\\ubvinx{}"', max_size=60).map(str.encode)))
def test_junk_is_a_text_file_or_corrupt_and_nothing_else(junk: bytes) -> None:
    parsers: tuple[Callable[[bytes], object], ...] = PARSERS
    for parse in parsers:
        for content in (junk, b"0\n1\n" + junk, b"version: 0\n" + junk):
            with contextlib.suppress(CorruptRecordError):
                parse(content)
