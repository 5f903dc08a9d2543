"""Consumer groups of KIP-848: a real broker and ours are asked the same, and store the same records.

Both hear the same long conversation. What is compared: every answer and every record of `__consumer_offsets`, but for
ids of topics, dates, and texts of errors.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from interop import jvm
from interop.consumer_group_steps import conversation
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

SETTINGS = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


REAL, RELEASE = "4.3.1", "4.3"


def test_a_real_broker_and_ours_answer_and_store_the_same(tmp_path: Path) -> None:
    with Broker({**SETTINGS, "as.version": RELEASE}) as broker:
        ours = conversation(broker.bootstrap_servers)
    with jvm.broker(REAL, tmp_path, *map("=".join, SETTINGS.items())) as real:
        assert ours == conversation(real["bootstrap"])
