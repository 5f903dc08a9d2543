"""Versions of requests from which something holds, where several rooms ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magicbyte.engine.protocol.api_key import ApiKey

FIRST_OF_PROTOCOL_2: Final[Mapping[int, int]] = {ApiKey.PRODUCE: 12, ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5}
"""By API key, the first version that uses protocol 2 of transactions (KIP-890): partitions join a transaction with
their first records, and each transaction has an epoch of its own.
"""

API_VERSIONS_WITH_SOFTWARE: Final = 3
"""ApiVersions with the name and version of the client's software."""

FETCH_WITH_WHOLE_SETS: Final = 3
"""Fetch whose first set comes whole even if it exceeds the limit."""

OFFSET_FETCH_WITH_CODE: Final = 2
"""OffsetFetch with an error code for a group as a whole."""

OFFSET_FETCH_OF_GROUPS: Final = 8
"""OffsetFetch for several groups."""

OFFSET_COMMIT_WITH_EPOCH: Final = 9
"""OffsetCommit by members of consumer groups (KIP-848)."""

OFFSET_FETCH_WITH_EPOCH: Final = 9
"""OffsetFetch by members of consumer groups (KIP-848)."""

FETCH_BY_ID: Final = 13
"""Fetch whose topics are identified by id."""
