"""Settings of the coordinators: of groups, and of transactions."""

from __future__ import annotations

from typing import Final

from magicbyte.broker.settings import INT_MAX, SettingType, integer

_INT: Final = SettingType.INT


class CoordinatorSettings:
    """A part of `BrokerConfig`."""

    # ---- groups

    group_initial_rebalance_delay_ms = integer(
        "group.initial.rebalance.delay.ms", 3000, "How long an empty group waits for more members.", kind=_INT
    )
    group_min_session_timeout_ms = integer(
        "group.min.session.timeout.ms", 6000, "The shortest session timeout of members.", kind=_INT
    )
    group_max_session_timeout_ms = integer(
        "group.max.session.timeout.ms", 1_800_000, "The longest session timeout of members.", kind=_INT
    )
    group_max_size = integer("group.max.size", INT_MAX, "Members of a group.", least=1, kind=_INT)
    group_metadata_max_bytes = integer(
        "group.metadata.max.bytes",
        128 << 20,
        "Bytes that the members of all groups together have sent and that are kept: subscriptions, assignments, ids. "
        "Beyond that, who joins is refused with error 81; Kafka has no such bound.",
        least=0,
    )
    offset_metadata_max_bytes = integer(
        "offset.metadata.max.bytes", 4096, "Bytes of the text beside a committed offset.", kind=_INT
    )
    offsets_retention_minutes = integer(
        "offsets.retention.minutes", 10_080, "How long offsets of an empty group are kept.", least=1, kind=_INT
    )
    offsets_retention_check_interval_ms = integer(
        "offsets.retention.check.interval.ms", 600_000, "How often it is looked which offsets are to go.", least=1
    )
    offsets_topic_replication_factor = integer(
        "offsets.topic.replication.factor",
        3,
        "Replicas of __consumer_offsets in a cluster of several brokers.",
        least=1,
        kind=_INT,
    )
    offsets_commit_timeout_ms = integer(
        "offsets.commit.timeout.ms", 5000, "How long to wait until replicas have committed offsets.", least=1, kind=_INT
    )
    offsets_topic_num_partitions = integer(
        "offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets.", least=1, kind=_INT
    )
    offsets_topic_segment_bytes = integer(
        "offsets.topic.segment.bytes", 100 << 20, "The size of segments of __consumer_offsets.", least=1, kind=_INT
    )
    offsets_topic_compression_codec = integer(
        "offsets.topic.compression.codec", 0, "The codec of __consumer_offsets, by its number.", most=4, kind=_INT
    )

    # ---- transactions

    transaction_max_timeout_ms = integer(
        "transaction.max.timeout.ms", 900_000, "The longest timeout of transactions.", least=1, kind=_INT
    )
    transactional_id_expiration_ms = integer(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long unused transactional ids are known.",
        least=1,
        kind=_INT,
    )
    expired_id_interval_ms = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often it is looked which transactional ids are to go.",
        least=1,
        kind=_INT,
    )
    aborted_transaction_interval_ms = integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "After what time ends of transactions that could not be stored are tried again.",
        least=1,
        kind=_INT,
    )
    transaction_state_num_partitions = integer(
        "transaction.state.log.num.partitions", 50, "Partitions of __transaction_state.", least=1, kind=_INT
    )
    transaction_state_replication_factor = integer(
        "transaction.state.log.replication.factor",
        3,
        "Replicas of __transaction_state in a cluster of several brokers.",
        least=1,
        kind=_INT,
    )
    transaction_state_min_isr = integer(
        "transaction.state.log.min.isr", 2, "The min.insync.replicas of __transaction_state.", least=1, kind=_INT
    )
    transaction_state_segment_bytes = integer(
        "transaction.state.log.segment.bytes",
        100 << 20,
        "The size of segments of __transaction_state.",
        least=1,
        kind=_INT,
    )
