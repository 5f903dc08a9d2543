"""The metadata log of a KRaft quorum as an image of the cluster: its records one after the other, and back.

Invariants:
1. Each record is a function of the image before it: nodes that apply the same records have equal images.
2. Records between the begin and the end of a transaction have no effect before its end, and none after an abort.
3. The records of an image, applied to an empty one, lead to an equal image, except for facts that the level of
   `metadata.version` cannot express.

Source: Kafka's MetadataDelta and MetadataImage, 3.3 to 4.4.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from magicbyte.engine.cluster.acls import AccessControlEntry, AclOperation, Pattern, Permission, ResourcePattern
from magicbyte.engine.cluster.acls import ResourceType as AclResource
from magicbyte.engine.cluster.brokers import (
    BrokerEndpoint,
    QuorumRegistration,
    RegisteredBroker,
    RegisteredController,
    Registration,
)
from magicbyte.engine.cluster.changes import (
    AclAdded,
    AclRemoved,
    BrokerRegistered,
    BrokerUnregistered,
    ClusterChange,
    ConnectionRateChanged,
    Draft,
    FeatureChanged,
    PartitionReplaced,
    PartitionsCreated,
    ProducerIdsAllocated,
    QuorumControllerRegistered,
    QuorumControllerUnregistered,
    QuotasChanged,
    ScramCredentialChanged,
    SettingsChanged,
    TokenChanged,
    TopicCreated,
    TopicDeleted,
    ZooKeeperMigrationChanged,
)
from magicbyte.engine.cluster.features import KRAFT_VERSION, METADATA_VERSION
from magicbyte.engine.cluster.image import (
    AclBinding,
    ClusterImage,
    ConfigEntity,
    DelegationToken,
    EntityKind,
    PartitionImage,
    QuorumPartition,
    TopicImage,
)
from magicbyte.engine.cluster.metadata_records import MetadataRecord
from magicbyte.engine.cluster.principal import Principal
from magicbyte.engine.cluster.quotas import NO_NAME, QuotaEntity
from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.errors import CorruptRecordError, InvalidRequestError, UnknownTopicError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.stored import (
    access_control_entry_record,
    client_quota_record,
    config_record,
    delegation_token_record,
    feature_level_record,
    partition_record,
    producer_ids_record,
    register_broker_record,
    register_controller_record,
    topic_record,
    user_scram_credential_record,
    zk_migration_state_record,
)
from magicbyte.engine.replication.reassignment import OngoingMove
from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH

E = TypeVar("E")
Watch: TypeAlias = Callable[[Draft, ClusterChange], None]
"""Gets the cluster before a change, which must not be changed, and the change."""

MIGRATING: Final = uuid.UUID(int=0)
"""The directory of a replica from before levels with directories."""
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_KINDS: Final = {2: EntityKind.TOPIC, 4: EntityKind.BROKER, 16: EntityKind.CLIENT_METRICS, 32: EntityKind.GROUP}
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_RATE: Final = "connection_creation_rate"
_UNCHANGED: Final = -2


class MetadataFold:
    """An image that follows a metadata log, from `image` on.

    `image()` returns it up to the last record that counts. Records of an open transaction are kept until its end.
    """

    def __init__(self, image: ClusterImage | None = None, watch: Watch | None = None) -> None:
        """`watch` is called before each change that counts."""
        self._watch = watch
        self._draft = self._begun(image or ClusterImage())
        self._open: list[MetadataRecord] | None = None
        self._waiting: dict[str, dict[int, PartitionImage]] = {}  # of topics, until those before them are there

    @property
    def has_open_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._open is not None

    def add(self, record: MetadataRecord) -> None:
        """Apply the next record. Raises CorruptRecordError for one that cannot follow those before."""
        name = record.type.name
        if name == "BeginTransactionRecord":
            if self._open is not None:
                raise _wrong("a transaction", "none before the open one has ended", "another begin")
            self._open = []
        elif name in ("EndTransactionRecord", "AbortTransactionRecord"):
            if self._open is None:
                raise _wrong("the end of a transaction", "an open one", "none")
            kept, self._open = self._open, None
            if name == "EndTransactionRecord":
                for each in kept:
                    self._apply(each)
        elif self._open is not None:
            self._open.append(record)
        else:
            self._apply(record)

    def _apply(self, record: MetadataRecord) -> None:
        try:
            if record.type.name == "PartitionRecord":
                self._put_partition(record.message)
            else:
                _APPLY[record.type.name](self._draft, record.message)
        except (InvalidRequestError, UnknownTopicError) as error:
            raise _wrong(record.type.label, "one that fits the records before", error) from error
        except ValueError as error:  # of an enumeration
            raise _wrong(record.type.label, "known numbers", error) from error

    def _put_partition(self, message: Any) -> None:
        """Create or replace a partition. Snapshots of Kafka 3.3 name those of a topic in any order."""
        name, number, image = _topic_of(self._draft, message.topic_id), message.partition_id, _partition(message)
        known = len(self._draft.partitions(name))
        if number < 0:
            raise InvalidRequestError(f"partition {number} of topic {name}")
        if number < known:
            self._draft.apply(PartitionReplaced(TopicPartition(name, number), image))
            return
        waiting = self._waiting.setdefault(name, {})
        waiting[number] = image
        while (first := waiting.pop(known, None)) is not None:
            self._draft.apply(PartitionsCreated(name, (first,)))
            known += 1
        if not waiting:
            del self._waiting[name]

    def image(self, position: int) -> ClusterImage:
        """Return the image; `position`: the offset of the last record.

        Raises CorruptRecordError if a partition of a topic is missing before others.
        """
        for name in self._waiting.keys() & self._draft.get("topics").keys():
            number = len(self._draft.partitions(name))
            raise _wrong(f"the partitions of topic {name}", f"partition {number}", f"{min(self._waiting[name])} only")
        image = self._draft.image(position)
        self._draft = self._begun(image)
        return image

    def _begun(self, image: ClusterImage) -> Draft:
        return Draft(image) if self._watch is None else _WatchedDraft(image, self._watch)


class _WatchedDraft(Draft):
    def __init__(self, image: ClusterImage, watch: Watch) -> None:
        super().__init__(image)
        self._watch = watch

    def apply(self, change: ClusterChange) -> None:
        self._watch(self, change)
        super().apply(change)


def _wrong(what: str, expected: str, found: object) -> CorruptRecordError:
    return CorruptRecordError(what, expected=expected, found=found)


# ---- records to changes


def _registration(message: Any, rack: str | None) -> tuple[Registration, dict[str, int]]:
    endpoints = tuple(
        BrokerEndpoint(each.name, _protocol(each.security_protocol), each.host, each.port)
        for each in message.end_points
    )
    newest = {each.name: each.max_supported_version for each in message.features}
    oldest = {each.name: each.min_supported_version for each in message.features if each.min_supported_version}
    return Registration(endpoints, rack, newest), oldest


def _protocol(number: int) -> str:
    if not 0 <= number < len(_PROTOCOLS):
        raise ValueError(f"security protocol {number}")
    return _PROTOCOLS[number]


def _register_broker(draft: Draft, message: Any) -> None:
    registration, oldest = _registration(message, message.rack)
    details = QuorumRegistration(
        message.incarnation_id,
        is_fenced=message.fenced,
        is_stopping=message.in_controlled_shutdown,
        uses_zookeeper=message.is_migrating_zk_broker,
        directories=tuple(message.log_dirs),
        cordoned=None if message.cordoned_log_dirs is None else tuple(message.cordoned_log_dirs),
        oldest_levels=oldest,
    )
    draft.apply(BrokerRegistered(RegisteredBroker(message.broker_id, message.broker_epoch, registration, details)))


def _registered(draft: Draft, broker_id: int, epoch: int) -> tuple[RegisteredBroker, QuorumRegistration]:
    broker: RegisteredBroker | None = draft.get("brokers").get(broker_id)
    if broker is None or broker.quorum is None:
        raise InvalidRequestError(f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise InvalidRequestError(f"broker {broker_id}: expected epoch {broker.epoch}, found {epoch}")
    return broker, broker.quorum


def _unregister_broker(draft: Draft, message: Any) -> None:
    _registered(draft, message.broker_id, message.broker_epoch)
    draft.apply(BrokerUnregistered(message.broker_id))


def _fence(draft: Draft, broker_id: int, epoch: int, *, is_fenced: bool) -> None:
    broker, details = _registered(draft, broker_id, epoch)
    draft.apply(BrokerRegistered(replace(broker, quorum=replace(details, is_fenced=is_fenced))))


def _registration_changed(draft: Draft, message: Any) -> None:
    broker, details = _registered(draft, message.broker_id, message.broker_epoch)
    if message.fenced not in (-1, 0, 1) or message.in_controlled_shutdown not in (0, 1):
        raise ValueError(f"fenced {message.fenced}, in controlled shutdown {message.in_controlled_shutdown}")
    if message.fenced:
        details = replace(details, is_fenced=message.fenced > 0)
    if message.in_controlled_shutdown:
        details = replace(details, is_stopping=True)
    if message.log_dirs:
        details = replace(details, directories=tuple(message.log_dirs))
    if message.cordoned_log_dirs is not None:
        details = replace(details, cordoned=tuple(message.cordoned_log_dirs))
    draft.apply(BrokerRegistered(replace(broker, quorum=details)))


def _register_controller(draft: Draft, message: Any) -> None:
    registration, oldest = _registration(message, None)
    controller = RegisteredController(
        message.controller_id, message.incarnation_id, registration, oldest, message.zk_migration_ready
    )
    draft.apply(QuorumControllerRegistered(controller))


def _topic_of(draft: Draft, topic_id: uuid.UUID) -> str:
    name: str | None = draft.get("topic_names").get(topic_id)
    if name is None:
        raise UnknownTopicError(f"no topic has the id {topic_id}")
    return name


def _create_topic(draft: Draft, message: Any) -> None:
    if message.name in draft.get("topics"):
        raise InvalidRequestError(f"topic {message.name} exists already")
    draft.apply(TopicCreated(TopicImage(message.name, message.topic_id, ())))


def _remove_topic(draft: Draft, message: Any) -> None:
    name = _topic_of(draft, message.topic_id)
    draft.apply(TopicDeleted(name))
    draft.apply(SettingsChanged(ConfigEntity(EntityKind.TOPIC, name), None))


def _directories(found: Iterable[uuid.UUID] | None, replicas: int) -> tuple[uuid.UUID, ...]:
    return tuple(found or ()) or (MIGRATING,) * replicas


def _partition(message: Any) -> PartitionImage:
    """Return the partition in a PartitionRecord."""
    details = QuorumPartition(
        _directories(message.directories, len(message.replicas)),
        tuple(message.eligible_leader_replicas or ()),
        tuple(message.last_known_elr or ()),
        message.leader_recovery_state == 1,
    )
    state = PartitionState(message.leader, message.leader_epoch, tuple(message.isr), NO_EPOCH)
    return PartitionImage(
        tuple(message.replicas),
        OngoingMove(tuple(message.adding_replicas), tuple(message.removing_replicas)),
        KnownState(state, message.partition_epoch),
        details,
    )


def _known(given: Iterable[int] | None, before: tuple[int, ...]) -> tuple[int, ...]:
    return before if given is None else tuple(given)


def _change_partition(draft: Draft, message: Any) -> None:
    name, number = _topic_of(draft, message.topic_id), message.partition_id
    partitions = draft.partitions(name)
    before = partitions[number] if 0 <= number < len(partitions) else None
    if before is None or before.known is None or before.quorum is None:
        raise UnknownTopicError(f"partition {name}-{number} does not exist")
    state, details = before.known.state, before.quorum
    state = replace(state, isr=_known(message.isr, state.isr))
    if message.leader != _UNCHANGED:
        state = replace(state, leader=message.leader, leader_epoch=state.leader_epoch + 1)
    if message.directories is not None:
        details = details._replace(directories=tuple(message.directories))
    if message.leader_recovery_state in (0, 1):
        details = details._replace(is_recovering=message.leader_recovery_state == 1)
    image = PartitionImage(
        _known(message.replicas, before.replicas),
        OngoingMove(
            _known(message.adding_replicas, before.move.adding), _known(message.removing_replicas, before.move.removing)
        ),
        KnownState(state, before.known.version + 1),
        details._replace(
            eligible=_known(message.eligible_leader_replicas, details.eligible),
            last_eligible=_known(message.last_known_elr, details.last_eligible),
        ),
    )
    draft.apply(PartitionReplaced(TopicPartition(name, number), image))


def _clear_eligible(draft: Draft, message: Any) -> None:
    for name in [message.topic_name] if message.topic_name else list(draft.get("topics")):
        for number, each in enumerate(draft.partitions(name)):
            if each.quorum is not None and (each.quorum.eligible or each.quorum.last_eligible):
                cleared = each._replace(quorum=each.quorum._replace(eligible=(), last_eligible=()))
                draft.apply(PartitionReplaced(TopicPartition(name, number), cleared))


def _change_setting(draft: Draft, message: Any) -> None:
    if message.resource_type not in _KINDS:
        raise ValueError(f"resource type {message.resource_type}")
    kind = _KINDS[message.resource_type]
    of_all = kind is EntityKind.BROKER and not message.resource_name
    entity = ConfigEntity(kind, None if of_all else message.resource_name)
    settings = dict(draft.get("settings").get(entity, {}))
    if message.value is None:
        settings.pop(message.name, None)
    else:
        settings[message.name] = message.value
    draft.apply(SettingsChanged(entity, settings or None))


def _change_quota(draft: Draft, message: Any) -> None:
    parts = {each.entity_type: each.entity_name for each in message.entity}
    if not parts or not parts.keys() <= {"user", "client-id", "ip"} or ("ip" in parts and len(parts) > 1):
        raise InvalidRequestError(f"a quota of {', '.join(map(repr, parts)) or 'no entity'}")
    if "ip" in parts:
        if message.key != _RATE:
            raise InvalidRequestError(f"{message.key} of an address")
        draft.apply(ConnectionRateChanged(parts["ip"], None if message.remove else message.value))
        return
    entity = QuotaEntity(parts.get("user", NO_NAME), parts.get("client-id", NO_NAME))
    limits = dict(draft.get("quotas").get(entity, {}))
    if message.remove:
        limits.pop(message.key, None)
    else:
        limits[message.key] = message.value
    draft.apply(QuotasChanged(entity, limits))


def _add_acl(draft: Draft, message: Any) -> None:
    resource = ResourcePattern(AclResource(message.resource_type), message.resource_name, Pattern(message.pattern_type))
    entry = AccessControlEntry(
        Principal.parse(message.principal),
        Permission(message.permission_type),
        AclOperation(message.operation),
        message.host,
    )
    draft.apply(AclAdded(message.id, AclBinding(resource, entry)))


def _remove_acl(draft: Draft, message: Any) -> None:
    if message.id not in draft.get("acl_ids"):
        raise InvalidRequestError(f"no ACL has the id {message.id}")
    draft.apply(AclRemoved(message.id))


def _change_credential(draft: Draft, message: Any, *, is_removed: bool = False) -> None:
    if message.mechanism not in _MECHANISMS:
        raise ValueError(f"mechanism {message.mechanism}")
    credential = None
    if not is_removed:
        credential = Credential(
            bytes(message.salt), bytes(message.stored_key), bytes(message.server_key), message.iterations
        )
    draft.apply(ScramCredentialChanged(message.name, _MECHANISMS[message.mechanism], credential))


def _change_feature(draft: Draft, message: Any) -> None:
    if message.name != KRAFT_VERSION:  # the quorum's own, in its control records
        draft.apply(FeatureChanged(message.name, message.feature_level or None))


def _change_token(draft: Draft, message: Any) -> None:
    token = DelegationToken(
        message.owner,
        message.requester,
        tuple(message.renewers),
        message.issue_timestamp,
        message.max_timestamp,
        message.expiration_timestamp,
    )
    draft.apply(TokenChanged(message.token_id, token))


_APPLY: Final[Mapping[str, Callable[[Draft, Any], None]]] = {
    "RegisterBrokerRecord": _register_broker,
    "UnregisterBrokerRecord": _unregister_broker,
    "TopicRecord": _create_topic,
    "ConfigRecord": _change_setting,
    "PartitionChangeRecord": _change_partition,
    "FenceBrokerRecord": lambda draft, message: _fence(draft, message.id, message.epoch, is_fenced=True),
    "UnfenceBrokerRecord": lambda draft, message: _fence(draft, message.id, message.epoch, is_fenced=False),
    "RemoveTopicRecord": _remove_topic,
    "DelegationTokenRecord": _change_token,
    "UserScramCredentialRecord": _change_credential,
    "FeatureLevelRecord": _change_feature,
    "ClientQuotaRecord": _change_quota,
    "ProducerIdsRecord": lambda draft, message: draft.apply(
        ProducerIdsAllocated(message.broker_id, message.next_producer_id)
    ),
    "BrokerRegistrationChangeRecord": _registration_changed,
    "AccessControlEntryRecord": _add_acl,
    "RemoveAccessControlEntryRecord": _remove_acl,
    "NoOpRecord": lambda _draft, _message: None,
    "ZkMigrationStateRecord": lambda draft, message: draft.apply(
        ZooKeeperMigrationChanged(message.zk_migration_state or None)  # 0: none
    ),
    "RemoveUserScramCredentialRecord": lambda draft, message: _change_credential(draft, message, is_removed=True),
    "RemoveDelegationTokenRecord": lambda draft, message: draft.apply(TokenChanged(message.token_id, None)),
    "RegisterControllerRecord": _register_controller,
    "ClearElrRecord": _clear_eligible,
    "UnregisterControllerRecord": lambda draft, message: draft.apply(
        QuorumControllerUnregistered(message.controller_id)
    ),
}


# ---- an image as records


def records_of(image: ClusterImage) -> Iterator[MetadataRecord]:
    """Yield the records of an image, as a snapshot of its level of `metadata.version` has them."""
    level = image.features.get(METADATA_VERSION, 0)
    yield from _records_of_features(image)
    for broker in image.brokers.values():
        yield MetadataRecord(0, _version(level, 7, 8, 17, 30), _broker_record(broker, level))
    for controller in image.controllers.values():
        yield MetadataRecord(27, 0, _controller_record(controller))
    for topic in image.topics.values():
        yield MetadataRecord(2, 0, topic_record.TopicRecord(name=topic.name, topic_id=_id(topic)))
        for number, partition in enumerate(topic.partitions):
            yield MetadataRecord(3, _version(level, 17, 23), _partition_record(_id(topic), number, partition, level))
    for entity, settings in image.settings.items():
        number = next(number for number, kind in _KINDS.items() if kind is entity.kind)
        for name, value in settings.items():
            yield MetadataRecord(
                4,
                0,
                config_record.ConfigRecord(
                    resource_type=number, resource_name=entity.name or "", name=name, value=value
                ),
            )
    yield from _records_of_quotas(image)
    if image.next_producer_id is not None:
        made = producer_ids_record.ProducerIdsRecord(
            broker_id=NO_BROKER, broker_epoch=NO_EPOCH, next_producer_id=image.next_producer_id
        )
        yield MetadataRecord(15, 0, made)
    yield from _records_of_access(image)


def _version(level: int, *since: int) -> int:
    """Return the version of a record: the number of the levels that have been reached."""
    return sum(level >= each for each in since)


def _id(topic: TopicImage) -> uuid.UUID:
    assert topic.id is not None, "topics of a quorum have ids"
    return topic.id


def _records_of_features(image: ClusterImage) -> Iterator[MetadataRecord]:
    for name, feature in sorted(image.features.items(), key=lambda each: each[0] != METADATA_VERSION):
        yield MetadataRecord(12, 0, feature_level_record.FeatureLevelRecord(name=name, feature_level=feature))
    if image.zookeeper_migration is not None:
        made = zk_migration_state_record.ZkMigrationStateRecord(zk_migration_state=image.zookeeper_migration)
        yield MetadataRecord(21, 0, made)


def _endpoints(kind: Callable[..., E], registration: Registration) -> list[E]:
    return [
        kind(
            name=each.listener,
            host=each.host,
            port=each.port,
            security_protocol=_PROTOCOLS.index(each.security_protocol),
        )
        for each in registration.endpoints
    ]


def _features(kind: Callable[..., E], registration: Registration, oldest: Mapping[str, int]) -> list[E]:
    return [
        kind(name=name, min_supported_version=oldest.get(name, 0), max_supported_version=newest)
        for name, newest in registration.features.items()
    ]


def _broker_record(broker: RegisteredBroker, level: int) -> register_broker_record.RegisterBrokerRecord:
    details, registration = broker.quorum, broker.registration
    assert details is not None, "brokers of a quorum have incarnations"
    version = _version(level, 7, 8, 17, 30)
    return register_broker_record.RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=details.uses_zookeeper and version >= 2,
        incarnation_id=details.incarnation,
        broker_epoch=broker.epoch,
        end_points=_endpoints(register_broker_record.BrokerEndpoint, registration),
        features=_features(register_broker_record.BrokerFeature, registration, details.oldest_levels),
        rack=registration.rack,
        fenced=details.is_fenced,
        in_controlled_shutdown=details.is_stopping and version >= 1,
        log_dirs=list(details.directories) if version >= 3 else [],
        cordoned_log_dirs=None if version < 4 or details.cordoned is None else list(details.cordoned),
    )


def _controller_record(controller: RegisteredController) -> register_controller_record.RegisterControllerRecord:
    registration = controller.registration
    return register_controller_record.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation,
        zk_migration_ready=controller.is_ready_to_migrate,
        end_points=_endpoints(register_controller_record.ControllerEndpoint, registration),
        features=_features(register_controller_record.ControllerFeature, registration, controller.oldest_levels),
    )


def _partition_record(
    topic_id: uuid.UUID, number: int, partition: PartitionImage, level: int
) -> partition_record.PartitionRecord:
    assert partition.known is not None, "each partition of a quorum has a state"
    assert partition.quorum is not None, "it was made from a record"
    state, details, version = partition.known.state, partition.quorum, _version(level, 17, 23)
    return partition_record.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=state.isr,
        removing_replicas=partition.move.removing,
        adding_replicas=partition.move.adding,
        leader=state.leader,
        leader_recovery_state=int(details.is_recovering),
        leader_epoch=state.leader_epoch,
        partition_epoch=partition.known.version,
        directories=list(details.directories) if version >= 1 else [],
        eligible_leader_replicas=(details.eligible or None) if version >= 2 else None,
        last_known_elr=(details.last_eligible or None) if version >= 2 else None,
    )


def _records_of_quotas(image: ClusterImage) -> Iterator[MetadataRecord]:
    for entity, limits in image.quotas.items():
        parts = {"user": entity.user, "client-id": entity.client_id}
        owner = {kind: name for kind, name in parts.items() if name != NO_NAME}
        for key, limit in limits.items():
            yield _quota_record(owner, key, limit)
    for address, rate in image.connection_rates.items():
        yield _quota_record({"ip": address}, _RATE, rate)


def _quota_record(owner: Mapping[str, str | None], key: str, limit: float) -> MetadataRecord:
    entity = [client_quota_record.EntityData(entity_type=kind, entity_name=name) for kind, name in owner.items()]
    made = client_quota_record.ClientQuotaRecord(entity=entity, key=key, value=limit, remove=False)
    return MetadataRecord(14, 0, made)


def _records_of_access(image: ClusterImage) -> Iterator[MetadataRecord]:
    for acl_id, (resource, entry) in image.acl_ids.items():
        acl = access_control_entry_record.AccessControlEntryRecord(
            id=acl_id,
            resource_type=resource.type,
            resource_name=resource.name,
            pattern_type=resource.pattern,
            principal=str(entry.principal),
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        yield MetadataRecord(18, 0, acl)
    for user, credentials in image.scram_users.items():
        for number, mechanism in _MECHANISMS.items():
            if (credential := credentials.get(mechanism)) is not None:
                made = user_scram_credential_record.UserScramCredentialRecord(
                    name=user,
                    mechanism=number,
                    salt=credential.salt,
                    stored_key=credential.stored_key,
                    server_key=credential.server_key,
                    iterations=credential.iterations,
                )
                yield MetadataRecord(11, 0, made)
    for token_id, token in image.tokens.items():
        stored = delegation_token_record.DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issued_ms,
            max_timestamp=token.latest_ms,
            expiration_timestamp=token.expires_ms,
            token_id=token_id,
        )
        yield MetadataRecord(10, 0, stored)
