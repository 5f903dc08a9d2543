"""The image of a metadata log, compared at each offset with the one that Kafka's own classes made of it."""

import itertools
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from kraft_data import FOLDER, KraftNode, nodes
from magicbyte.engine.cluster.changes import apply_all, difference
from magicbyte.engine.cluster.image import ClusterImage, TopicImage
from magicbyte.engine.cluster.metadata_fold import MetadataFold, records_of
from magicbyte.engine.cluster.metadata_records import MetadataRecord, read_metadata_record, write_metadata_record
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.protocol.stored.abort_transaction_record import AbortTransactionRecord
from magicbyte.engine.protocol.stored.access_control_entry_record import AccessControlEntryRecord
from magicbyte.engine.protocol.stored.begin_transaction_record import BeginTransactionRecord
from magicbyte.engine.protocol.stored.client_quota_record import ClientQuotaRecord
from magicbyte.engine.protocol.stored.config_record import ConfigRecord
from magicbyte.engine.protocol.stored.end_transaction_record import EndTransactionRecord
from magicbyte.engine.protocol.stored.fence_broker_record import FenceBrokerRecord
from magicbyte.engine.protocol.stored.partition_change_record import PartitionChangeRecord
from magicbyte.engine.protocol.stored.partition_record import PartitionRecord
from magicbyte.engine.protocol.stored.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from magicbyte.engine.protocol.stored.remove_topic_record import RemoveTopicRecord
from magicbyte.engine.protocol.stored.topic_record import TopicRecord
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.engine.sentinels import NO_EPOCH


def int_of(snapshot: str) -> int:
    """Return the end offset in a snapshot's name, -1 for another file."""
    match = re.match(r"(\d{20})-\d{10}", snapshot)
    return -1 if match is None else int(match[1])


def records_in(data: bytes) -> Iterator[tuple[int, MetadataRecord]]:
    """Yield the records of a log or snapshot, with their offsets."""
    for columns in decode(memoryview(data), DecodeOptions(keys=False, headers=False)):
        for record in columns:
            yield record.offset, read_metadata_record(record.value)


NO_MIGRATION = {"type": "ZK_MIGRATION_STATE_RECORD", "version": 0, "data": {"zkMigrationState": 0}}
"""Releases 3.4 to 3.9 have it in every image, which means the same as none."""


def texts(records: Iterable[dict[str, Any]]) -> Counter[str]:
    """Return records as texts in which the order of endpoints, features and the like does not matter."""
    return Counter(json.dumps(sorted_lists(each), sort_keys=True) for each in records if each != NO_MIGRATION)


def sorted_lists(value: Any) -> Any:
    """Sort the lists of objects in a value: Kafka writes them in the order of a hash table."""
    if isinstance(value, dict):
        return {name: sorted_lists(each) for name, each in value.items()}
    if isinstance(value, list):
        items = [sorted_lists(each) for each in value]
        return sorted(items, key=json.dumps) if items and isinstance(items[0], dict) else items
    return value


def text_of(image: ClusterImage) -> Counter[str]:
    """Return the records of an image as texts."""
    return texts(record.to_json() for record in records_of(image))


QUICK = ("3.3.2/clean-a node", "3.9.1/clean-a node", "4.3.1/dynamic-a c100", "4.4.0/killed-a node")
NODES = [pytest.param(each, id=str(each), marks=() if str(each) in QUICK else pytest.mark.slow) for each in nodes()]


@pytest.mark.parametrize("node", NODES)
def test_the_image_at_each_offset_is_that_of_kafkas_classes(node: KraftNode) -> None:
    files = {path.rpartition("/")[2]: data for path, data in node.files().items() if path.startswith(FOLDER)}
    log = [each for name in sorted(files) if name.endswith(".log") for each in records_in(files[name])]
    begins = min(int(name[:20]) for name in files if name.endswith(".log"))
    for start, lines in node.folds().items():
        if start is None and begins > 0:  # the fold begins with the snapshot before the log's start
            start = next(
                name.removesuffix(".checkpoint")
                for name in files
                if name.endswith(".checkpoint") and int_of(name) == lines[0]["offset"] + 1
            )
        fold, begin = MetadataFold(), 0
        if start is not None:
            begin = int_of(start)
            for _, record in records_in(files[f"{start}.checkpoint"]):
                fold.add(record)
        expected, waiting = Counter[str](), iter(lines)
        line = next(waiting)
        if start is not None:
            expected = texts(line["add"])
            assert text_of(fold.image(begin - 1)) == expected, start
            line = next(waiting)
        for offset, record in log:
            if offset < begin:
                continue
            fold.add(record)
            if line.get("offset") == offset:
                expected = expected - texts(line["remove"]) + texts(line["add"])
                line = next(waiting)
                assert text_of(fold.image(offset)) == expected, (start, offset, record)
        assert text_of(fold.image(log[-1][0])) == expected, start
        assert line["end"] >= log[-1][0], "all lines were compared"
        assert line["records"] - sum(expected.values()) in (0, 1), "one: that of no migration"
        assert line["open_transaction"] == fold.has_open_transaction


@pytest.mark.parametrize("node", NODES)
def test_an_image_leads_to_itself_by_its_records_and_by_its_differences(node: KraftNode) -> None:
    files = {path.rpartition("/")[2]: data for path, data in node.files().items() if path.startswith(FOLDER)}
    images = [ClusterImage()]
    for name in sorted(files):
        if name.endswith(".checkpoint"):
            fold = MetadataFold()
            for _, record in records_in(files[name]):
                fold.add(record)
            images.append(fold.image(int_of(name)))
    for old, new in itertools.pairwise([*images, *images[::-1]]):
        assert apply_all(old, difference(old, new), new.position) == new
    for image in images:
        again = MetadataFold()
        for record in records_of(image):
            again.add(read_metadata_record(write_metadata_record(record)))
        assert again.image(image.position) == image


TOPIC = uuid.UUID(int=5)
CREATED = TopicRecord(name="orders", topic_id=TOPIC)


def partition(number: int, **fields: Any) -> MetadataRecord:
    """Return the record of a partition of `orders`."""
    record = PartitionRecord(partition_id=number, topic_id=TOPIC, leader_epoch=0, partition_epoch=0, **fields)
    return MetadataRecord(3, 0, record)


def folded(*records: MetadataRecord) -> ClusterImage:
    """Return the image after records."""
    fold = MetadataFold()
    for record in records:
        fold.add(record)
    return fold.image(len(records) - 1)


def test_the_same_leader_in_a_change_begins_an_epoch_and_other_changes_do_not() -> None:
    created = MetadataRecord(2, 0, CREATED), partition(0, replicas=[1, 2], isr=[1, 2], leader=1)
    change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1])
    known = folded(*created, MetadataRecord(5, 0, change)).topics["orders"].partitions[0].known
    assert known == KnownState(PartitionState(1, 0, (1,), NO_EPOCH), 1)
    change.leader = 1
    known = folded(*created, MetadataRecord(5, 0, change)).topics["orders"].partitions[0].known
    assert known == KnownState(PartitionState(1, 1, (1,), NO_EPOCH), 1)


def test_partitions_may_come_in_any_order() -> None:
    image = folded(MetadataRecord(2, 0, CREATED), *(partition(each, leader=each) for each in (2, 0, 3, 1)))
    known = [each.known for each in image.topics["orders"].partitions]
    assert [each.state.leader for each in known if each is not None] == [0, 1, 2, 3]


def test_a_topic_of_the_same_name_has_no_settings_of_the_deleted_one() -> None:
    setting = ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="7")
    again = TopicRecord(name="orders", topic_id=uuid.UUID(int=6))
    image = folded(
        MetadataRecord(2, 0, CREATED),
        partition(0),
        MetadataRecord(4, 0, setting),
        MetadataRecord(9, 0, RemoveTopicRecord(topic_id=TOPIC)),
        MetadataRecord(2, 0, again),
    )
    assert image.topics["orders"] == TopicImage("orders", uuid.UUID(int=6), ())
    assert image.settings == {}


BEGIN, END = MetadataRecord(23, 0, BeginTransactionRecord()), MetadataRecord(24, 0, EndTransactionRecord())
ABORT = MetadataRecord(25, 0, AbortTransactionRecord(reason="no"))


def test_records_of_a_transaction_count_at_its_end_and_not_after_an_abort() -> None:
    created = MetadataRecord(2, 0, CREATED)
    assert folded(BEGIN, created).topics == {}
    assert folded(BEGIN, created, ABORT).topics == {}
    assert list(folded(BEGIN, created, END).topics) == ["orders"]


def test_of_two_equal_acls_one_stays_when_the_other_is_removed() -> None:
    def acl(number: int) -> MetadataRecord:
        record = AccessControlEntryRecord(
            id=uuid.UUID(int=number),
            resource_type=2,
            resource_name="orders",
            pattern_type=3,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        )
        return MetadataRecord(18, 0, record)

    removed = [MetadataRecord(19, 0, RemoveAccessControlEntryRecord(id=uuid.UUID(int=each))) for each in (1, 2)]
    assert len(folded(acl(1), acl(2), removed[0]).acls) == 1
    assert folded(acl(1), acl(2), *removed).acls == {}


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([BEGIN, BEGIN], "another begin"),
        ([END], "the end of a transaction"),
        ([ABORT], "the end of a transaction"),
        ([partition(0)], "no topic has the id"),
        ([MetadataRecord(2, 0, CREATED), partition(2_000_000_000)], "expected partition 0, found 2000000000 only"),
        ([MetadataRecord(2, 0, CREATED), partition(0), partition(2)], "expected partition 1, found 2 only"),
        ([MetadataRecord(2, 0, CREATED), partition(-1)], "partition -1 of topic orders"),
        ([MetadataRecord(2, 0, CREATED), MetadataRecord(2, 0, CREATED)], "orders exists already"),
        ([MetadataRecord(5, 0, PartitionChangeRecord(partition_id=0, topic_id=TOPIC))], "no topic has the id"),
        ([MetadataRecord(7, 0, FenceBrokerRecord(id=1, epoch=3))], "broker 1 is not registered"),
        ([MetadataRecord(4, 0, ConfigRecord(resource_type=3, resource_name="a", name="b", value="c"))], "type 3"),
        ([MetadataRecord(14, 0, ClientQuotaRecord(entity=[], key="a", value=1.0, remove=False))], "no entity"),
        ([MetadataRecord(19, 0, RemoveAccessControlEntryRecord(id=TOPIC))], "no ACL has the id"),
    ],
)
def test_a_record_that_cannot_follow_those_before_is_refused(records: list[MetadataRecord], why: str) -> None:
    with pytest.raises(CorruptRecordError, match=re.escape(why)):
        folded(*records)
