"""Two brokers of ours for each test."""

from collections.abc import Iterator

import pytest

from broker.serving import KEEP_ALL
from magicbyte.testing import Broker
from mirror.pair import Pair


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Broker(KEEP_ALL) as source, Broker(KEEP_ALL) as target:
        yield Pair(source, target)
