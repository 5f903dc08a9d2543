"""The paths of Kafka's nodes in the metadata tree, and their JSON content.

Sources: Kafka's ZkData, and the nodes that real brokers of 0.10.2, 2.8 and 3.9 wrote.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from msgspec import Struct, field
from msgspec.structs import replace

from magicbyte.engine.cluster.brokers import BrokerEndpoint, Registration
from magicbyte.engine.cluster.changes import PRODUCER_ID_BLOCK
from magicbyte.engine.cluster.image import ConfigEntity, EntityKind
from magicbyte.engine.errors import MetadataError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.fields import id_text
from magicbyte.engine.replication.state import PartitionState
from magicbyte.server.metadata.tree import check_stored

if TYPE_CHECKING:
    from magicbyte.server.metadata.tree import StoredNode

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
FEATURES: Final = "/feature"
CONFIG: Final = "/config"
CONFIG_CHANGE: Final = "/config/changes/config_change_"
ISR_CHANGE: Final = "/isr_change_notification/isr_change_"
PRODUCER_IDS: Final = "/latest_producer_id_block"
CONFIG_CHANGES: Final = "/config/changes"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGNMENTS: Final = "/admin/reassign_partitions"
"""Pending reassignments, as requested by Kafka's tools before 2.4."""
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIRECTORY_EVENTS: Final = "/log_dir_event_notification"
CONSUMERS: Final = "/consumers"
DEFAULT_ENTITY: Final = "<default>"
OURS: Final = "/magicbyte"
"""The root of nodes that only our brokers use: they are not transferred."""
GROUP_CHANGES: Final = f"{OURS}/group_changes"
"""The notifications of changed settings of groups: brokers of Kafka with ZooKeeper stop at one in `CONFIG_CHANGES`."""
SCRAM_DECOYS: Final = f"{OURS}/scram-decoys"
"""The secret from which the salts of unknown SCRAM users are derived."""

ALWAYS_THERE: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    DELETE_TOPICS,
    "/brokers/seqid",
    ISR_CHANGES,
    LOG_DIRECTORY_EVENTS,
    GROUP_CHANGES,
)
"""Nodes that a broker creates at its start if they are missing."""

_PLAINTEXT: Final = "PLAINTEXT"
_ENABLED: Final = 1  # the status of features, since 2.7
_LAST_PRODUCER_ID: Final = (1 << 63) - 1


def broker_path(broker_id: int) -> str:
    """Return the path of a broker's registration, an ephemeral node whose `czxid` is the broker's epoch."""
    return f"{BROKER_IDS}/{broker_id}"


def directory_path(broker_id: int) -> str:
    """Return the path where a broker stores settings that its log directory depends on."""
    return f"{OURS}/directories/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of a topic's partitions and replicas."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the node above the states of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def state_path(topic: str, partition: int) -> str:
    """Return the path of a partition's leader and in-sync replicas."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def config_path(kind: str, name: str) -> str:
    """Return the path of the settings of a topic (`topics`), broker (`brokers`) or group; `<default>`: all brokers."""
    return f"{CONFIG}/{kind}/{name}"


def settings_place(entity: ConfigEntity) -> tuple[str, str]:
    """Return kind and name of the node of an entity's settings. The name of a group may be any text."""
    if entity.name is None:
        return entity.kind.value, DEFAULT_ENTITY
    if entity.kind is not EntityKind.GROUP:
        return entity.kind.value, entity.name
    name = quote(entity.name, safe="").replace("~", "%7E")
    return entity.kind.value, name.replace(".", "%2E") if name in (".", "..") else name


def settings_entity(kind: EntityKind, name: str) -> ConfigEntity:
    """Return the entity whose settings are in a node of a kind and name."""
    if name == DEFAULT_ENTITY:
        return ConfigEntity(kind, None)
    return ConfigEntity(kind, unquote(name) if kind is EntityKind.GROUP else name)


def consumer_offset_path(group: str, topic: str, partition: int) -> str:
    """Return the path of an offset stored by OffsetCommit version 0, as plain text."""
    return f"{CONSUMERS}/{group}/offsets/{topic}/{partition}"


def dump(value: Mapping[str, Any]) -> bytes:
    """Return JSON as Kafka writes it: without whitespace."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def load(path: str, data: bytes) -> dict[str, Any]:
    """Return the JSON object of a node. Raises MetadataError."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise MetadataError(path, f"expected JSON, found {data[:80]!r}") from error
    if not isinstance(found, dict):
        raise MetadataError(path, f"expected a JSON object, found {data[:80]!r}")
    return found


def parse_id(path: str, text: str) -> uuid.UUID:
    """Parse an id of 22 characters. Raises MetadataError."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (ValueError, binascii.Error) as error:
        raise MetadataError(path, f"expected an id of 22 characters, found {text}") from error


class TopicNode(Struct, frozen=True):
    """A topic: the brokers of each partition by number, and its id, None in trees from before 2.8.

    `adding` and `removing` have the brokers that reassignments in progress add and remove.
    """

    replicas: Mapping[int, Sequence[int]]
    topic_id: uuid.UUID | None
    adding: Mapping[int, Sequence[int]] = field(default_factory=dict)
    removing: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def dump(self) -> bytes:
        """Return the node's data: version 3, or 2 without an id."""
        said: dict[str, Any] = {"partitions": _dump_brokers(self.replicas)}
        if self.topic_id is not None:
            said["topic_id"] = id_text(self.topic_id)
        version = 2 if self.topic_id is None else 3
        moves = {"adding_replicas": _dump_brokers(self.adding), "removing_replicas": _dump_brokers(self.removing)}
        return dump(said | moves | {"version": version})

    @classmethod
    def load(cls, path: str, data: bytes) -> TopicNode:
        """Parse a node of any version. Raises MetadataError."""
        fields = load(path, data)
        try:
            replicas = _load_brokers(fields["partitions"])
            adding, removing = (
                {key: value for key, value in _load_brokers(fields.get(name) or {}).items() if value}
                for name in ("adding_replicas", "removing_replicas")
            )
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise MetadataError(path, f"expected partitions and their brokers, found {data[:80]!r}") from error
        if sorted(replicas) != list(range(len(replicas))):
            raise MetadataError(path, f"expected partitions 0 to {len(replicas) - 1}, found {sorted(replicas)[:80]}")
        text = fields.get("topic_id")
        topic_id = None if text is None else parse_id(path, str(text))
        return cls(dict(sorted(replicas.items())), topic_id, adding, removing)


def _dump_brokers(brokers: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(partition): list(each) for partition, each in brokers.items()}


def _load_brokers(found: Mapping[str, Any]) -> dict[int, list[int]]:
    return {int(key): [int(each) for each in value] for key, value in found.items()}


def dump_state(state: PartitionState) -> bytes:
    """Return the data of a partition's state node."""
    return dump(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    )


def load_state(path: str, data: bytes) -> PartitionState:
    """Parse a partition's state node. Raises MetadataError."""
    fields = load(path, data)
    try:
        return PartitionState(
            int(fields["leader"]),
            int(fields["leader_epoch"]),
            tuple(int(each) for each in fields["isr"]),
            int(fields["controller_epoch"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(path, f"expected leader, epochs and isr, found {data[:80]!r}") from error


def dump_broker(
    endpoints: Sequence[BrokerEndpoint],
    rack: str | None,
    now_ms: int,
    version: int,
    features: Mapping[str, int] | None = None,
) -> bytes:
    """Return the data of a broker's registration. `version`, 1 to 5: `releases.registration_version`.

    `features`: the latest level of each feature that the broker supports; registrations before version 5 lack it.
    """
    plain = next((each for each in endpoints if each.security_protocol == _PLAINTEXT), None)
    fields: dict[str, Any] = {
        "jmx_port": -1,
        "port": -1 if plain is None else plain.port,
        "host": None if plain is None else plain.host,
        "version": version,
        "timestamp": str(now_ms),
    }
    if version >= 2:
        named = [replace(each, listener=each.security_protocol) for each in endpoints] if version < 4 else endpoints
        fields["endpoints"] = [str(each) for each in named]
    if version >= 3 and rack is not None:
        fields["rack"] = rack
    if version >= 4:
        fields["listener_security_protocol_map"] = {each.listener: each.security_protocol for each in endpoints}
    if version >= 5:
        latest = (features or {}).items()
        fields["features"] = {name: {"min_version": 1, "max_version": level} for name, level in latest}
    return dump(fields)


_ENDPOINT: Final = re.compile(r"([^:/]+)://(\[[^\]]*\]|[^:/\[\]]*):(-?[0-9]+)")


def load_broker(path: str, data: bytes) -> Registration:
    """Parse a registration of any version. Raises MetadataError."""
    fields = load(path, data)
    try:
        protocols = fields.get("listener_security_protocol_map") or {}
        endpoints = list[BrokerEndpoint]()
        for text in fields.get("endpoints") or ():
            match = _ENDPOINT.fullmatch(text)
            if match is None:
                raise ValueError(text)
            protocol = str(protocols.get(match[1], match[1]))  # before version 4 a listener is named by its protocol
            endpoints.append(BrokerEndpoint(match[1], protocol, match[2].strip("[]"), int(match[3])))
        if fields["version"] < 2:
            endpoints = [BrokerEndpoint(_PLAINTEXT, _PLAINTEXT, str(fields["host"]), int(fields["port"]))]
        rack = fields.get("rack")
        features = {str(name): int(each["max_version"]) for name, each in (fields.get("features") or {}).items()}
        return Registration(tuple(endpoints), None if rack is None else str(rack), features)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise MetadataError(path, f"expected endpoints, found {data[:200]!r}") from error


def dump_features(levels: Mapping[str, int]) -> bytes:
    """Return the data of the node with the cluster's levels of features (KIP-584)."""
    features = {name: {"min_version_level": each, "max_version_level": each} for name, each in sorted(levels.items())}
    return dump({"features": features, "status": _ENABLED, "version": 1})


def load_features(data: bytes) -> dict[str, int]:
    """Return the cluster's levels of features, which are numbers in version 2 of the node. Raises MetadataError."""
    found = load(FEATURES, data)
    try:
        return {
            str(name): int(each["max_version_level"] if isinstance(each, dict) else each)
            for name, each in (found.get("features") or {}).items()
        }
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise MetadataError(FEATURES, f"expected features with levels, found {data[:200]!r}") from error


def dump_controller(broker_id: int, now_ms: int) -> bytes:
    """Return the data of the node that names the controller."""
    return dump({"version": 1, "brokerid": broker_id, "timestamp": str(now_ms)})


def load_controller(data: bytes) -> int:
    """Return the controller's broker id. Raises MetadataError."""
    found = load(CONTROLLER, data).get("brokerid")
    if not isinstance(found, int):
        raise MetadataError(CONTROLLER, f"expected a brokerid, found {data[:80]!r}")
    return found


def load_controller_epoch(data: bytes) -> int:
    """Return the epoch of the latest controller. Raises MetadataError."""
    if not data.isdigit():
        raise MetadataError(CONTROLLER_EPOCH, f"expected a number, found {data[:80]!r}")
    return int(data)


def dump_cluster_id(cluster_id: str) -> bytes:
    """Return the data of the node with the cluster's id."""
    return dump({"version": "1", "id": cluster_id})


def load_cluster_id(data: bytes) -> str:
    """Return the cluster's id. Raises MetadataError."""
    found = load(CLUSTER_ID, data).get("id")
    if not isinstance(found, str):
        raise MetadataError(CLUSTER_ID, f"expected an id, found {data[:80]!r}")
    return found


def dump_config(settings: Mapping[str, str]) -> bytes:
    """Return the data of a node with settings."""
    return dump({"version": 1, "config": dict(settings)})


def load_config(path: str, data: bytes) -> dict[str, str]:
    """Parse a node of settings. Raises MetadataError."""
    found = load(path, data).get("config")
    if not isinstance(found, dict):
        raise MetadataError(path, f"expected settings, found {data[:80]!r}")
    return {str(name): str(value) for name, value in found.items()}


def dump_config_change(kind: str, name: str, *, version: int = 2) -> bytes:
    """Return the data of the node that notifies other brokers of changed settings: version 2, or 1 before 0.10.1."""
    if version == 1:
        return dump({"version": 1, "entity_type": kind, "entity_name": name})
    return dump({"version": 2, "entity_path": f"{kind}/{name}"})


def load_config_change(path: str, data: bytes) -> tuple[str, str]:
    """Return kind and name of the entity whose settings changed, from version 1 or 2. Raises MetadataError."""
    fields = load(path, data)
    if "entity_path" in fields:
        kind, _, name = str(fields["entity_path"]).partition("/")
        return kind, name
    if "entity_type" not in fields or "entity_name" not in fields:
        raise MetadataError(path, f"expected an entity, found {data[:80]!r}")
    return str(fields["entity_type"]), str(fields["entity_name"])


def load_partitions(path: str, data: bytes) -> list[TopicPartition]:
    """Return the partitions in a notification or a request for elections. Raises MetadataError."""
    try:
        return [TopicPartition(str(each["topic"]), int(each["partition"])) for each in load(path, data)["partitions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(path, f"expected partitions, found {data[:80]!r}") from error


def load_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the requested replicas of partitions, from a request of old tools. Raises MetadataError."""
    try:
        return {
            TopicPartition(str(each["topic"]), int(each["partition"])): tuple(int(one) for one in each["replicas"])
            for each in load(REASSIGNMENTS, data)["partitions"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(REASSIGNMENTS, f"expected partitions and replicas, found {data[:80]!r}") from error


def dump_reassignments(wanted: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """Return the data of the node with pending reassignments."""
    moves = [{"topic": key.topic, "partition": key.partition, "replicas": list(each)} for key, each in wanted.items()]
    return dump({"version": 1, "partitions": moves})


def load_log_directory_event(path: str, data: bytes) -> int:
    """Return the broker with a failed log directory. Raises MetadataError."""
    found = load(path, data).get("broker")
    if not isinstance(found, int):
        raise MetadataError(path, f"expected a broker, found {data[:80]!r}")
    return found


def check_node(path: str, node: StoredNode) -> None:
    """Raise MetadataError for an impossible node: invalid values, or invalid content of one of Kafka's own nodes."""
    check_stored(path, node)
    match path.split("/")[1:]:
        case ["brokers", "topics", _]:
            TopicNode.load(path, node.data)
        case ["brokers", "topics", _, "partitions", _, "state"]:
            load_state(path, node.data)
        case ["config", "topics" | "brokers", _]:
            load_config(path, node.data)
        case ["cluster", "id"]:
            load_cluster_id(node.data)
        case ["latest_producer_id_block"]:
            load_last_producer_id(node.data)
        case ["controller_epoch"]:
            load_controller_epoch(node.data)


def dump_producer_ids(broker_id: int, first: int) -> bytes:
    """Return the data of the node with the block of producer ids given to a broker, from `first` on."""
    last = min(first + PRODUCER_ID_BLOCK - 1, _LAST_PRODUCER_ID)
    return dump({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def load_last_producer_id(data: bytes) -> int | None:
    """Return the last producer id given to any broker; None: Kafka creates the node empty. Raises MetadataError."""
    if not data:
        return None
    found = load(PRODUCER_IDS, data)
    try:
        return int(found["block_end"])
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(PRODUCER_IDS, f"expected block_end, found {data[:80]!r}") from error


def dump_partitions(partitions: Sequence[tuple[str, int]]) -> bytes:
    """Return the data of a notification of changed in-sync replicas, and of a request for preferred elections."""
    named = [{"topic": topic, "partition": index} for topic, index in partitions]
    return dump({"version": 1, "partitions": named})
