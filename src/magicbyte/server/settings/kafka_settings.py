"""Settings of Kafka's brokers outside `BrokerConfig`: their types, so that values are checked, stored and described.

Those of listeners are read by `listener_security.py`; the others have no effect here. A file of settings may have any,
or a tool that reads all settings and writes them back. Names, types and least values are those of Kafka 3.9.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from magicbyte.server.settings.settings import (
    LONG_MAX,
    Setting,
    SettingType,
    UpdateMode,
    boolean,
    integer,
    number,
    text,
    words,
)

_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]+\.(?:(?:plain|scram-sha-\d+|oauthbearer|gssapi)\.)?")
_DOC: Final = "A setting of Kafka's brokers."

_NAMES: Final[Mapping[tuple[SettingType, UpdateMode, int | None], str]] = {
    (SettingType.BOOLEAN, UpdateMode.READ_ONLY, None): (
        "auto.include.jmx.reporter broker.id.generation.enable eligible.leader.replicas.enable "
        "remote.log.storage.system.enable ssl.allow.dn.changes ssl.allow.san.changes "
        "zookeeper.metadata.migration.enable zookeeper.ssl.crl.enable zookeeper.ssl.ocsp.enable"
    ),
    (SettingType.CLASS, UpdateMode.CLUSTER_WIDE, None): "principal.builder.class ssl.engine.factory.class",
    (SettingType.CLASS, UpdateMode.READ_ONLY, None): (
        "client.quota.callback.class sasl.client.callback.handler.class sasl.login.callback.handler.class "
        "sasl.login.class sasl.server.callback.handler.class"
    ),
    (SettingType.DOUBLE, UpdateMode.CLUSTER_WIDE, None): (
        "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor "
        "sasl.login.refresh.window.factor sasl.login.refresh.window.jitter"
    ),
    (SettingType.INT, UpdateMode.CLUSTER_WIDE, None): (
        "compression.gzip.level compression.lz4.level compression.zstd.level"
    ),
    (SettingType.INT, UpdateMode.CLUSTER_WIDE, 0): "log.cleaner.threads",
    (SettingType.INT, UpdateMode.CLUSTER_WIDE, 1): (
        "background.threads num.io.threads num.network.threads num.recovery.threads.per.data.dir "
        "producer.id.expiration.ms remote.fetch.max.wait.ms"
    ),
    (SettingType.INT, UpdateMode.READ_ONLY, None): (
        "broker.heartbeat.interval.ms broker.session.timeout.ms controller.quorum.append.linger.ms "
        "controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms "
        "controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms "
        "controller.quorum.retry.backoff.ms delete.records.purgatory.purge.interval.requests "
        "fetch.purgatory.purge.interval.requests "
        "group.share.max.record.lock.duration.ms group.share.min.record.lock.duration.ms "
        ""
        "initial.broker.registration.timeout.ms num.replica.alter.log.dirs.threads "
        "producer.purgatory.purge.interval.requests remote.log.manager.copier.thread.pool.size "
        "remote.log.manager.expiration.thread.pool.size replica.socket.receive.buffer.bytes "
        "request.timeout.ms sasl.login.connect.timeout.ms sasl.login.read.timeout.ms "
        "sasl.oauthbearer.clock.skew.seconds sasl.server.max.receive.size socket.receive.buffer.bytes "
        "socket.send.buffer.bytes zookeeper.connection.timeout.ms"
    ),
    (SettingType.INT, UpdateMode.READ_ONLY, 0): (
        "group.coordinator.append.linger.ms max.incremental.fetch.session.cache.slots "
        "metadata.max.idle.interval.ms remote.log.metadata.custom.metadata.max.bytes reserved.broker.max.id"
    ),
    (SettingType.INT, UpdateMode.READ_ONLY, 1): (
        "alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds "
        "group.coordinator.threads "
        "group.share.max.heartbeat.interval.ms group.share.max.session.timeout.ms "
        "group.share.min.heartbeat.interval.ms group.share.min.session.timeout.ms "
        "kafka.metrics.polling.interval.secs "
        "metrics.num.samples offsets.load.buffer.size queued.max.requests "
        "remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds "
        "remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds "
        "remote.log.manager.thread.pool.size remote.log.reader.max.pending.tasks remote.log.reader.threads "
        "socket.listen.backlog.size telemetry.max.bytes transaction.state.log.load.buffer.size "
        "zookeeper.max.in.flight.requests"
    ),
    (SettingType.INT, UpdateMode.READ_ONLY, 1024): "password.encoder.iterations",
    (SettingType.INT, UpdateMode.READ_ONLY, 12): "metadata.log.segment.bytes",
    (SettingType.INT, UpdateMode.READ_ONLY, 8): "password.encoder.key.length",
    (SettingType.LIST, UpdateMode.CLUSTER_WIDE, None): (
        "metric.reporters sasl.enabled.mechanisms sasl.kerberos.principal.to.local.rules ssl.cipher.suites "
        "ssl.enabled.protocols"
    ),
    (SettingType.LIST, UpdateMode.READ_ONLY, None): (
        "controller.quorum.bootstrap.servers controller.quorum.voters "
        "group.coordinator.rebalance.protocols kafka.metrics.reporters process.roles "
        "sasl.oauthbearer.expected.audience zookeeper.ssl.cipher.suites zookeeper.ssl.enabled.protocols"
    ),
    (SettingType.LONG, UpdateMode.CLUSTER_WIDE, None): "sasl.kerberos.min.time.before.relogin",
    (SettingType.LONG, UpdateMode.CLUSTER_WIDE, -2): "log.local.retention.bytes log.local.retention.ms",
    (SettingType.LONG, UpdateMode.CLUSTER_WIDE, 1): (
        "remote.log.index.file.cache.total.size.bytes remote.log.manager.copy.max.bytes.per.second "
        "remote.log.manager.fetch.max.bytes.per.second"
    ),
    (SettingType.LONG, UpdateMode.READ_ONLY, None): (
        "metadata.log.segment.ms metadata.max.retention.bytes metadata.max.retention.ms "
        "sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms "
        "sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms socket.connection.setup.timeout.max.ms "
        "socket.connection.setup.timeout.ms"
    ),
    (SettingType.LONG, UpdateMode.READ_ONLY, 0): "metadata.log.max.snapshot.interval.ms",
    (SettingType.LONG, UpdateMode.READ_ONLY, 1): (
        "delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms "
        "delegation.token.max.lifetime.ms log.dir.failure.timeout.ms "
        "metadata.log.max.record.bytes.between.snapshots metrics.sample.window.ms "
        "remote.log.manager.task.interval.ms"
    ),
    (SettingType.PASSWORD, UpdateMode.CLUSTER_WIDE, None): (
        "sasl.jaas.config ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key "
        "ssl.keystore.password ssl.truststore.certificates ssl.truststore.password"
    ),
    (SettingType.PASSWORD, UpdateMode.READ_ONLY, None): (
        "delegation.token.master.key delegation.token.secret.key password.encoder.old.secret "
        "password.encoder.secret zookeeper.ssl.truststore.password"
    ),
    (SettingType.SHORT, UpdateMode.CLUSTER_WIDE, None): (
        "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds"
    ),
    (SettingType.SHORT, UpdateMode.READ_ONLY, None): ("group.share.max.groups offsets.commit.required.acks"),
    (SettingType.STRING, UpdateMode.CLUSTER_WIDE, None): (
        "max.connections.per.ip.overrides sasl.kerberos.kinit.cmd sasl.kerberos.service.name ssl.client.auth "
        "ssl.endpoint.identification.algorithm ssl.keymanager.algorithm ssl.keystore.location "
        "ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation "
        "ssl.trustmanager.algorithm ssl.truststore.location ssl.truststore.type"
    ),
    (SettingType.STRING, UpdateMode.READ_ONLY, None): (
        "control.plane.listener.name controller.listener.names early.start.listeners metadata.log.dir "
        "metrics.recording.level password.encoder.cipher.algorithm password.encoder.keyfactory.algorithm "
        "remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path "
        "remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name "
        "remote.log.storage.manager.class.name remote.log.storage.manager.class.path "
        "remote.log.storage.manager.impl.prefix sasl.mechanism.controller.protocol "
        "sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.url "
        "sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name "
        "sasl.oauthbearer.token.endpoint.url security.providers ssl.principal.mapping.rules "
        "zookeeper.clientCnxnSocket zookeeper.ssl.keystore.type zookeeper.ssl.protocol "
        "zookeeper.ssl.truststore.type"
    ),
}
"""Names by type, update mode and least value."""


@cache  # of the names above alone: few brokers have any
def _made(name: str, kind: SettingType, update: UpdateMode, least: int | None) -> Setting[Any]:
    match kind:
        case SettingType.BOOLEAN:
            return boolean(name, False, _DOC, update=update)
        case SettingType.DOUBLE:
            return number(name, "0", _DOC, least=-1.8e308, most=1.8e308, update=update)
        case SettingType.LIST:
            return words(name, "", _DOC, update=update)
        case SettingType.INT | SettingType.LONG | SettingType.SHORT:
            return integer(name, None, _DOC, least=-LONG_MAX - 1 if least is None else least, kind=kind, update=update)
        case _:
            return text(name, None, _DOC, kind=kind, update=update)


OTHERS: Final = {name: how for how, names in _NAMES.items() for name in names.split()}
"""Type, update mode and least value by name."""


def other_setting(name: str) -> Setting[Any] | None:
    """Return the setting of a name, None if it is none of these."""
    how = OTHERS.get(name)
    return None if how is None else _made(name, *how)


def of_one_listener(name: str) -> str | None:
    """Return the general name of a setting of one listener, None for any other setting."""
    found = _OF_LISTENER.match(name)
    return None if found is None else name[found.end() :]


def is_only_per_listener(name: str) -> bool:
    """Return whether requests can change a setting only with the prefix of a listener: keystores and truststores."""
    return name in OTHERS and name.startswith("ssl.") and (".keystore." in f".{name}" or ".truststore." in f".{name}")
