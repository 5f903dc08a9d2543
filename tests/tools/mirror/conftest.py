"""Two of our brokers for each test."""

from collections.abc import Iterator

import pytest

from magicbyte.testing import Broker
from tools.mirror.pair import Pair


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Broker() as source, Broker() as target:
        yield Pair(source, target)
