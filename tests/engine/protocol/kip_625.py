"""The messages of KIP-625's size table: MetadataResponse version 9 of one topic on two brokers, fixed and encoded.

The document does not print its messages. These two have both of its sizes that a message can have, 3216 bytes fixed
and 1170 encoded: one with 100 partitions, as the text says, and all integers encoded; one with full partitions, of
which there are 93, and only their integers encoded. benchmarks/results/kip_625.md has the table.
"""

from dataclasses import dataclass

from engine.protocol.interpreter import Values
from engine.protocol.schemas import SCHEMAS, all_schemas
from magicbyte.schema import MessageSchema, load

VERSION = 9
FIXED, BEST, WORST = 3216, 1170, 4026  # bytes in the document's table
LARGE, LARGE_ERROR = 1 << 28, 1 << 14  # from here on an unpacked int32 takes five bytes, an int16 three


@dataclass(frozen=True)
class Example:
    """A message that takes FIXED bytes as Kafka writes it, and BEST as a message of `encoded`."""

    name: str
    encoded: str  # the schema in schemas/extensions
    partitions: int
    in_sync: int  # partitions whose in-sync replicas are both brokers; the others have one
    topic: str
    authorized_operations: int

    @property
    def fixed_schema(self) -> MessageSchema:
        return all_schemas()["MetadataResponse"]

    @property
    def encoded_schema(self) -> MessageSchema:
        return load(SCHEMAS / "extensions" / f"{self.encoded}.json")

    def best(self) -> Values:
        """Return the message that takes fewest bytes encoded, in a cluster of two brokers."""
        brokers = [{"nodeId": each, "host": "ab"[each], "port": 9092, "rack": None} for each in (0, 1)]
        partitions = [
            {
                "errorCode": 0,
                "partitionIndex": index,
                "leaderId": index % 2,
                "leaderEpoch": 0,
                "replicaNodes": [0, 1],
                "isrNodes": [0, 1] if index < self.in_sync else [index % 2],
                "offlineReplicas": [],
            }
            for index in range(self.partitions)
        ]
        return {
            "throttleTimeMs": 0,
            "brokers": brokers,
            "clusterId": None,
            "controllerId": 0,
            "topics": [
                {
                    "errorCode": 0,
                    "name": self.topic,
                    "isInternal": False,
                    "partitions": partitions,
                    "topicAuthorizedOperations": self.authorized_operations,
                }
            ],
            "clusterAuthorizedOperations": self.authorized_operations,
        }

    def of_value(self, value: int) -> Values:
        """Return the message with `value` as each integer of each partition, as far as it fits into 16 bits."""
        message = self.best()
        for partition in message["topics"][0]["partitions"]:
            partition["errorCode"] = max(-32768, min(32767, value))
            for field in ("partitionIndex", "leaderId", "leaderEpoch"):
                partition[field] = value
            for field in ("replicaNodes", "isrNodes"):
                partition[field] = [value] * len(partition[field])
        return message

    def worst(self) -> Values:
        """Return the message of the same shape that takes most bytes encoded."""
        message = self.of_value(LARGE)
        for partition in message["topics"][0]["partitions"]:
            partition["errorCode"] = LARGE_ERROR
        if self.encoded == "MetadataResponseUnpacked":
            for broker in message["brokers"]:
                broker |= {"nodeId": LARGE, "port": LARGE}
            for field in ("throttleTimeMs", "controllerId", "clusterAuthorizedOperations"):
                message[field] = LARGE
            message["topics"][0] |= {"errorCode": LARGE_ERROR, "topicAuthorizedOperations": LARGE}
        return message


EXAMPLES = (
    Example("100 partitions", "MetadataResponseUnpacked", 100, 41, "t1", 0),
    Example("93 partitions", "MetadataResponsePartitionsUnpacked", 93, 93, "test", -(1 << 31)),
)
