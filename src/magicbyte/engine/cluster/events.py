"""What the changes of a cluster change: of which part, from which values to which.

Values have the names of `image_json`. Credentials and delegation tokens are named, not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from magicbyte.engine.cluster import changes
from magicbyte.engine.cluster.changes import ClusterChange, Draft
from magicbyte.engine.cluster.image import ConfigEntity, EntityKind, PartitionImage, TopicImage
from magicbyte.engine.cluster.image_json import (
    acl_json,
    broker_json,
    controller_json,
    partition_json,
    quota_entity_json,
)
from magicbyte.engine.protocol.fields import id_text
from magicbyte.engine.sentinels import NO_BROKER

Values = dict[str, Any]


_ONE_OF: Final = {
    EntityKind.TOPIC: "topic",
    EntityKind.BROKER: "broker",
    EntityKind.CLIENT_METRICS: "client metrics",
    EntityKind.GROUP: "group",
}


class Event(NamedTuple):
    """A change of one part of a cluster.

    `kind`: `topic`, `partition`, `settings`, `broker`, `controller`, `feature`, `quota`, `acl`, `scram`, `token`,
    `producer-ids`, `cluster` or `damage`. `subject` names the part. `topic`, `broker`: the one that it is about, None
    for others.
    `before` and `after` have the values that changed, and no others; None: the part did not or does not exist.
    """

    kind: str
    subject: str
    before: Values | None
    after: Values | None
    topic: str | None = None
    broker: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the event: what changed, and for a part that was made or removed all its values."""
        return {"kind": self.kind, "subject": self.subject, "before": self.before, "after": self.after}


def events_of(before: Draft, change: ClusterChange) -> Iterator[Event]:
    """Yield what a change changes of a cluster, which stays as it is. A change to the present values yields none."""
    for event in _EVENTS[type(change)](before, change):
        if event.before is None or event.after is None:
            if event.before != event.after:
                yield event
            continue
        names = [name for name in event.before | event.after if event.before.get(name) != event.after.get(name)]
        if names:
            old, new = ({name: each.get(name) for name in names} for each in (event.before, event.after))
            yield event._replace(before=old, after=new)


def _topic(before: Draft, name: str) -> Values | None:
    topic: TopicImage | None = before.get("topics").get(name)
    return None if topic is None else _topic_values(topic)


def _topic_values(topic: TopicImage) -> Values:
    return {"id": None if topic.id is None else id_text(topic.id)}


def _topic_created(before: Draft, change: changes.TopicCreated) -> Iterator[Event]:
    topic = change.topic
    yield Event("topic", f"topic {topic.name}", _topic(before, topic.name), _topic_values(topic), topic.name)
    for number, each in enumerate(topic.partitions):
        yield _partition_event(topic.name, number, None, each)


def _topic_deleted(before: Draft, change: changes.TopicDeleted) -> Iterator[Event]:
    for number, each in enumerate(before.partitions(change.name)):
        yield Event("partition", f"{change.name}-{number}", partition_json(number, each), None, change.name)
    yield Event("topic", f"topic {change.name}", _topic(before, change.name), None, change.name)


def _topic_id(before: Draft, change: changes.TopicIdAssigned) -> Iterator[Event]:
    old = _topic(before, change.name) or {}
    yield Event("topic", f"topic {change.name}", old, old | {"id": id_text(change.topic_id)}, change.name)


def _partition_event(topic: str, number: int, old: PartitionImage | None, new: PartitionImage) -> Event:
    before = None if old is None else partition_json(number, old)
    return Event("partition", f"{topic}-{number}", before, partition_json(number, new), topic)


def _partitions_created(before: Draft, change: changes.PartitionsCreated) -> Iterator[Event]:
    first = len(before.partitions(change.topic))
    for number, each in enumerate(change.partitions, first):
        yield _partition_event(change.topic, number, None, each)


def _of_partition(make: Callable[[PartitionImage, Any], PartitionImage]) -> Callable[[Draft, Any], Iterator[Event]]:
    def events(before: Draft, change: Any) -> Iterator[Event]:
        topic, number = change.partition
        old = before.partitions(topic)[number]
        yield _partition_event(topic, number, old, make(old, change))

    return events


def _settings(before: Draft, change: changes.SettingsChanged) -> Iterator[Event]:
    entity: ConfigEntity = change.entity
    old, name = before.get("settings").get(entity), entity.name or "(default)"
    topic = entity.name if entity.kind is EntityKind.TOPIC else None
    broker = int(name) if entity.kind is EntityKind.BROKER and name.isdigit() else None
    new = None if change.settings is None else dict(change.settings)
    subject = f"settings of {_ONE_OF[entity.kind]} {name}"
    yield Event("settings", subject, None if old is None else dict(old), new, topic, broker)


def _quotas(before: Draft, change: changes.QuotasChanged) -> Iterator[Event]:
    named = quota_entity_json(change.entity).items()
    subject = "quotas of " + ", ".join(f"{kind} {name or '(default)'}" for kind, name in named)
    old = before.get("quotas").get(change.entity)
    yield Event("quota", subject, dict(old) if old else None, dict(change.limits) or None)


def _rate(before: Draft, change: changes.ConnectionRateChanged) -> Iterator[Event]:
    def values(rate: float | None) -> Values | None:
        return None if rate is None else {"connection_creation_rate": rate}

    subject = f"quotas of ip {change.address or '(default)'}"
    yield Event("quota", subject, values(before.get("connection_rates").get(change.address)), values(change.rate))


def _acls(before: Draft, change: changes.AclsChanged) -> Iterator[Event]:
    old = before.get("acls").get(change.resource, frozenset())
    for entry in sorted(old - change.entries):
        yield _acl_event(change.resource, entry, is_added=False)
    for entry in sorted(change.entries - old):
        yield _acl_event(change.resource, entry, is_added=True)


def _acl_event(resource: Any, entry: Any, *, is_added: bool) -> Event:
    values: Values = dict(acl_json(resource, entry))
    topic = resource.name if resource.type.name == "TOPIC" else None
    subject = f"ACL of {resource.type.name} {resource.name}"
    return Event("acl", subject, None if is_added else values, values if is_added else None, topic)


def _acl_added(_before: Draft, change: changes.AclAdded) -> Iterator[Event]:
    yield _acl_event(change.acl.resource, change.acl.entry, is_added=True)


def _acl_removed(before: Draft, change: changes.AclRemoved) -> Iterator[Event]:
    acl = before.get("acl_ids").get(change.id)
    if acl is not None:
        yield _acl_event(acl.resource, acl.entry, is_added=False)


def _credential(before: Draft, change: changes.ScramCredentialChanged) -> Iterator[Event]:
    old = before.get("scram_users").get(change.user, {}).get(change.mechanism)
    subject, values = f"user {change.user}, {change.mechanism}", {"credential": "set"}
    if old is None or change.credential is None:
        yield Event("scram", subject, None if old is None else values, None if change.credential is None else values)
    elif old != change.credential:
        yield Event("scram", subject, {"credential": "the former one"}, {"credential": "another one"})


def _token(before: Draft, change: changes.TokenChanged) -> Iterator[Event]:
    def values(token: Any) -> Values | None:
        return None if token is None else {"owner": token.owner, "expiresMs": token.expires_ms}

    old = before.get("tokens").get(change.token_id)
    yield Event("token", f"delegation token {change.token_id}", values(old), values(change.token))


def _registered(before: Draft, change: changes.BrokerRegistered) -> Iterator[Event]:
    broker, old = change.broker, before.get("brokers").get(change.broker.id)
    values = None if old is None else broker_json(old)
    yield Event("broker", f"broker {broker.id}", values, broker_json(broker), broker=broker.id)


def _unregistered(before: Draft, change: changes.BrokerUnregistered) -> Iterator[Event]:
    old = before.get("brokers").get(change.broker_id)
    values = None if old is None else broker_json(old)
    yield Event("broker", f"broker {change.broker_id}", values, None, broker=change.broker_id)


def _controller(before: Draft, controller_id: int, after: Values | None) -> Iterator[Event]:
    old = before.get("controllers").get(controller_id)
    yield Event("controller", f"controller {controller_id}", None if old is None else controller_json(old), after)


def _elected(before: Draft, change: changes.ControllerChanged) -> Iterator[Event]:
    old_id, old_epoch = before.get("controller_id"), before.get("controller_epoch")
    old = None if old_id == NO_BROKER else {"id": old_id, "epoch": old_epoch}
    yield Event("controller", "the controller", old, {"id": change.controller_id, "epoch": change.epoch})


def _feature(before: Draft, change: changes.FeatureChanged) -> Iterator[Event]:
    old = before.get("features").get(change.name)
    yield Event("feature", f"feature {change.name}", _one("level", old), _one("level", change.level))


def _producer_ids(before: Draft, change: changes.ProducerIdsAllocated) -> Iterator[Event]:
    old = before.get("next_producer_id")
    broker = None if change.broker_id == NO_BROKER else change.broker_id
    yield Event("producer-ids", "producer ids", _one("next", old), _one("next", change.next_producer_id), broker=broker)


def _one(name: str, value: object) -> Values | None:
    return None if value is None else {name: value}


def _deletion(topic: str, *, is_requested: bool) -> Iterator[Event]:
    states: list[Values] = [{"deletion": None}, {"deletion": "requested"}]
    before, after = states if is_requested else reversed(states)
    yield Event("topic", f"topic {topic}", before, after, topic)


def _reassignments(before: Draft, change: changes.ReassignmentsRequested) -> Iterator[Event]:
    old, new = before.get("reassignments"), change.partitions
    for key in sorted(old.keys() | new.keys()):
        values = [_one("requestedReplicas", None if key not in each else list(each[key])) for each in (old, new)]
        yield Event("partition", str(key), values[0], values[1], key.topic)


def _elections(before: Draft, change: changes.PreferredElectionsRequested) -> Iterator[Event]:
    old, new = before.get("preferred_elections") or (), change.partitions or ()
    for key in sorted({*old, *new}):
        values = [_one("preferredElection", "requested" if key in each else None) for each in (old, new)]
        yield Event("partition", str(key), values[0], values[1], key.topic)


def _damage(before: Draft, change: changes.DamageChanged) -> Iterator[Event]:
    section, name = change.part
    old = before.get("damage").get(change.part)
    yield Event("damage", f"{section.value}: {name}", _one("why", old), _one("why", change.why))


_EVENTS: Final[Mapping[type, Callable[[Draft, Any], Iterator[Event]]]] = {
    changes.TopicCreated: _topic_created,
    changes.TopicDeleted: _topic_deleted,
    changes.TopicIdAssigned: _topic_id,
    changes.PartitionsCreated: _partitions_created,
    changes.PartitionReplaced: _of_partition(lambda _, change: change.image),
    changes.ReplicasChanged: _of_partition(lambda old, each: old._replace(replicas=each.replicas, move=each.move)),
    changes.PartitionStateChanged: _of_partition(lambda old, change: old._replace(known=change.known)),
    changes.SettingsChanged: _settings,
    changes.QuotasChanged: _quotas,
    changes.ConnectionRateChanged: _rate,
    changes.AclsChanged: _acls,
    changes.AclAdded: _acl_added,
    changes.AclRemoved: _acl_removed,
    changes.ScramCredentialChanged: _credential,
    changes.TokenChanged: _token,
    changes.BrokerRegistered: _registered,
    changes.BrokerUnregistered: _unregistered,
    changes.QuorumControllerRegistered: lambda before, change: _controller(
        before, change.controller.id, controller_json(change.controller)
    ),
    changes.QuorumControllerUnregistered: lambda before, change: _controller(before, change.controller_id, None),
    changes.ControllerChanged: _elected,
    changes.FeatureChanged: _feature,
    changes.ProducerIdsAllocated: _producer_ids,
    changes.ClusterIdentified: lambda before, change: iter(
        (Event("cluster", "the cluster", _one("id", before.get("cluster_id")), _one("id", change.cluster_id)),)
    ),
    changes.DeletionRequested: lambda _, change: _deletion(change.topic, is_requested=True),
    changes.DeletionEnded: lambda _, change: _deletion(change.topic, is_requested=False),
    changes.ReassignmentsRequested: _reassignments,
    changes.PreferredElectionsRequested: _elections,
    changes.ZooKeeperMigrationChanged: lambda before, change: iter(
        (
            Event(
                "cluster",
                "the migration from ZooKeeper",
                _one("state", before.get("zookeeper_migration")),
                _one("state", change.state),
            ),
        )
    ),
    changes.DamageChanged: _damage,
}
