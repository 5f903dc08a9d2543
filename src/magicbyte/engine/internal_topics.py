"""The names of Kafka's internal topics."""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The log of the group coordinators."""
STATE_TOPIC: Final = "__transaction_state"
"""The log of the transaction coordinators."""
INTERNAL: Final = frozenset({OFFSETS_TOPIC, STATE_TOPIC})
"""The topics of a broker's coordinators, which clients may not write."""
CLUSTER_METADATA: Final = "__cluster_metadata"
"""The topic of a KRaft quorum: its folder is the controller's, and no topic of a broker."""
