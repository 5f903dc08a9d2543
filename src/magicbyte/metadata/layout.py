"""Where Kafka keeps what in the metadata tree, and the JSON in there.

Sources: Kafka's ZkData, and the nodes that real brokers of 0.10.2, 2.8 and 3.9 wrote.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from magicbyte.errors import MetadataError
from magicbyte.replication.state import PartitionState

if TYPE_CHECKING:
    from magicbyte.metadata.tree import Stored

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
CONFIG: Final = "/config"
CONFIG_CHANGE: Final = "/config/changes/config_change_"
PRODUCER_IDS: Final = "/latest_producer_id_block"
DELETE_TOPICS: Final = "/admin/delete_topics"
CONSUMERS: Final = "/consumers"
DEFAULT_ENTITY: Final = "<default>"
OURS: Final = "/magicbyte"
"""What stands below this is of our brokers alone: it is not transferred."""

ALWAYS_THERE: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    "/config/changes",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    DELETE_TOPICS,
    "/brokers/seqid",
    "/isr_change_notification",
    "/log_dir_event_notification",
)
"""Nodes that a broker makes when it starts, where they are missing."""

PRODUCER_ID_BLOCK: Final = 1000
_LAST_PRODUCER_ID: Final = (1 << 63) - 1


def broker_path(broker_id: int) -> str:
    """Return where a broker is registered: ephemeral; its `czxid` is the broker's epoch."""
    return f"{BROKER_IDS}/{broker_id}"


def directory_path(broker_id: int) -> str:
    """Return where a broker remembers the settings that its log directory is kept with."""
    return f"{OURS}/directories/{broker_id}"


def topic_path(topic: str) -> str:
    """Return where a topic's partitions and replicas are."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the node above the states of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def state_path(topic: str, partition: int) -> str:
    """Return where leader and in-sync replicas of a partition are."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def config_path(kind: str, name: str) -> str:
    """Return where the settings of a topic (`topics`) or broker (`brokers`) are; `<default>` is for all brokers."""
    return f"{CONFIG}/{kind}/{name}"


def consumer_offset_path(group: str, topic: str, partition: int) -> str:
    """Return where OffsetCommit version 0 keeps an offset: plain text."""
    return f"{CONSUMERS}/{group}/offsets/{topic}/{partition}"


def dump(value: Mapping[str, Any]) -> bytes:
    """Return JSON as Kafka writes it: no blanks."""
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


def id_text(value: uuid.UUID) -> str:
    """Return an id as Kafka writes it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def parse_id(path: str, text: str) -> uuid.UUID:
    """Return the id that 22 characters stand for. Raises MetadataError."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (ValueError, binascii.Error) as error:
        raise MetadataError(path, f"expected an id of 22 characters, found {text}") from error


@dataclass(frozen=True, slots=True)
class TopicNode:
    """A topic: the brokers of each partition, by its number, and its id, None in trees from before 2.8."""

    replicas: Mapping[int, Sequence[int]]
    topic_id: uuid.UUID | None

    def dump(self) -> bytes:
        """Return the node's data: version 3, or 2 without an id."""
        said: dict[str, Any] = {
            "partitions": {str(partition): list(brokers) for partition, brokers in self.replicas.items()}
        }
        if self.topic_id is not None:
            said["topic_id"] = id_text(self.topic_id)
        version = 2 if self.topic_id is None else 3
        return dump(said | {"adding_replicas": {}, "removing_replicas": {}, "version": version})

    @classmethod
    def load(cls, path: str, data: bytes) -> TopicNode:
        """Return what a node of any version says. Raises MetadataError."""
        found = load(path, data)
        try:
            replicas = {int(key): [int(each) for each in value] for key, value in found["partitions"].items()}
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise MetadataError(path, f"expected partitions and their brokers, found {data[:80]!r}") from error
        if sorted(replicas) != list(range(len(replicas))):
            raise MetadataError(path, f"expected partitions 0 to {len(replicas) - 1}, found {sorted(replicas)[:80]}")
        text = found.get("topic_id")
        return cls(dict(sorted(replicas.items())), None if text is None else parse_id(path, str(text)))


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
    """Return the state that a partition's state node holds. Raises MetadataError."""
    found = load(path, data)
    try:
        return PartitionState(
            int(found["leader"]),
            int(found["leader_epoch"]),
            tuple(int(each) for each in found["isr"]),
            int(found["controller_epoch"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(path, f"expected leader, epochs and isr, found {data[:80]!r}") from error


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Where a broker is to be reached by those who use one of its listeners."""

    listener: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


def dump_broker(endpoints: Sequence[BrokerEndpoint], rack: str | None, now_ms: int, version: int) -> bytes:
    """Return the data of a broker's registration. `version`, 1 to 5: `releases.registration_version`."""
    plain = next((each for each in endpoints if each.security_protocol == "PLAINTEXT"), None)
    said: dict[str, Any] = {
        "jmx_port": -1,
        "port": -1 if plain is None else plain.port,
        "host": None if plain is None else plain.host,
        "version": version,
        "timestamp": str(now_ms),
    }
    if version >= 2:
        named = [replace(each, listener=each.security_protocol) for each in endpoints] if version < 4 else endpoints
        said["endpoints"] = [str(each) for each in named]
    if version >= 3 and rack is not None:
        said["rack"] = rack
    if version >= 4:
        said["listener_security_protocol_map"] = {each.listener: each.security_protocol for each in endpoints}
    if version >= 5:
        said["features"] = {}
    return dump(said)


def dump_controller(broker_id: int, now_ms: int) -> bytes:
    """Return the data of the node that says which broker is the controller."""
    return dump({"version": 1, "brokerid": broker_id, "timestamp": str(now_ms)})


def load_controller(data: bytes) -> int:
    """Return the id of the broker that is the controller. Raises MetadataError."""
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
    """Return the settings that a node holds. Raises MetadataError."""
    found = load(path, data).get("config")
    if not isinstance(found, dict):
        raise MetadataError(path, f"expected settings, found {data[:80]!r}")
    return {str(name): str(value) for name, value in found.items()}


def dump_config_change(kind: str, name: str) -> bytes:
    """Return the data of a node that tells other brokers whose settings have changed."""
    return dump({"version": 2, "entity_path": f"{kind}/{name}"})


def check_node(path: str, node: Stored) -> None:
    """Raise MetadataError for a node that cannot be: its values, or what one of Kafka's own nodes says."""
    numbers = (
        *(node.version, node.czxid, node.mzxid, node.pzxid, node.ctime_ms, node.mtime_ms),
        *(node.created, node.ephemeral_owner),
    )
    if not isinstance(path, str) or not isinstance(node.data, bytes) or not all(type(each) is int for each in numbers):
        raise MetadataError(str(path), "expected text, bytes and numbers")
    if not path.startswith("/") or (path != "/" and not all(path.split("/")[1:])):
        raise MetadataError(path, "expected a path such as /brokers/ids")
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
    """Return the data of the node that says which producer ids were given to a broker, from `first` on."""
    last = min(first + PRODUCER_ID_BLOCK - 1, _LAST_PRODUCER_ID)
    return dump({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def load_last_producer_id(data: bytes) -> int:
    """Return the last producer id that was given to any broker. Raises MetadataError."""
    found = load(PRODUCER_IDS, data)
    try:
        return int(found["block_end"])
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(PRODUCER_IDS, f"expected block_end, found {data[:80]!r}") from error
