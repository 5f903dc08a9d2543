"""Settings of the coordinators: of groups, and of transactions."""

from __future__ import annotations

from typing import Final

from magicbyte.server.settings.settings import INT_MAX, SettingType, boolean, choice, integer, words

_INT: Final = SettingType.INT


class CoordinatorSettings:
    """A part of `BrokerConfig`."""

    # ---- groups

    group_initial_rebalance_delay_ms = integer(
        "group.initial.rebalance.delay.ms",
        3000,
        "The time that the coordinator waits for more members before the first rebalance of an empty group.",
        kind=_INT,
    )
    group_min_session_timeout_ms = integer(
        "group.min.session.timeout.ms", 6000, "The minimum session timeout of members.", kind=_INT
    )
    group_max_session_timeout_ms = integer(
        "group.max.session.timeout.ms", 1_800_000, "The maximum session timeout of members.", kind=_INT
    )
    group_max_size = integer("group.max.size", INT_MAX, "The maximum number of members in a group.", least=1, kind=_INT)
    group_consumer_session_timeout_ms = integer(
        "group.consumer.session.timeout.ms",
        45_000,
        "The session timeout of members of consumer groups (KIP-848).",
        least=1,
        kind=_INT,
    )
    group_consumer_heartbeat_interval_ms = integer(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "The interval at which members of consumer groups send heartbeats.",
        least=1,
        kind=_INT,
    )
    group_consumer_assignment_interval_ms = integer(
        "group.consumer.assignment.interval.ms",
        1_000,
        "The minimum time between two assignments of a consumer group.",
        least=0,
        kind=_INT,
    )
    group_consumer_min_session_timeout_ms = integer(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "The least session timeout that a consumer group may have as its own setting.",
        least=1,
        kind=_INT,
    )
    group_consumer_max_session_timeout_ms = integer(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "The largest session timeout that a consumer group may have as its own setting.",
        least=1,
        kind=_INT,
    )
    group_consumer_min_heartbeat_interval_ms = integer(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        "The least interval of heartbeats that a consumer group may have as its own setting.",
        least=1,
        kind=_INT,
    )
    group_consumer_max_heartbeat_interval_ms = integer(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "The largest interval of heartbeats that a consumer group may have as its own setting.",
        least=1,
        kind=_INT,
    )
    group_consumer_min_assignment_interval_ms = integer(
        "group.consumer.min.assignment.interval.ms",
        0,
        "The least time between two assignments that a consumer group may have as its own setting.",
        least=0,
        kind=_INT,
    )
    group_consumer_max_assignment_interval_ms = integer(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        "The largest time between two assignments that a consumer group may have as its own setting.",
        least=0,
        kind=_INT,
    )
    group_consumer_max_size = integer(
        "group.consumer.max.size", INT_MAX, "The maximum number of members in a consumer group.", least=1, kind=_INT
    )
    group_consumer_regex_refresh_interval_ms = integer(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "The interval at which patterns of topic names of consumer groups are resolved again, besides after changes of "
        "topics.",
        least=10_000,
        kind=_INT,
    )
    group_consumer_migration_policy = choice(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether a classic group with members becomes a consumer group when a member of that protocol joins "
        "(upgrade), and a consumer group a classic one when the last such member leaves (downgrade).",
        ("disabled", "downgrade", "upgrade", "bidirectional"),
    )
    group_consumer_assignors = words(
        "group.consumer.assignors",
        "uniform,range",
        "The assignors of consumer groups. The first one is used by members that name none.",
        ("uniform", "range"),
    )
    group_share_session_timeout_ms = integer(
        "group.share.session.timeout.ms",
        45_000,
        "The session timeout of members of share groups (KIP-932).",
        least=1,
        kind=_INT,
    )
    group_share_heartbeat_interval_ms = integer(
        "group.share.heartbeat.interval.ms",
        5_000,
        "The interval at which members of share groups send heartbeats.",
        least=1,
        kind=_INT,
    )
    group_share_assignment_interval_ms = integer(
        "group.share.assignment.interval.ms",
        1_000,
        "The minimum time between two assignments of a share group.",
        least=0,
        kind=_INT,
    )
    group_share_max_size = integer(
        "group.share.max.size", 200, "The maximum number of members in a share group.", least=1, most=1000, kind=_INT
    )
    group_share_max_share_sessions = integer(
        "group.share.max.share.sessions", 2000, "The maximum number of share sessions of a broker.", least=1, kind=_INT
    )
    group_share_record_lock_duration_ms = integer(
        "group.share.record.lock.duration.ms",
        30_000,
        "The time for which a member of a share group acquires records.",
        least=1,
        kind=_INT,
    )
    group_share_delivery_count_limit = integer(
        "group.share.delivery.count.limit",
        5,
        "The maximum number of deliveries of a record to members of a share group.",
        least=2,
        most=10,
        kind=_INT,
    )
    group_share_partition_max_record_locks = integer(
        "group.share.partition.max.record.locks",
        2000,
        "The maximum number of records of a partition that a share group has in flight.",
        least=100,
        most=4000,
        kind=_INT,
    )
    group_share_initialize_retry_interval_ms = integer(
        "group.share.initialize.retry.interval.ms",
        30_000,
        "The time after which a share group asks again for the states of partitions.",
        least=1,
        kind=_INT,
    )
    group_share_auto_offset_reset = choice(
        "group.share.auto.offset.reset",
        "latest",
        "Where a share group begins to read a partition: `latest` or `earliest`. In Kafka each group has a setting "
        "`share.auto.offset.reset`.",
        ("latest", "earliest"),
    )
    group_share_isolation_level = choice(
        "group.share.isolation.level",
        "read_uncommitted",
        "Whether share groups get records of open and aborted transactions. In Kafka each group has a setting "
        "`share.isolation.level`.",
        ("read_uncommitted", "read_committed"),
    )
    share_coordinator_state_topic_num_partitions = integer(
        "share.coordinator.state.topic.num.partitions",
        50,
        "The number of partitions of __share_group_state.",
        least=1,
        kind=_INT,
    )
    share_coordinator_state_topic_replication_factor = integer(
        "share.coordinator.state.topic.replication.factor",
        3,
        "The replication factor of __share_group_state in a cluster of several brokers.",
        least=1,
        kind=_INT,
    )
    share_coordinator_state_topic_min_isr = integer(
        "share.coordinator.state.topic.min.isr",
        2,
        "The min.insync.replicas of __share_group_state.",
        least=1,
        kind=_INT,
    )
    share_coordinator_state_topic_segment_bytes = integer(
        "share.coordinator.state.topic.segment.bytes",
        100 << 20,
        "The segment size of __share_group_state.",
        least=1,
        kind=_INT,
    )
    share_coordinator_state_topic_compression_codec = integer(
        "share.coordinator.state.topic.compression.codec",
        0,
        "The codec of __share_group_state, by its number.",
        most=4,
        kind=_INT,
    )
    share_coordinator_updates_per_snapshot = integer(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "The number of updates of a state after which a snapshot of it is stored.",
        least=0,
        most=500,
        kind=_INT,
    )
    share_coordinator_snapshot_interval_ms = integer(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        "The interval of checks for states that were not written for a while, of which snapshots are stored.",
        least=1,
        kind=_INT,
    )
    share_coordinator_prune_interval_ms = integer(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "The interval at which records of __share_group_state that are no longer needed are deleted.",
        least=1,
        kind=_INT,
    )
    share_coordinator_write_timeout_ms = integer(
        "share.coordinator.write.timeout.ms",
        5000,
        "The maximum time that a change of a state waits for the replicas of __share_group_state.",
        least=1,
        kind=_INT,
    )
    group_metadata_max_bytes = integer(
        "group.metadata.max.bytes",
        128 << 20,
        "The maximum bytes of member metadata (subscriptions, assignments, ids) that all groups together may hold. "
        "Above it, a join is refused with error 81 (GROUP_MAX_SIZE_REACHED). Kafka has no such limit.",
        least=0,
    )
    offset_metadata_max_bytes = integer(
        "offset.metadata.max.bytes", 4096, "The maximum bytes of the metadata of a committed offset.", kind=_INT
    )
    offsets_retention_minutes = integer(
        "offsets.retention.minutes", 10_080, "The time that offsets of an empty group are kept.", least=1, kind=_INT
    )
    offsets_retention_check_interval_ms = integer(
        "offsets.retention.check.interval.ms", 600_000, "The interval of checks for expired offsets.", least=1
    )
    offsets_topic_replication_factor = integer(
        "offsets.topic.replication.factor",
        3,
        "The replication factor of __consumer_offsets in a cluster of several brokers.",
        least=1,
        kind=_INT,
    )
    offsets_commit_timeout_ms = integer(
        "offsets.commit.timeout.ms",
        5000,
        "The maximum time that an offset commit waits for the replicas of __consumer_offsets.",
        least=1,
        kind=_INT,
    )
    offsets_topic_num_partitions = integer(
        "offsets.topic.num.partitions", 50, "The number of partitions of __consumer_offsets.", least=1, kind=_INT
    )
    offsets_topic_segment_bytes = integer(
        "offsets.topic.segment.bytes", 100 << 20, "The segment size of __consumer_offsets.", least=1, kind=_INT
    )
    offsets_topic_compression_codec = integer(
        "offsets.topic.compression.codec", 0, "The codec of __consumer_offsets, by its number.", most=4, kind=_INT
    )

    # ---- transactions

    transaction_max_timeout_ms = integer(
        "transaction.max.timeout.ms",
        900_000,
        "The maximum transaction timeout that a producer may ask for.",
        least=1,
        kind=_INT,
    )
    transactional_id_expiration_ms = integer(
        "transactional.id.expiration.ms",
        604_800_000,
        "The time after which an unused transactional id expires.",
        least=1,
        kind=_INT,
    )
    expired_id_interval_ms = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "The interval of checks for expired transactional ids.",
        least=1,
        kind=_INT,
    )
    aborted_transaction_interval_ms = integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "The time after which a change of a transaction's state that could not be stored is retried.",
        least=1,
        kind=_INT,
    )
    transaction_partition_verification = boolean(
        "transaction.partition.verification.enable",
        True,
        "Whether a leader asks the coordinator if a transaction is ongoing before it appends the first records of it. "
        "This prevents hanging transactions.",
    )
    transaction_state_num_partitions = integer(
        "transaction.state.log.num.partitions",
        50,
        "The number of partitions of __transaction_state.",
        least=1,
        kind=_INT,
    )
    transaction_state_replication_factor = integer(
        "transaction.state.log.replication.factor",
        3,
        "The replication factor of __transaction_state in a cluster of several brokers.",
        least=1,
        kind=_INT,
    )
    transaction_state_min_isr = integer(
        "transaction.state.log.min.isr", 2, "The min.insync.replicas of __transaction_state.", least=1, kind=_INT
    )
    transaction_state_segment_bytes = integer(
        "transaction.state.log.segment.bytes",
        100 << 20,
        "The segment size of __transaction_state.",
        least=1,
        kind=_INT,
    )
