"""The names of Kafka's internal topics."""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The log of the group coordinators."""
STATE_TOPIC: Final = "__transaction_state"
"""The log of the transaction coordinators."""
SHARE_TOPIC: Final = "__share_group_state"
"""The log of the share coordinators."""
INTERNAL: Final = frozenset({OFFSETS_TOPIC, STATE_TOPIC, SHARE_TOPIC})
"""The topics of a broker's coordinators, which clients may not write."""
COMPACTED: Final = frozenset({OFFSETS_TOPIC, STATE_TOPIC})
"""Those whose records are compacted. In the others a record does not replace an earlier one with its key."""
CLUSTER_METADATA: Final = "__cluster_metadata"
"""The topic of a KRaft quorum: its folder is the controller's, and no topic of a broker."""
