"""An image of a cluster as JSON, for commands and pages: all but secrets."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from magicbyte.engine.cluster.quotas import NO_NAME
from magicbyte.engine.protocol.fields import id_text

if TYPE_CHECKING:
    from magicbyte.engine.cluster.acls import AccessControlEntry, ResourcePattern
    from magicbyte.engine.cluster.brokers import RegisteredBroker, RegisteredController, Registration
    from magicbyte.engine.cluster.image import ClusterImage, PartitionImage, TopicImage
    from magicbyte.engine.cluster.quotas import QuotaEntity


def image_json(image: ClusterImage, topics: Collection[str] | None = None) -> dict[str, Any]:
    """Return an image; `topics`: those to show, with their settings, by default all.

    Of credentials and delegation tokens only the names are shown. A default has the name null.
    """
    shown = [topic for name, topic in sorted(image.topics.items()) if topics is None or name in topics]
    return {
        "features": dict(image.features),
        "brokers": [broker_json(each) for _, each in sorted(image.brokers.items())],
        "controllers": [controller_json(each) for _, each in sorted(image.controllers.items())],
        "topics": [_topic(each) for each in shown],
        "settings": [
            {"type": entity.kind.value, "name": entity.name, "settings": dict(settings)}
            for entity, settings in image.settings.items()
            if topics is None or entity.name in topics
        ],
        "quotas": [
            *({"entity": quota_entity_json(entity), "limits": dict(limits)} for entity, limits in image.quotas.items()),
            *(
                {"entity": {"ip": address}, "limits": {"connection_creation_rate": rate}}
                for address, rate in image.connection_rates.items()
            ),
        ],
        "acls": [
            acl_json(resource, entry) for resource, entries in sorted(image.acls.items()) for entry in sorted(entries)
        ],
        "scramUsers": {user: sorted(mechanisms) for user, mechanisms in sorted(image.scram_users.items())},
        "delegationTokens": sorted(image.tokens),
        "nextProducerId": image.next_producer_id,
    }


def _registration(registration: Registration) -> dict[str, Any]:
    return {
        "endpoints": sorted(map(str, registration.endpoints)),
        "rack": registration.rack,
        "features": dict(registration.features),
    }


def acl_json(resource: ResourcePattern, entry: AccessControlEntry) -> dict[str, str]:
    """Return an ACL with its resource."""
    return {
        "resourceType": resource.type.name,
        "resourceName": resource.name,
        "patternType": resource.pattern.name,
        "principal": str(entry.principal),
        "host": entry.host,
        "operation": entry.operation.name,
        "permission": entry.permission.name,
    }


def broker_json(broker: RegisteredBroker) -> dict[str, Any]:
    """Return a registered broker."""
    shown = {"id": broker.id, "epoch": broker.epoch, **_registration(broker.registration)}
    if (quorum := broker.quorum) is not None:
        shown |= {
            "isFenced": quorum.is_fenced,
            "isInControlledShutdown": quorum.is_stopping,
            "directories": [id_text(each) for each in quorum.directories],
            "cordonedDirectories": [id_text(each) for each in quorum.cordoned or ()],
        }
    return shown


def controller_json(controller: RegisteredController) -> dict[str, Any]:
    """Return a registered controller of a quorum."""
    return {"id": controller.id, **_registration(controller.registration)}


def _topic(topic: TopicImage) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": None if topic.id is None else id_text(topic.id),
        "partitions": [partition_json(number, each) for number, each in enumerate(topic.partitions)],
    }


def partition_json(number: int, partition: PartitionImage) -> dict[str, Any]:
    """Return a partition with its number."""
    shown: dict[str, Any] = {"partition": number, "replicas": list(partition.replicas)}
    if (known := partition.known) is not None:
        shown |= {"leader": known.state.leader, "leaderEpoch": known.state.leader_epoch, "isr": list(known.state.isr)}
    if partition.move:
        shown |= {"adding": list(partition.move.adding), "removing": list(partition.move.removing)}
    if (quorum := partition.quorum) is not None and known is not None:
        shown |= {
            "partitionEpoch": known.version,
            "isRecovering": quorum.is_recovering,
            "eligibleLeaderReplicas": list(quorum.eligible),
            "lastKnownEligible": list(quorum.last_eligible),
            "directories": [id_text(each) for each in quorum.directories],
        }
    return shown


def quota_entity_json(entity: QuotaEntity) -> dict[str, str | None]:
    """Return the parts of an entity with quotas; a default has the name None."""
    parts = {"user": entity.user, "client-id": entity.client_id}
    return {kind: name for kind, name in parts.items() if name != NO_NAME}
