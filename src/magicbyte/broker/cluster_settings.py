"""Settings of a broker that is one of several: where the cluster's metadata is, replication, the controller."""

from __future__ import annotations

from typing import Final

from magicbyte.broker.settings import LONG_MAX, SettingType, UpdateMode, boolean, integer, text

_INT: Final = SettingType.INT


class ClusterSettings:
    """A part of `BrokerConfig`."""

    zookeeper_connect = text(
        "zookeeper.connect",
        None,
        "The ZooKeeper of the cluster, as HOST:PORT with commas between several, and the path of its root behind the "
        "last one. Without it the broker is a cluster by itself, and keeps its metadata in its log directory.",
    )
    zookeeper_session_timeout_ms = integer(
        "zookeeper.session.timeout.ms",
        18_000,
        "How long ZooKeeper waits for a broker that is silent before the broker counts as dead.",
        least=1,
        kind=_INT,
    )
    inter_broker_listener_name = text(
        "inter.broker.listener.name", None, "The listener that other brokers connect to; the first one by default."
    )
    num_replica_fetchers = integer(
        "num.replica.fetchers",
        1,
        "Connections to each leader from which partitions are replicated.",
        least=1,
        kind=_INT,
    )
    replica_fetch_max_bytes = integer(
        "replica.fetch.max.bytes",
        1 << 20,
        "Bytes of a partition that a follower asks for at a time.",
        least=0,
        kind=_INT,
    )
    replica_fetch_response_max_bytes = integer(
        "replica.fetch.response.max.bytes", 10 << 20, "Bytes that a follower asks a leader for at a time.", kind=_INT
    )
    replica_fetch_min_bytes = integer(
        "replica.fetch.min.bytes", 1, "Bytes that a leader waits for before it answers a follower.", kind=_INT
    )
    replica_fetch_wait_max_ms = integer(
        "replica.fetch.wait.max.ms", 500, "How long a leader lets a follower wait for records.", kind=_INT
    )
    replica_fetch_backoff_ms = integer(
        "replica.fetch.backoff.ms",
        1000,
        "How long a follower leaves a partition alone after an error.",
        least=0,
        kind=_INT,
    )
    replica_lag_time_max_ms = integer(
        "replica.lag.time.max.ms",
        30_000,
        "A follower that has not caught up with its leader for so long leaves the in-sync replicas.",
    )
    replica_socket_timeout_ms = integer(
        "replica.socket.timeout.ms", 30_000, "How long a follower waits for a leader's answer.", least=1, kind=_INT
    )
    leader_replication_throttled_rate = integer(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Bytes per second that the broker sends, as a leader, to throttled replicas that are not in sync: see the "
        "topics' leader.replication.throttled.replicas.",
        least=0,
        update=UpdateMode.CLUSTER_WIDE,
    )
    follower_replication_throttled_rate = integer(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Bytes per second that the broker fetches, as a follower, for throttled replicas that are not in sync: see the "
        "topics' follower.replication.throttled.replicas.",
        least=0,
        update=UpdateMode.CLUSTER_WIDE,
    )
    replication_quota_window_num = integer(
        "replication.quota.window.num",
        11,
        "How many samples the rates of throttled replication are measured over.",
        least=1,
        kind=_INT,
    )
    replication_quota_window_size_seconds = integer(
        "replication.quota.window.size.seconds", 1, "The length of such a sample.", least=1, kind=_INT
    )
    controller_socket_timeout_ms = integer(
        "controller.socket.timeout.ms",
        30_000,
        "How long the controller waits for a broker's answer.",
        least=1,
        kind=_INT,
    )
    controlled_shutdown_enable = boolean(
        "controlled.shutdown.enable", True, "Hand partitions over to other brokers before the broker stops."
    )
    controlled_shutdown_max_retries = integer(
        "controlled.shutdown.max.retries",
        3,
        "How often the controller is asked for it before the broker stops anyway.",
        least=0,
        kind=_INT,
    )
    controlled_shutdown_retry_backoff_ms = integer(
        "controlled.shutdown.retry.backoff.ms", 5000, "How long to wait before the controller is asked again."
    )
    auto_leader_rebalance_enable = boolean(
        "auto.leader.rebalance.enable", True, "Give partitions back to their preferred leaders from time to time."
    )
    leader_imbalance_check_interval_seconds = integer(
        "leader.imbalance.check.interval.seconds", 300, "How often the controller looks for that.", least=1
    )
    leader_imbalance_per_broker_percentage = integer(
        "leader.imbalance.per.broker.percentage",
        10,
        "The share of a broker's partitions that others may lead before they are given back.",
        kind=_INT,
    )
    replica_selector_class = text(
        "replica.selector.class",
        None,
        "RackAwareReplicaSelector, with or without its package: consumers read from a replica in their own rack.",
    )
