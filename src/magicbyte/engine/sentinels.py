"""The integers that mean *none* in Kafka's requests and files. A name of its own for each, as all of them are -1."""

from typing import Final

NO_BROKER: Final = -1
"""Of a leader, a controller, a coordinator: there is none, or it is not known."""
NO_EPOCH: Final = -1
"""Of a leader, a controller, a coordinator, a producer, a broker."""
NO_OFFSET: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
