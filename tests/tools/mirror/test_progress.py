"""Progress as stored in the consumer groups of targets: a later release must continue from it."""

import json

from magicbyte.access.client.groups import Committed
from magicbyte.tools.mirror.progress import Lane, MirrorPlace, Origin, _place
from magicbyte.tools.mirror.rewrite import ProducerIdentity

STORED = (
    '{"magicbyte-mirror": 1, "target": 12, "as": [7, 2, 40], "of": 1, '
    '"source": "one", "topic": "id of orders", "via": ["two"], "to": "id of the copy"}'
)
PLACE = MirrorPlace(
    9, {3: Lane(12, ProducerIdentity(7, 2, 40))}, Origin("one", "id of orders", ("two",), "id of the copy")
)


def test_progress_is_stored_as_former_releases_did() -> None:
    assert json.loads(PLACE.metadata(3)) == json.loads(STORED)
    assert _place({("orders", 3): Committed(9, STORED)}, "orders-3") == PLACE


def test_progress_of_before_there_were_lanes_and_ids_of_topics_is_read() -> None:
    old = '{"magicbyte-mirror": 1, "target": 12, "as": [7, 2, 40], "source": "one"}'
    place = MirrorPlace(9, {3: Lane(12, ProducerIdentity(7, 2, 40))}, Origin("one"))
    assert _place({("orders", 3): Committed(9, old)}, "orders-3") == place
