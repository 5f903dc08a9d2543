"""Settings of a broker in a cluster: metadata tree, replication, controller."""

from __future__ import annotations

from typing import Final

from magicbyte.server.settings.settings import LONG_MAX, SettingType, UpdateMode, boolean, integer, text

_INT: Final = SettingType.INT


class ClusterSettings:
    """A part of `BrokerConfig`."""

    zookeeper_connect = text(
        "zookeeper.connect",
        None,
        "The ZooKeeper ensemble of the cluster, as HOST:PORT,HOST:PORT/chroot. Not set: the broker is a cluster of "
        "its own and keeps its metadata in its log directory.",
    )
    zookeeper_session_timeout_ms = integer(
        "zookeeper.session.timeout.ms",
        18_000,
        "The ZooKeeper session timeout. A broker that is silent for longer counts as dead.",
        least=1,
        kind=_INT,
    )
    zookeeper_set_acl = boolean(
        "zookeeper.set.acl",
        False,
        "Whether ZooKeeper nodes get ACLs: only brokers with this certificate change them, others read those without "
        "secrets. Needs zookeeper.ssl.client.enable. Nodes that exist keep their ACLs.",
    )
    zookeeper_ssl_client_enable = boolean(
        "zookeeper.ssl.client.enable",
        False,
        "Whether the connection to ZooKeeper is TLS with a certificate of the broker.",
    )
    zookeeper_ssl_keystore_location = text(
        "zookeeper.ssl.keystore.location", None, "A PEM file with the certificate that ZooKeeper is shown, and its key."
    )
    zookeeper_ssl_keystore_password = text(
        "zookeeper.ssl.keystore.password", None, "The password of that key.", kind=SettingType.PASSWORD
    )
    zookeeper_ssl_truststore_location = text(
        "zookeeper.ssl.truststore.location",
        None,
        "A PEM file with the authorities that ZooKeeper's certificate may come from. Not set: those of this machine.",
    )
    zookeeper_ssl_endpoint_identification_algorithm = text(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        "HTTPS: the certificate must have ZooKeeper's host name. Empty: any name.",
    )
    inter_broker_listener_name = text(
        "inter.broker.listener.name",
        None,
        "The listener that other brokers connect to. Not set: the first that is PLAINTEXT.",
    )
    num_replica_fetchers = integer(
        "num.replica.fetchers",
        1,
        "The number of fetcher connections to each leader. A change is for partitions that begin to follow a leader.",
        least=1,
        kind=_INT,
        update=UpdateMode.CLUSTER_WIDE,
    )
    replica_fetch_max_bytes = integer(
        "replica.fetch.max.bytes",
        1 << 20,
        "The maximum bytes of one partition in a follower's fetch.",
        least=0,
        kind=_INT,
    )
    replica_fetch_response_max_bytes = integer(
        "replica.fetch.response.max.bytes",
        10 << 20,
        "The maximum bytes of the response to a follower's fetch.",
        kind=_INT,
    )
    replica_fetch_min_bytes = integer(
        "replica.fetch.min.bytes",
        1,
        "The minimum bytes that a leader collects before it answers a follower's fetch.",
        kind=_INT,
    )
    replica_fetch_wait_max_ms = integer(
        "replica.fetch.wait.max.ms",
        500,
        "The maximum time that a leader holds a follower's fetch while there are fewer bytes than "
        "replica.fetch.min.bytes.",
        kind=_INT,
    )
    replica_fetch_backoff_ms = integer(
        "replica.fetch.backoff.ms",
        1000,
        "The back-off of a follower after an error in a partition.",
        least=0,
        kind=_INT,
    )
    replica_lag_time_max_ms = integer(
        "replica.lag.time.max.ms",
        30_000,
        "The maximum time that a follower may lag. A follower that has not caught up with its leader for longer "
        "leaves the in-sync replicas.",
    )
    replica_socket_timeout_ms = integer(
        "replica.socket.timeout.ms", 30_000, "The timeout of a follower's request to its leader.", least=1, kind=_INT
    )
    replica_scrub_interval_ms = integer(
        "replica.scrub.interval.ms",
        0,
        "The time from one check of all stored batches below the high watermark to the next, 0 for none. Damaged ones "
        "are repaired if more than half of the replicas have the same sound bytes.",
    )
    replica_scrub_bytes_per_second = integer(
        "replica.scrub.bytes.per.second",
        16 << 20,
        "The maximum bytes per second that such a check reads.",
        least=1,
    )
    leader_replication_throttled_rate = integer(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "The maximum bytes per second that a leader sends to throttled replicas that are not in sync. The topic "
        "setting leader.replication.throttled.replicas names them.",
        least=0,
        update=UpdateMode.CLUSTER_WIDE,
    )
    follower_replication_throttled_rate = integer(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "The maximum bytes per second that a follower fetches for throttled replicas that are not in sync. The topic "
        "setting follower.replication.throttled.replicas names them.",
        least=0,
        update=UpdateMode.CLUSTER_WIDE,
    )
    replication_quota_window_num = integer(
        "replication.quota.window.num",
        11,
        "The number of samples that the replication throttles keep.",
        least=1,
        kind=_INT,
    )
    replication_quota_window_size_seconds = integer(
        "replication.quota.window.size.seconds",
        1,
        "The length of each sample of the replication throttles.",
        least=1,
        kind=_INT,
    )
    controller_socket_timeout_ms = integer(
        "controller.socket.timeout.ms",
        30_000,
        "The timeout of requests between the controller and a broker.",
        least=1,
        kind=_INT,
    )
    controlled_shutdown_enable = boolean(
        "controlled.shutdown.enable",
        True,
        "Whether a stopping broker first moves leadership of its partitions to other brokers.",
    )
    controlled_shutdown_max_retries = integer(
        "controlled.shutdown.max.retries",
        3,
        "The number of controlled shutdown requests before the broker stops without handing over.",
        least=0,
        kind=_INT,
    )
    controlled_shutdown_retry_backoff_ms = integer(
        "controlled.shutdown.retry.backoff.ms", 5000, "The back-off between controlled shutdown requests."
    )
    auto_leader_rebalance_enable = boolean(
        "auto.leader.rebalance.enable", True, "Whether the controller periodically elects preferred leaders."
    )
    leader_imbalance_check_interval_seconds = integer(
        "leader.imbalance.check.interval.seconds", 300, "The interval of checks for leader imbalance.", least=1
    )
    leader_imbalance_per_broker_percentage = integer(
        "leader.imbalance.per.broker.percentage",
        10,
        "The percentage of a broker's preferred partitions that other brokers may lead. Above it, preferred leaders "
        "are elected.",
        kind=_INT,
    )
    replica_selector_class = text(
        "replica.selector.class",
        None,
        "The replica selector for consumers. RackAwareReplicaSelector, with or without its package: consumers read "
        "from a replica in their own rack.",
    )
